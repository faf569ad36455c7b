"""``podium rewind``: returning an agent to an earlier turn."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import (
    DEFAULT_HOME,
    AgentArgument,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    UrlOption,
)
from coordinator.cli.service_call import call_service
from coordinator.cli.stores import opened_blobs, opened_journal
from coordinator.cli.views.events import parts_text
from coordinator.cli.views.files import show_file_changes, show_patch
from podium.events import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.trees.tree_diff import Change
    from coordinator.operations.branches import Rewinding
    from podium.address import Address
    from podium.events import Part
    from podium.history.branching import Rewind

__all__ = ["rewind"]

_MAX_SHOWN: Final = 20
"""Limit of state changes shown as text: a rewind of a long list has one for each of its items."""


class _Restored(StrEnum):
    """A part to restore; Typer reads lists of enumerations, and none of literals."""

    STATE = "state"
    FILES = "files"
    TRANSCRIPT = "transcript"


def rewind(
    agent: AgentArgument,
    turn: Annotated[int, typer.Argument(metavar="TURN", min=0, help="The turn to return to; 0 is its creation.")],
    *,
    only: Annotated[
        list[_Restored] | None,
        typer.Option("--only", help="Rewind only the state, the files or the transcript; can be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Return an agent to an earlier turn.

    No history is lost: a rewind is a new turn at the end of the history, and a rewind to the turn before it undoes it.
    An agent that is awake is put to sleep for it, after its current turn.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.rewind(Gateway(url, api_key), agent, turn, only or (), dry_run=dry_run, json=json)
        return
    from podium.address import Address  # noqa: PLC0415  slow to import, and --help needs none
    from podium.history.branching import plan_rewind  # noqa: PLC0415

    with opened_journal(home) as store, opened_blobs(home) as blobs:
        address = Address.of(find_agent(store, agent))
        made = None
        parts = tuple(part for part in PARTS if not only or part in only)
        if dry_run:
            plan = plan_rewind(store, blobs, address, turn, parts)
        else:
            done = _rewind(home, store, blobs, address, turn, parts)
            plan, made = done.plan, done.made
        files = _files(blobs, plan)
    if json:
        _write_json(plan, files, made)
        return
    _write_text(plan, files)
    if dry_run:
        say("nothing was changed (--dry-run)")
    elif made is None:
        say(f"{address} is already as after turn {turn}; nothing was changed")
    else:
        say(
            f"{address} is at turn {made}, {parts_text(only)} as after turn {turn}; "
            f"podium rewind {address} {plan.now.turn} undoes it"
        )


def _rewind(
    home: Path, store: JournalStore, blobs: BlobStore, address: Address, turn: int, only: Sequence[Part]
) -> Rewinding:
    """Rewind an agent: here if it sleeps, else in its service."""
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.ids import IdSource  # noqa: PLC0415
    from coordinator.operations.branches import rewind as rewind_here  # noqa: PLC0415
    from coordinator.operations.branches import rewound_by_service  # noqa: PLC0415
    from podium.errors import AgentAwake  # noqa: PLC0415

    try:
        return rewind_here(store, blobs, address, turn, only, IdSource(), SystemClock().now_ms())
    except AgentAwake:
        waiting = f"waiting for {address} to end its turn"
        done = call_service(home, waiting, lambda client: client.rewind(str(address), turn, only))
        if done is None:
            raise
        return rewound_by_service(store, blobs, address, turn, only, done)


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
    from chronicle.workspace.trees.tree_diff import change_object  # noqa: PLC0415

    if plan.patch:
        write_line("state")
        show_patch(plan.patch, _MAX_SHOWN)
    if files:
        write_line("files")
        show_file_changes([change_object(change) for change in files])
