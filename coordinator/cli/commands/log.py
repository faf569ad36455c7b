"""``podium log``: the events of an agent."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.lookup import find_agent, is_agent
from coordinator.cli.options import (
    DEFAULT_HOME,
    AgentArgument,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    UrlOption,
)
from coordinator.cli.paging import most, say_later_events
from coordinator.cli.stores import opened_blobs, read_journal
from coordinator.cli.views.events import show_steps, write_event
from coordinator.cli.views.messages import text_of
from coordinator.operations.suggestions import nearest
from podium.events import EVENT_TYPES, TURN_COMMITTED, TURN_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.ports.inbox import InboxRecords
    from chronicle.journal.records import Event

__all__ = ["log"]

_POLL_S: Final = 0.5
"""Interval at which ``--follow`` reads the journal."""


def log(
    agent: AgentArgument,
    *,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only events after this seq.")] = 0,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=0, help="The most events; 100 by default, without --follow."),
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type; can be repeated.")
    ] = None,
    all_events: Annotated[
        bool,
        typer.Option("--all", help="All events, unless --limit says how many; also those that a rewind has hidden."),
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new events, until Ctrl-C.")] = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Show an agent's events, oldest first; not those that a rewind has hidden.

    Messages, replies, and turns with their state patches and tree ids; failed attempts with their errors, and with
    their messages while those are kept. Below them, the steps that ended in the running attempt of a message, or in
    attempts that failed.
    """
    left = None if follow and limit is None else most(limit, everything=all_events)
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.log(
            Gateway(url, api_key),
            agent,
            after=after,
            limit=left,
            types=types or (),
            hidden=all_events,
            follow=follow,
            json=json,
        )
        return
    steps: set[tuple[str, int]] = set()
    while True:
        shown, after, last = _show(home, agent, after, left, types or (), hidden=all_events, json=json)
        left = None if left is None else left - shown
        if last is not None:
            say_later_events(after, last)
        elif not types and left != 0:
            _show_steps(home, agent, steps, json=json)
        if not follow or left == 0:
            return
        time.sleep(_POLL_S)


def _show(
    home: Path, agent: str, after: int, limit: int | None, types: Sequence[str], *, hidden: bool, json: bool
) -> tuple[int, int, int | None]:
    """Show events after a seq.

    Returns:
        their number, the seq of the last one, and that of the agent's last event if the limit left some out.
    """
    from chronicle.journal.event_codec import event_view  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415
    from podium.history.transcript import visible_transcript  # noqa: PLC0415

    shown = 0
    with read_journal(home) as store, opened_blobs(home) as blobs:
        session = find_agent(store, agent)
        branch_id = session.main_branch_id
        for unknown in sorted(set(types) - EVENT_TYPES):
            _refuse_unless_there(store, branch_id, unknown)
        head = store.head(branch_id)
        found = store.events(branch_id, after_seq=after, to_seq=head.seq, types=types or None)
        if not hidden and is_agent(session.name):
            transcript = visible_transcript(store, blobs, Address.of(session), head)
            found = (event for event in found if transcript.has(event.seq))
        found = iter(found)
        for event in islice(found, limit):
            shown, after = shown + 1, event.seq
            if json:
                write_json(event_view(event, blobs))
            else:
                write_event(event_view(event, blobs), _said(store, event, blobs))
        return shown, after, None if next(found, None) is None else head.seq


def _show_steps(home: Path, agent: str, seen: set[tuple[str, int]], *, json: bool) -> None:
    """Show the steps of messages that are not settled, each once."""
    from podium.history.step_record import view  # noqa: PLC0415

    with read_journal(home) as store:
        steps = [view(step) for step in store.steps_of_session(find_agent(store, agent).session_id)]
    show_steps(steps, seen, json=json)


def _refuse_unless_there(store: EventRecords, branch_id: BranchId, event_type: str) -> None:
    """Refuse an event type that this release does not know and of which the agent has no event."""
    from chronicle.errors import InvalidInput  # noqa: PLC0415

    if next(store.events(branch_id, types=(event_type,)), None) is None:
        raise InvalidInput(f"no events of type {event_type!r}; {nearest(event_type, sorted(EVENT_TYPES), most=20)}")


def _said(store: JournalStore, event: Event, blobs: BlobReader) -> str:
    """Return the texts of messages that an event only names: of a failed attempt, or sent to other agents."""
    if event.type == TURN_FAILED and event.correlation_id is not None:
        return _text(store, event.correlation_id)
    if event.type == TURN_COMMITTED and (payload := _payload(event, blobs)) is not None:
        receivers = payload.get("sent_to") or ["another agent"] * len(payload["sent"])
        sent = [(receiver, _text(store, sent)) for receiver, sent in zip(receivers, payload["sent"], strict=True)]
        return "; ".join(f"to {receiver}: {text}" if text else f"to {receiver}" for receiver, text in sent)
    return ""


def _text(store: InboxRecords, message_id: str) -> str:
    """Return the text of a message in an inbox; empty if it is not kept, or the message is not delivered yet."""
    from chronicle.canonical import decode  # noqa: PLC0415
    from chronicle.errors import NotFound  # noqa: PLC0415
    from chronicle.ids import MessageId  # noqa: PLC0415

    try:
        body = store.message(MessageId(message_id)).body
        return text_of(decode(body)) if body is not None else ""
    except NotFound:
        return ""


def _payload(event: Event, blobs: BlobReader) -> Any:
    from chronicle.journal.payloads import payload_of  # noqa: PLC0415

    return None if event.erased else payload_of(event, blobs)
