"""``podium turns``: the committed turns of an agent, and what each did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import write_json
from chronicle.cli_kit.times import iso
from coordinator.cli.options import AgentArgument, command
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, collect, say_rest
from coordinator.cli.target import Target
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["turns"]


@command
def turns(
    agent: AgentArgument,
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    target: Target,
) -> None:
    """List an agent's committed turns: why each ran, when, and how much it changed.

    A turn begins with the attempt that was committed. A row has the bytes of its patch of the state, the number of
    files that it changed, and its steps; podium diff shows the changes, podium log the events.
    """
    wanted = bounds(limit, cursor, everything=everything, target=target)
    found, rest = target.ask(
        f"reading the turns of {agent}",
        lambda podium: collect(lambda limit, cursor: podium.pages().turns(agent, limit=limit, cursor=cursor), wanted),
        agent,
    )
    if target.json:
        write_json({"agent": agent, "turns": found, **rest})
        return
    headings = ("TURN", "BEGAN", "TOOK", "CAUSE", "PATCH", "FILES", "STEPS", "MESSAGE")
    table(headings, [_row(turn) for turn in found])
    say_rest(rest)


def _row(turn: Mapping[str, Any]) -> tuple[str, ...]:
    failed = sum(step["status"] == "failed" for step in turn["steps"])
    return (
        str(turn["turn"]),
        iso(turn["began_at"]),
        f"{turn['ended_at'] - turn['began_at']} ms",
        turn["cause"],
        str(turn["patch_bytes"]),
        str(turn["files_changed"]),
        f"{len(turn['steps'])}{f' ({failed} failed)' if failed else ''}",
        turn["message_id"] or "-",
    )
