"""``podium diff``: the differences between two moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import one_line, say, write_json, write_line, write_lines
from coordinator.cli.lookup import split_moment
from coordinator.cli.options import (
    DEFAULT_HOME,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    MomentArgument,
    UrlOption,
)
from coordinator.cli.stores import opened_blobs, read_journal
from coordinator.cli.views.events import gist
from coordinator.cli.views.files import show_patch

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event
    from podium.address import Address
    from podium.agent_record import AgentRecord
    from podium.history.compare import Comparison

__all__ = ["diff"]


def diff(
    moment: MomentArgument,
    other: Annotated[
        str | None,
        typer.Argument(metavar="[AGENT[@TURN]]", help="What to compare it with; the same agent now, by default."),
    ] = None,
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Show the differences between two moments: in state, files and transcript.

    The two may be turns of one agent, or an agent and its fork. Changes of the state are an RFC 6902 patch, those of
    files a unified diff.
    """
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.diff(Gateway(url, api_key), moment, other, json=json)
        return
    from podium.history.compare import compare  # noqa: PLC0415  slow to import, and --help needs none

    with read_journal(home) as store, opened_blobs(home) as blobs:
        before = _moment(store, moment)
        after = _moment(store, other) if other is not None else (before[0], None)
        found = compare(store, blobs, before, after)
        if json:
            write_json(_object(found, blobs))
        else:
            _write(found, blobs)


def _moment(store: JournalStore, text: str) -> tuple[Address, int | None]:
    from podium.address import Address  # noqa: PLC0415

    session, turn = split_moment(store, text)
    return Address.of(session), turn


def _object(found: Comparison, blobs: BlobReader) -> dict[str, Any]:
    from coordinator.operations.history import difference_object  # noqa: PLC0415  slow to import

    moments = {
        side: {"agent": str(record.address), "turn": record.turn, "version": record.version_seq}
        for side, record in (("before", found.before), ("after", found.after))
    }
    return {**difference_object(found, blobs).as_json(), **moments}


def _write(found: Comparison, blobs: BlobReader) -> None:
    from chronicle.workspace.trees.tree_diff import render  # noqa: PLC0415

    say(f"{_name(found.before)} -> {_name(found.after)}")
    if found.patch:
        write_line("state")
        show_patch(found.patch)
    if found.files:
        write_line("files")
        write_lines(render(blobs, found.files), write_line)
    if found.removed or found.added:
        write_line("transcript")
        for sign, events in (("-", found.removed), ("+", found.added)):
            for event in events:
                write_line(f"{sign} {_line(event, blobs)}")
    if not (found.patch or found.files or found.removed or found.added):
        say("nothing differs")


def _name(record: AgentRecord) -> str:
    return f"{record.address}@{record.turn}"


def _line(event: Event, blobs: BlobReader) -> str:
    from chronicle.journal.payloads import payload_of  # noqa: PLC0415

    who = "user" if event.type == "user_message" else "agent"
    payload = None if event.erased else payload_of(event, blobs)
    return f"turn {event.turn} {who}: {one_line(gist(event.type, payload))}"
