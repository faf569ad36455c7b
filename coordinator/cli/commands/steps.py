"""``podium steps``: the steps of a turn."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import one_line, say, write_json
from chronicle.cli_kit.times import iso
from coordinator.cli.options import MomentArgument, command
from coordinator.cli.target import Target, moment_of
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.client.async_client import AsyncPodium

__all__ = ["steps"]

_MAX_RESULT = 60
"""Characters of a result in its row; JSON has more."""


@command
def steps(moment: MomentArgument, *, target: Target) -> None:
    """List the steps of a turn, in the order of their ends: how long each took, and what it changed.

    Without a turn, those of messages that are not settled: in the turn that runs or is paused, or in attempts that
    failed. If there are none, those of the last turn. The results of a committed turn are not kept, only their sizes.
    """

    async def read(podium: AsyncPodium) -> tuple[str, int | None, list[dict[str, Any]]]:
        at = await moment_of(podium, moment)
        found = [] if at.turn is not None else await _unsettled(podium, at.agent)
        if found:
            return at.agent, None, found
        turn = (await podium.agent(at.agent)).turn if at.turn is None else at.turn
        return at.agent, turn, await _committed(podium, at.agent, turn)

    agent, turn, found = target.ask(f"reading the steps of {moment}", read, moment)
    if target.json:
        write_json({"agent": agent, "turn": turn, "steps": found})
        return
    say(f"{agent}, in progress" if turn is None else f"{agent}, turn {turn}")
    if not found:
        say("it has no steps")
        return
    table(("STEP", "STATUS", "BEGAN", "TOOK", "TRIES", "STATE", "FILES", "BYTES", "RESULT"), _rows(found))


async def _unsettled(podium: AsyncPodium, agent: str) -> list[dict[str, Any]]:
    from coordinator.client.errors import ResourceNotFound  # noqa: PLC0415

    try:
        inbox = await podium.inbox(agent)
    except ResourceNotFound:
        return []
    return [
        {**step.as_json(), "status": "done" if step.result is not None else "open"}
        for message in inbox
        for step in message.steps
    ]


async def _committed(podium: AsyncPodium, agent: str, turn: int) -> list[dict[str, Any]]:
    version = (await podium.state(agent, at=turn)).version
    async with aclosing(podium.events(agent, after=version - 1)) as events:
        event = await anext(events, None)
    if event is None or event.payload is None:
        return []
    summary: Any = event.payload
    return [{"message_id": event.correlation_id, **step} for step in summary.get("steps", {"steps": ()})["steps"]]


def _rows(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (
            step["key"],
            f"{step['status']}: {step['error']}" if "error" in step else step["status"],
            iso(step["started"]),
            f"{step['ended'] - step['started']} ms",
            str(step["attempts"]),
            str(step.get("changes", "-")),
            {True: "changed", False: "-"}[step.get("changes_files", False)],
            str(step.get("result_bytes", "-")),
            one_line(step.get("result") or "-")[:_MAX_RESULT],
        )
        for step in found
    ]
