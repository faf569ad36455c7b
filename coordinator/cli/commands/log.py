"""``podium log``: the events of an agent."""

from __future__ import annotations

import shutil
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import json_text, one_line, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.commands.inbox import text_of
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, DebugOption, HomeOption, JsonOption
from coordinator.cli.stores import opened_blobs, read_journal
from coordinator.operations.suggestions import nearest
from podium.events import EVENT_TYPES, TURN_COMMITTED, TURN_FAILED

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event

__all__ = ["gist", "log"]


def log(
    agent: AgentArgument,
    *,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only events after this seq.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="At most so many events.")] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type; can be repeated.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Show an agent's events, oldest first.

    Messages, replies, and turns with their state patches and tree ids; failed attempts with their errors, and with
    their messages while those are kept.
    """
    from chronicle.journal.event_codec import event_view  # noqa: PLC0415

    with read_journal(home) as store, opened_blobs(home) as blobs:
        branch_id = find_agent(store, agent).main_branch_id
        for unknown in sorted(set(types or ()) - EVENT_TYPES):
            _refuse_unless_there(store, branch_id, unknown)
        for event in islice(store.events(branch_id, after_seq=after, types=types or None), limit):
            if json:
                write_json(event_view(event, blobs))
            else:
                _write_text(event, blobs, _said(store, event, blobs))


def _refuse_unless_there(store: JournalStore, branch_id: BranchId, event_type: str) -> None:
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


def _text(store: JournalStore, message_id: str) -> str:
    """Return the text of a message in an inbox; empty if it is not kept, or the message is not delivered yet."""
    from chronicle.errors import NotFound  # noqa: PLC0415
    from chronicle.ids import MessageId  # noqa: PLC0415

    try:
        return text_of(store.message(MessageId(message_id)).body)
    except NotFound:
        return ""


def _payload(event: Event, blobs: BlobReader) -> Any:
    from chronicle.journal.payloads import payload_of  # noqa: PLC0415

    return None if event.erased else payload_of(event, blobs)


def _write_text(event: Event, blobs: BlobReader, said: str) -> None:
    what = f"{gist(event, blobs)} — {said}" if said else gist(event, blobs)
    line = f"{event.seq:>5}  {iso(event.ts)}  turn {event.turn:<4}  {event.type:<17}  {one_line(what)}"
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        line = line if len(line) <= width else line[: width - 1] + "…"
    write_line(line)


def gist(event: Event, blobs: BlobReader) -> str:
    """Return the summary of an event: the text of a message, the patch of a turn, the error of a failure."""
    payload = _payload(event, blobs)
    match event.type, payload:
        case _, None:
            return "(erased)"
        case "user_message", {"sender": sender, "message": message}:
            text = message["text"] if list(message) == ["text"] else None
            said = text if isinstance(text, str) else json_text(message)
            return f"from {sender}: {said}" if sender else said
        case "assistant_message", {"text": str(text), "partial": True}:
            return f"{text} (interrupted)"
        case "assistant_message", {"text": str(text)}:
            return text
        case "artifact.added", {"artifact_id": artifact_id, "name": name, "media_type": kind, "size": size}:
            return f"{name} ({kind}, {size} bytes) {artifact_id}"
        case "message.answered", {"data": data}:
            return json_text(data)
        case "agent.created", {"state": state}:
            return json_text(state)
        case "turn.committed", {"state": {"patch": patch}, "cause": cause}:
            return json_text(patch) if cause == "message" else f"({cause}) {json_text(patch)}"
        case "agent.forked", {"from": {"agent": source, "turn": turn}}:
            return f"continues {source} from turn {turn}"
        case "agent.rewound", {"to": turn, "only": only, "state": {"patch": patch}}:
            parts = " and ".join(only) if isinstance(only, list) else only or "state and files"
            return f"{parts} as after turn {turn}: {json_text(patch)}"
        case "turn.failed", {"error": {"type": kind, "message": message}, "attempt": attempt, "parked": parked}:
            hook = payload.get("hook")  # Not in events of older releases.
            where = "" if hook in (None, "on_message") else f"{hook}: "
            return f"attempt {attempt}{', parked' if parked else ''}: {where}{kind}: {message}"
        case "turn.cancelled", {"message_id": message_id, "policy": str(policy), "by": by}:
            return f"{message_id}: {by} took its place ({policy})"
        case "turn.cancelled", {"message_id": message_id}:
            return f"{message_id}: cancelled"
        case "agent.detached" | "agent.snapshot", {"state": state}:
            return json_text(state)
        case _:
            return json_text(payload)
