"""``podium rewind``: an agent as it was after an earlier turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, DebugOption, HomeOption, JsonOption
from coordinator.cli.record import find_agent, opened_blobs, opened_journal
from coordinator.cli.service import ask_service

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.trees.tree_diff import Change
    from podium.address import Address
    from podium.events import Part
    from podium.history.branching import Rewind

__all__ = ["rewind"]

_MOST_SHOWN: Final = 20
"""Changes of the state that are shown as text: going back in a long list has one for each of its items."""


def rewind(
    agent: AgentArgument,
    turn: Annotated[int, typer.Argument(metavar="TURN", min=0, help="The turn to go back to; 0 is its creation.")],
    *,
    only: Annotated[
        Literal["state", "files"] | None, typer.Option("--only", help="Take back only the state, or only the files.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Take an agent back to an earlier turn.

    Nothing is forgotten: going back is a turn of its own, after those that there are, and going to a later turn than
    that undoes it. An agent that is awake goes to sleep for it, after the turn that it is in.
    """
    from podium.address import Address  # noqa: PLC0415  slow to import, and --help needs none
    from podium.history.branching import plan_rewind  # noqa: PLC0415

    with opened_journal(home) as store, opened_blobs(home) as blobs:
        address = Address.parse(find_agent(store, agent).name)
        made = None
        if dry_run:
            plan = plan_rewind(store, blobs, address, turn, only)
        else:
            plan, made = _rewind(home, store, blobs, address, turn, only)
        files = _files(blobs, plan)
    if json:
        _write_json(plan, files, made)
        return
    _write_text(plan, files)
    if dry_run:
        say("nothing was changed (--dry-run)")
    elif made is None:
        say(f"{address} is as it was after turn {turn} already; nothing was changed")
    else:
        say(
            f"{address} is at turn {made}, {only or 'state and files'} as after turn {turn}; "
            f"podium rewind {address} {plan.now.turn} undoes it"
        )


def _rewind(
    home: Path, store: JournalStore, blobs: BlobStore, address: Address, turn: int, only: Part | None
) -> tuple[Rewind, int | None]:
    """Take an agent back, here if it sleeps, else by asking its service; return what was done, and the new turn."""
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.ids import IdSource  # noqa: PLC0415
    from podium.errors import AgentAwake  # noqa: PLC0415
    from podium.history.branching import plan_rewind, rewind_agent  # noqa: PLC0415

    try:
        plan, head = rewind_agent(store, blobs, address, turn, only, IdSource(), SystemClock().now_ms())
    except AgentAwake:
        waiting = f"waiting for {address} to end its turn"
        done = ask_service(home, waiting, lambda client: client.rewind(str(address), turn, only))
        if done is None:
            raise
        before, made = done
        return plan_rewind(store, blobs, address, turn, only, at=before), made
    return plan, head.turn if head is not None else None


def _files(blobs: BlobReader, plan: Rewind) -> list[Change]:
    from chronicle.workspace.trees.tree import EMPTY  # noqa: PLC0415
    from chronicle.workspace.trees.tree_diff import changes  # noqa: PLC0415

    now, then = (ref.tree_id if ref is not None else EMPTY for ref in (plan.now.tree, plan.tree))
    return changes(blobs, now, then)


def _write_json(plan: Rewind, files: list[Change], made: int | None) -> None:
    from chronicle.workspace.trees.tree_diff import change_object  # noqa: PLC0415

    write_json(
        {
            "agent": str(plan.now.address),
            "from": plan.now.turn,
            "to": plan.then.turn,
            "only": plan.only,
            "turn": made,
            "state": plan.patch,
            "files": [change_object(change) for change in files],
        }
    )


def _write_text(plan: Rewind, files: list[Change]) -> None:
    from coordinator.cli.changes import write_files, write_state  # noqa: PLC0415

    if plan.patch:
        write_line("state")
        write_state(plan.patch, _MOST_SHOWN)
    if files:
        write_line("files")
        write_files(files)
