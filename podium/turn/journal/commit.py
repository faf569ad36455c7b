"""The commit of a turn: the transaction that makes a turn durable, or that records why it was rolled back.

Pure: no I/O; ids and time are arguments. Payloads that go out of line are put into ``large``; the caller makes them
durable before it commits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from chronicle.canonical import decode
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, Outcome, Settlement, Snapshot
from podium.events import (
    AGENT_CREATED,
    TURN_CANCELLED,
    TURN_COMMITTED,
    TURN_FAILED,
    USER_MESSAGE,
)
from podium.messages.headers import Headers
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BlobId, EventId, IdSource
    from chronicle.journal.records import DropReminder, Head, InboxMessage, OutboxMessage, Session, SetReminder
    from chronicle.workspace.port import TreeRef
    from podium.events import Cause, ErrorInfo, FileChange

__all__ = [
    "Cancellation",
    "CompletedTurn",
    "TurnResult",
    "body_of",
    "cancel_commit",
    "created_commit",
    "failure_commit",
    "turn_commit",
    "user_message",
]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn, ready for its commit."""

    turn: int
    cause: Cause
    message: InboxMessage | None
    steered: Sequence[InboxMessage]
    """Messages that steered it."""
    drafts: Sequence[Draft]
    entity_type: str
    schema_version: int
    patch: Sequence[JsonObject]
    tree: TreeRef | None
    outbox: Sequence[OutboxMessage]
    """Messages to other agents, delivered after the commit."""
    snapshot: bytes | None
    """The body of the snapshot that the commit carries."""
    config: JsonObject | None = None
    """The configuration that the agent has seen from this turn on; ``None`` if it is that of the turn before."""
    files: Sequence[FileChange] = ()
    """The files that a client changed."""
    steps: JsonObject | None = None
    """The number and digest of its steps; ``None`` without any."""
    reminders: Sequence[SetReminder | DropReminder] = ()
    """The reminders that the turn sets and drops."""


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """A hook that returned; its turn is committed."""

    answer: Any
    """The hook's return value."""
    patch: list[JsonObject]
    """The state's change."""
    steered: Sequence[InboxMessage]
    """Messages that steered it; its commit consumed them."""
    results: Mapping[str, Json]
    """The results of its messages (`AgentContext.reply`), by message id."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Why a message was cancelled."""

    policy: BusyPolicy | None = None
    """The busy policy of the message that preempted it; ``None`` if its own sender cancelled it."""
    by: str | None = None
    """The id of the message that preempted it."""
    expired: bool = False
    """Whether it is a question whose asker has stopped waiting."""

    @property
    def error(self) -> ErrorInfo:
        """The error that the client gets."""
        if self.expired:
            return {"type": "Cancelled", "message": "its asker stopped waiting for an answer"}
        text = f"message {self.by} took its place ({self.policy})" if self.by else "its sender took it back"
        return {"type": "Cancelled", "message": text}


def user_message(message: InboxMessage) -> JsonObject:
    """Return the payload of a message's ``user_message`` event."""
    reminder = Headers.from_json(message.headers).reminder
    return {
        "message_id": message.message_id,
        "position": message.position,
        "sender": message.sender,
        "message": decode(message.body or b"{}"),
        **({"reminder": reminder.to_json()} if reminder is not None else {}),
    }


def body_of(message: InboxMessage) -> dict[str, Any]:
    """Return the body of a message, as hooks get it."""
    return cast("dict[str, Any]", decode(message.body or b"{}"))


def created_commit(
    session: Session,
    expected: Head,
    payload: JsonObject,
    epoch: int,
    event_id: EventId,
    now_ms: int,
    large: MutableMapping[BlobId, bytes],
) -> Commit:
    """Return an agent's first commit.

    Args:
        large: gets the payloads that go out of line; they must be durable before the commit.
    """
    draft = Draft(event_id, AGENT_CREATED, payload, 0, now_ms)
    return Commit(session.session_id, expected, seal(expected, [draft], large), epoch)


