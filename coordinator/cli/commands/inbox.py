"""``podium inbox``, ``retry`` and ``drop``: pending and parked messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import json_text, say, write_json, write_line
from chronicle.cli_kit.times import ago
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, DebugOption, HomeOption, JsonOption
from coordinator.cli.service_call import call_service
from coordinator.cli.stores import opened_blobs, opened_journal, read_journal
from coordinator.cli.terminal import table
from podium.address import label

if TYPE_CHECKING:
    from chronicle.ids import MessageId
    from podium.messages.inbox import InboxEntry

__all__ = ["drop", "inbox", "retry", "text_of"]

MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="As podium inbox shows it.")]


def inbox(
    agent: AgentArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Show the pending and the parked messages of an agent.

    Pending messages wait; the first one may be in progress. Parked ones failed their last attempt: podium retry makes
    them pending again, podium drop removes a message.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from podium.messages.inbox import list_inbox  # noqa: PLC0415

    with read_journal(home) as store, opened_blobs(home) as blobs:
        session = find_agent(store, agent)
        entries = list_inbox(store, blobs, session)
    if json:
        write_json({"agent": label(session), "messages": [_object(entry) for entry in entries]})
        return
    if not entries:
        say(f"no message waits for {label(session)}, and none is parked")
        return
    now_ms = SystemClock().now_ms()
    headings = ("POSITION", "MESSAGE", "STATUS", "TRIES", "CAME", "FROM", "TEXT", "LAST ERROR")
    table(headings, [_row(entry, now_ms) for entry in entries])


def retry(
    agent: AgentArgument,
    message_id: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE_ID]", help="Only this one; by default all parked messages.")
    ] = None,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Make parked messages pending again, and wake the agent.

    They return to their places in the inbox, with their attempts reset to 0. A message that waits because its agent
    could not be woken stays in its place. Messages are handled at once if a running service knows the agent's code,
    else at the next podium run for the agent.
    """
    from chronicle.ids import MessageId  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.journal.records import MessageStatus  # noqa: PLC0415
    from podium.messages.inbox import retry_message  # noqa: PLC0415

    with opened_journal(home) as store:
        session = find_agent(store, agent)
        parked = [message.message_id for message in store.messages(session.session_id, MessageStatus.PARKED)]
        chosen = parked if message_id is None else [MessageId(message_id)]
        for chosen_id in chosen:
            retry_message(store, session, chosen_id)
        waiting = len(store.messages(session.session_id, MessageStatus.PENDING))
    looks = bool(waiting and call_service(home, f"waking {label(session)}", lambda client: client.poke(label(session))))
    if json:
        write_json({"agent": label(session), "retried": chosen, "now": looks})
        return
    for chosen_id in chosen:
        write_line(chosen_id)
    if not waiting:
        say(f"no message waits for {label(session)}, and none is parked")
    elif not looks:
        say(f"handled at the next podium run for {label(session)}")


def drop(
    agent: AgentArgument,
    message_id: MessageArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Remove a pending or parked message permanently.

    A message that is being handled is cancelled. The removal is recorded as turn.cancelled. The text of the message is
    not kept.
    """
    from chronicle.ids import MessageId  # noqa: PLC0415  slow to import, and --help needs none

    dropped = _drop(home, agent, MessageId(message_id))
    if json:
        write_json(dropped)
    else:
        write_line(f"{dropped['message_id']} is dropped")


def _drop(home: Any, agent: str, message_id: MessageId) -> dict[str, Any]:
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.ids import IdSource  # noqa: PLC0415
    from podium.errors import AgentAwake  # noqa: PLC0415
    from podium.messages.inbox import drop_message  # noqa: PLC0415

    with opened_journal(home) as store:
        session = find_agent(store, agent)
        try:
            drop_message(store, session, message_id, IdSource(), SystemClock().now_ms())
        except AgentAwake:

            async def cancel(client: Any) -> bool:
                await client.cancel(label(session), message_id)
                return True

            if not call_service(home, f"asking {label(session)} to cancel it", cancel):
                raise
    return {"agent": label(session), "message_id": message_id}


def text_of(body: bytes | None) -> str:
    """Return the first line of a text message, the JSON of any other; empty if its body is not kept."""
    from chronicle.canonical import decode  # noqa: PLC0415

    if body is None:
        return ""
    match decode(body):
        case {"text": str(text), **rest} if not rest:
            first, *more = text.strip().splitlines() or [""]
            return f"{first} …" if more else first
        case message:
            return json_text(message)


def _row(entry: InboxEntry, now_ms: int) -> tuple[str, ...]:
    message, error = entry.message, entry.error
    return (
        str(message.position),
        message.message_id,
        message.status.value,
        str(message.attempts),
        ago(now_ms - message.admitted_ms),
        message.sender or "-",
        text_of(message.body),
        f"{error['type']}: {error['message']}" if error else "-",
    )


def _object(entry: InboxEntry) -> dict[str, Any]:
    from chronicle.canonical import decode  # noqa: PLC0415

    message = entry.message
    return {
        "message_id": message.message_id,
        "position": message.position,
        "status": message.status.value,
        "attempts": message.attempts,
        "admitted": message.admitted_ms,
        "sender": message.sender,
        "message": decode(message.body) if message.body is not None else None,
        "error": entry.error,
    }
