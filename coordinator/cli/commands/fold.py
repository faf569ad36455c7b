"""``podium fold``: dropping the older history of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, DebugOption, HomeOption, JsonOption
from coordinator.cli.stores import opened_blobs, opened_journal

if TYPE_CHECKING:
    from podium.address import Address
    from podium.history.fold import Dropped, Folded
    from podium.history.retention import Retention

__all__ = ["fold"]


def fold(
    agent: AgentArgument,
    *,
    keep_turns: Annotated[
        int | None, typer.Option("--keep-turns", metavar="N", min=1, help="Keep the last N turns at least.")
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", metavar="D", help="Keep what is younger than D days at least.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Drop the older history of an agent; without options, all history before now.

    History can begin at a mark, an event that holds the whole state. A mark is made where one is needed; with --keep-…
    the history before it is dropped by a later call, once the mark is old enough. The agent must sleep. The versions of
    its files are kept.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.errors import InvalidInput  # noqa: PLC0415
    from chronicle.ids import IdSource  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415
    from podium.history.fold import fold_agent  # noqa: PLC0415
    from podium.history.retention import Retention  # noqa: PLC0415

    try:
        retention = Retention(keep_turns, keep_days) if (keep_turns, keep_days) != (None, None) else None
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    with opened_journal(home) as store, opened_blobs(home) as blobs:
        address = Address.of(find_agent(store, agent))
        folded = fold_agent(store, blobs, address, retention, IdSource(), SystemClock().now_ms(), dry_run=dry_run)
    if json:
        _write_json(address, folded, retention)
        return
    dropped = folded.dropped
    write_line(f"{_events(dropped)} dropped: {_turns(dropped)}, {dropped.size_bytes} bytes")
    write_line(f"the history of {address} begins at turn {folded.first_turn}")
    if folded.later_mark is not None:
        write_line(f"{_events(folded.later)} can be dropped later: {_turns(folded.later)}, {_when(folded, retention)}")
    say("nothing was changed (--dry-run)" if dry_run else "podium gc frees the blobs that nothing else needs")


def _write_json(address: Address, folded: Folded, retention: Retention | None) -> None:
    later = None
    if folded.later_mark is not None:
        from_turn, from_ms = _ripe(folded, retention)
        later = {**_counts(folded.later), "from_turn": from_turn, "from_ms": from_ms}
    write_json(
        {
            "agent": str(address),
            "version": folded.head.seq,
            "turn": folded.head.turn,
            "marked": folded.marked,
            "dropped": _counts(folded.dropped),
            "first_turn": folded.first_turn,
            "later": later,
        }
    )


def _counts(dropped: Dropped) -> dict[str, Any]:
    return {"events": dropped.events, "turns": dropped.turns, "bytes": dropped.size_bytes}


def _events(dropped: Dropped) -> str:
    return "1 event" if dropped.events == 1 else f"{dropped.events} events"


def _turns(dropped: Dropped) -> str:
    return "1 turn" if dropped.turns == 1 else f"{dropped.turns} turns"


def _when(folded: Folded, retention: Retention | None) -> str:
    from_turn, from_ms = _ripe(folded, retention)
    when = [f"turn {from_turn}"] if from_turn is not None else []
    when.extend([iso(from_ms)] if from_ms is not None else [])
    return f"from {' and '.join(when)} on"


def _ripe(folded: Folded, retention: Retention | None) -> tuple[int | None, int | None]:
    """Return the turn and the time from which the history before the newest mark can be dropped."""
    mark = folded.later_mark
    assert mark is not None
    assert retention is not None  # Without retention everything was dropped.
    return retention.expiry(mark)