def turn_commit(
    session: Session,
    expected: Head,
    result: TurnResult,
    epoch: int,
    ids: IdSource,
    now_ms: int,
    large: MutableMapping[BlobId, bytes],
) -> Commit:
    """Return the commit of a successful turn: message, replies and ``turn.committed``, in this order.

    Args:
        large: gets the payloads that go out of line; they must be durable before the commit.
    """
    message = result.message
    message_id = message.message_id if message else None
    consumed = [*([message] if message else ()), *result.steered]
    drafts = list(result.drafts)
    drafts.append(
        Draft(
            ids.event(now_ms),
            TURN_COMMITTED,
            {
                "cause": result.cause,
                "state": {
                    "entity_type": result.entity_type,
                    "version": result.schema_version,
                    "patch": cast("list[Json]", list(result.patch)),
                },
                **_tree_keys(result.tree),
                "consumed": [each.message_id for each in consumed],
                "sent": [sent.message_id for sent in result.outbox],
                **({"sent_to": [sent.target for sent in result.outbox]} if result.outbox else {}),
                "epoch": epoch,
                **({"config": result.config} if result.config is not None else {}),
                **({"files": cast("list[Json]", list(result.files))} if result.files else {}),
                **({"steps": result.steps} if result.steps is not None else {}),
            },
            result.turn,
            now_ms,
            message_id,
            message_id,
        )
    )
    events = seal(expected, drafts, large)
    return Commit(
        session.session_id,
        expected,
        events,
        epoch,
        settled=tuple(Settlement(each.message_id, Outcome.CONSUMED) for each in consumed),
        outbox=tuple(result.outbox),
        snapshot=Snapshot(expected.branch_id, events[-1].seq, result.snapshot) if result.snapshot else None,
        reminders=tuple(result.reminders),
    )


def failure_commit(
    session: Session,
    expected: Head,
    outcome: Outcome,
    error: ErrorInfo,
    hook: str | None,
    message: InboxMessage | None,
    tree: TreeRef | None,
    epoch: int,
    event_id: EventId,
    now_ms: int,
) -> Commit:
    """Return the commit that records a failed attempt; its payload always fits in line.

    Args:
        outcome: ``FAILED`` to retry, ``PARKED`` after the last attempt.
        hook: the name of the hook that failed; ``None`` if unknown.
        message: the message that was being handled; ``None`` for another hook or for changes between turns.
        tree: the workspace as the attempt left it.
    """
    message_id = message.message_id if message else None
    payload: JsonObject = {
        "error": {"type": error["type"], "message": error["message"]},
        "hook": hook,
        "attempt": message.attempts + 1 if message else 1,
        "message_id": message_id,
        "parked": outcome is Outcome.PARKED,
        **_tree_keys(tree),
        "epoch": epoch,
    }
    draft = Draft(event_id, TURN_FAILED, payload, expected.turn, now_ms, message_id, message_id)
    return Commit(
        session.session_id,
        expected,
        seal(expected, [draft]),
        epoch,
        settled=(Settlement(message.message_id, outcome),) if message else (),
    )


def cancel_commit(
    session: Session,
    expected: Head,
    message: InboxMessage,
    cancellation: Cancellation,
    said: Sequence[Draft],
    tree: TreeRef | None,
    epoch: int,
    ids: IdSource,
    now_ms: int,
    large: MutableMapping[BlobId, bytes],
) -> Commit:
    """Return the commit that records the cancellation of a message.

    Args:
        said: the message's event and its replies so far, recorded only if it was interrupted; empty if its turn had
            not started.
        tree: the workspace as its turn left it; ``None`` if its turn had not started.
    """
    message_id, turn = message.message_id, expected.turn
    drafts: list[Draft] = []
    if cancellation.policy is BusyPolicy.INTERRUPT:
        drafts.extend(replace(draft, turn=turn) for draft in said)
        if not said:
            event_id = ids.event(now_ms)
            drafts.append(Draft(event_id, USER_MESSAGE, user_message(message), turn, now_ms, message_id, message_id))
    payload: JsonObject = {
        "message_id": message_id,
        "policy": cancellation.policy,
        "by": cancellation.by,
        **_tree_keys(tree),
        "epoch": epoch,
    }
    drafts.append(Draft(ids.event(now_ms), TURN_CANCELLED, payload, turn, now_ms, message_id, message_id))
    return Commit(
        session.session_id,
        expected,
        seal(expected, drafts, large),
        epoch,
        settled=(Settlement(message_id, Outcome.CANCELLED),),
    )


def _tree_keys(tree: TreeRef | None) -> dict[str, Json]:
    return {"tree_id": tree.tree_id if tree else None, "oplog_id": tree.oplog_id if tree else None}
