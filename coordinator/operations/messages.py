"""An agent's messages: the status of one, and its answer; those that wait or are parked; retrying and dropping them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.canonical import decode
from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus
from coordinator.operations import objects
from coordinator.operations.answers import answer_of
from coordinator.operations.cursors import place_after, rest_of
from coordinator.operations.errors import MessageNotAnswered
from podium.agent_record import find_session
from podium.history.step_record import view
from podium.messages.inbox import drop_message, inbox_entries, message_of, open_messages, retry_message
from podium.turn.journal.frames import settled_frames

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from podium.address import Address
    from podium.messages.inbox import InboxEntry

__all__ = ["drop", "inbox_object", "inbox_page", "message_object", "receipt", "retry"]


def receipt(store: JournalStore, address: Address, message_id: str) -> objects.Receipt:
    """Return the receipt of a message, with the messages that are ahead of it now.

    Raises:
        UnknownAgent: there is no such agent.
        NotFound: the agent never got the message, or its record was pruned.
    """
    message = message_of(store, find_session(store, address), MessageId(message_id))
    before = store.waiting_before(message.message_id)
    return objects.Receipt(message_id=message_id, agent=address.name, position=message.position, before=before)


def message_object(store: JournalStore, blobs: BlobReader, address: Address, message_id: str) -> objects.Message:
    """Return a message with its status, and its answer or its error.

    Raises:
        UnknownAgent: there is no such agent.
        NotFound: the agent never got the message, or its record was pruned.
    """
    session = find_session(store, address)
    message = message_of(store, session, MessageId(message_id))
    answer: objects.Answer | None = None
    error: objects.MessageError | None = None
    if message.status.is_settled:
        frames = settled_frames(store, blobs, session.main_branch_id, message.message_id)
        try:
            answer = answer_of(address.name, message_id, frames)
        except MessageNotAnswered as failure:
            error = objects.MessageError(type=failure.error_type, message=failure.error_message)
    elif message.attempts:
        (entry,) = inbox_entries(store, blobs, session, [message])
        error = _error_of(entry)
    return objects.Message(
        message_id=message.message_id,
        agent=address.name,
        position=message.position,
        status=message.status.value,
        attempts=message.attempts,
        admitted_at=message.admitted_ms,
        answer=answer,
        error=error,
    )


def inbox_page(
    store: JournalStore, blobs: BlobReader, address: Address, limit: int, cursor: str | None
) -> objects.Page[objects.InboxMessage]:
    """Return a page of an agent's pending and parked messages, by position.

    Raises:
        UnknownAgent: there is no such agent.
        InvalidCursor: it is of another list.
    """
    of = [str(address)]
    after = place_after(cursor, "inbox", of, 0)
    session = find_session(store, address)
    found = [message for message in open_messages(store, session) if message.position > after]
    return objects.Page(
        items=[inbox_object(entry) for entry in inbox_entries(store, blobs, session, found[:limit])],
        **rest_of(found, limit, "inbox", of, lambda message: message.position),
    )


def inbox_object(entry: InboxEntry) -> objects.InboxMessage:
    """Return a pending or parked message as a JSON object."""
    message = entry.message
    body: Any = decode(message.body) if message.body is not None else None
    return objects.InboxMessage(
        message_id=message.message_id,
        position=message.position,
        status=message.status.value,
        attempts=message.attempts,
        admitted_at=message.admitted_ms,
        sender=message.sender,
        message=body,
        error=_error_of(entry),
        steps=tuple(objects.Step(**view(step)) for step in entry.steps),
    )


def retry(store: JournalStore, address: Address, message_id: str, now_ms: int, *, drop_steps: bool = False) -> None:
    """Make a parked message pending again, durably; a pending one stays in its place. The caller wakes the agent.

    Args:
        drop_steps: the next attempt runs all steps anew.

    Raises:
        UnknownAgent: there is no such agent.
        NotFound: it never got the message, or the message was handled or cancelled.
        AgentAwake: its steps are to be dropped, and it is pending at an agent that is awake.
    """
    retry_message(store, find_session(store, address), MessageId(message_id), now_ms, drop_steps=drop_steps)


def drop(store: JournalStore, address: Address, message_id: str, ids: IdSource, now_ms: int) -> bool:
    """Remove a pending, paused or parked message of a sleeping agent, durably.

    Returns:
        whether it was paused, and held up those behind it.

    Raises:
        UnknownAgent: there is no such agent.
        NotFound: it never got the message, or handled it already.
        AgentAwake: the agent is awake; its activation cancels the message.
    """
    session = find_session(store, address)
    was_paused = message_of(store, session, MessageId(message_id)).status is MessageStatus.PAUSED
    drop_message(store, session, MessageId(message_id), ids, now_ms)
    return was_paused


def _error_of(entry: InboxEntry) -> objects.MessageError | None:
    return objects.MessageError(**entry.error) if entry.error is not None else None
