"""Administration of an agent's inbox: list pending, paused and parked messages, retry a parked one, drop one for good.

Use cases over the journal's port; time and ids are arguments. Dropping is recorded as ``turn.cancelled``. It is for
sleeping agents; the activation of an awake one cancels messages itself
(:meth:`podium.turn.activation.Activation.cancel`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from chronicle.errors import BranchVersionConflict, NotFound, StaleEpoch
from chronicle.journal.payloads import payload_of
from chronicle.journal.records import MessageStatus
from podium.address import label
from podium.errors import RunNotPaused
from podium.events import TURN_FAILED
from podium.history.branching import agent_awake, sleeping_lease
from podium.turn.journal.commit import Cancellation, NextCommit, cancel_commit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.ports.inbox import InboxRecords
    from chronicle.journal.records import InboxMessage, Session, StoredStep
    from podium.events import ErrorInfo, TurnFailed

__all__ = [
    "InboxEntry",
    "drop_message",
    "inbox_entries",
    "is_open",
    "list_inbox",
    "message_of",
    "open_messages",
    "retry_message",
    "waiting_messages",
]


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """A pending or parked message."""

    message: InboxMessage
    error: ErrorInfo | None
    """The error of its last failed attempt; ``None`` before the first one."""
    steps: Sequence[StoredStep] = ()
    """The steps that its attempts ended, in order."""


def list_inbox(store: JournalStore, blobs: BlobReader, session: Session) -> Sequence[InboxEntry]:
    """Return an agent's pending and parked messages, by position."""
    return inbox_entries(store, blobs, session, open_messages(store, session))


def open_messages(store: InboxRecords, session: Session) -> Sequence[InboxMessage]:
    """Return the records of an agent's pending and parked messages, by position."""
    found = [
        message
        for status in (MessageStatus.PENDING, MessageStatus.PAUSED, MessageStatus.PARKED)
        for message in store.messages(session.session_id, status)
    ]
    return sorted(found, key=lambda message: message.position)


def waiting_messages(store: JournalStore, session: Session) -> Sequence[InboxMessage]:
    """Return the messages of an agent that are to be handled, by position: a paused one, and the pending ones."""
    paused = store.paused_message(session.session_id)
    if paused is None:
        return store.pending(session.session_id)
    return sorted(
        [paused, *store.messages(session.session_id, MessageStatus.PENDING)], key=lambda message: message.position
    )


def inbox_entries(
    store: JournalStore, blobs: BlobReader, session: Session, messages: Sequence[InboxMessage]
) -> Sequence[InboxEntry]:
    """Return pending and parked messages of an agent with what their attempts left, in the order given."""
    attempted = {message.message_id for message in messages if message.attempts}
    errors = _last_errors(store, blobs, session, attempted) if attempted else {}
    steps: dict[MessageId, list[StoredStep]] = {}
    for step in store.steps_of_session(session.session_id) if messages else ():
        steps.setdefault(step.message_id, []).append(step)
    return [
        InboxEntry(message, errors.get(message.message_id), steps.get(message.message_id, ())) for message in messages
    ]


def message_of(store: InboxRecords, session: Session, message_id: MessageId) -> InboxMessage:
    """Return a message of an agent's inbox, whatever its status.

    Raises:
        NotFound: the agent never got it.
    """
    with suppress(NotFound):  # what another agent got is answered as what nobody got
        message = store.message(message_id)
        if message.session_id == session.session_id:
            return message
    raise NotFound(f"no message {message_id} in the inbox of {label(session)}")


def is_open(message: InboxMessage) -> bool:
    """Return whether a message can still be dropped: it is pending or parked.

    Raises:
        NotFound: it was handled already.
    """
    if message.status is MessageStatus.CONSUMED:
        raise NotFound(f"message {message.message_id} was handled already")
    return message.status.is_in_inbox


def retry_message(
    store: JournalStore, session: Session, message_id: MessageId, now_ms: int, *, drop_steps: bool = False
) -> None:
    """Make a parked message pending again, at its position; a pending one stays in its place. Durable on return.

    Args:
        drop_steps: drop the steps that its attempts ended, so that the next one begins anew.

    Raises:
        NotFound: the agent never got it, or it was handled or cancelled.
        RunNotPaused: its turn is paused: it is answered, or dropped.
        AgentAwake: its steps are to be dropped, and the agent, which is awake, may be handling it; nothing was written.
    """
    status = message_of(store, session, message_id).status
    if status is MessageStatus.PAUSED:
        raise RunNotPaused(f"message {message_id} is paused, and goes on with what it waits for: answer or drop it")
    if status is not MessageStatus.PENDING:
        if drop_steps:
            store.drop_steps(message_id)
        store.retry_message(session.session_id, message_id)
    elif drop_steps:
        with sleeping_lease(store, session, now_ms):
            store.drop_steps(message_id)


def drop_message(store: JournalStore, session: Session, message_id: MessageId, ids: IdSource, now_ms: int) -> bool:
    """Drop a pending or parked message of a sleeping agent. Durable on return.

    Returns:
        whether this call dropped it; ``False`` if it was cancelled before.

    Raises:
        NotFound: the agent never got it, or handled it already.
        AgentAwake: the agent is awake, or was woken meanwhile; nothing was written.
    """
    if not is_open(message_of(store, session, message_id)):  # before an epoch is used
        return False
    with sleeping_lease(store, session, now_ms) as lease:
        message = message_of(store, session, message_id)
        if not is_open(message):
            return False
        next_commit = NextCommit(session, store.head(session.main_branch_id), lease.epoch, ids, now_ms)
        commit = cancel_commit(next_commit, message, Cancellation())
        try:
            store.commit(commit)
        except (StaleEpoch, BranchVersionConflict) as error:
            raise agent_awake(label(session), "was woken at this moment") from error
    return True


def _last_errors(
    store: EventRecords, blobs: BlobReader, session: Session, message_ids: AbstractSet[MessageId]
) -> dict[str, ErrorInfo]:
    """Return the errors of the last failed attempts of messages, by id."""
    errors: dict[str, ErrorInfo] = {}
    for event in store.events(session.main_branch_id, types=(TURN_FAILED,)):
        if event.correlation_id is not None and event.correlation_id in message_ids and not event.erased:
            errors[event.correlation_id] = cast("TurnFailed", payload_of(event, blobs))["error"]
    return errors
