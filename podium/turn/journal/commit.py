"""The commit of a turn: the transaction that makes a turn durable, or that records why it was rolled back.

Pure: no I/O; ids and time are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from chronicle.canonical import decode, encode
from chronicle.journal.chain import seal
from chronicle.journal.records import (
    Commit,
    Draft,
    DropReminder,
    MessageStatus,
    OutboxMessage,
    Outcome,
    SetReminder,
    Settlement,
    Snapshot,
)
from podium.events import (
    AGENT_CREATED,
    MODEL_CALLED,
    TURN_CANCELLED,
    TURN_COMMITTED,
    TURN_FAILED,
    TURN_PAUSED,
    USER_MESSAGE,
)
from podium.messages.headers import Headers, caller_in, reminder_in
from podium.reminders.expiries import EXPIRY, expiry_body
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BlobId, IdSource, MessageId
    from chronicle.journal.records import Head, InboxMessage, Session
    from chronicle.workspace.port import TreeRef
    from podium.address import Address
    from podium.events import Cause, ErrorInfo, FileChange
    from podium.reminders.delayed import DelayedMessage
    from podium.turn.steps.pausing import Pause

__all__ = [
    "Cancellation",
    "CompletedTurn",
    "FailedAttempt",
    "NextCommit",
    "TurnResult",
    "body_of",
    "cancel_commit",
    "created_commit",
    "failure_commit",
    "pause_commit",
    "turn_commit",
    "user_message",
]


@dataclass(frozen=True, slots=True)
class NextCommit:
    """Where the next commit of a session's main branch goes, and what it is made with."""

    session: Session
    head: Head
    """The head that it follows."""
    epoch: int
    """Of the lease that it is written under."""
    ids: IdSource
    now_ms: int
    """Epoch milliseconds."""
    large: dict[BlobId, bytes] = field(default_factory=dict)
    """Gets the payloads that go out of line; they must be durable before the commit."""

    def of(self, drafts: Sequence[Draft], settled: Sequence[Settlement] = ()) -> Commit:
        """Return the commit of events, which settles messages."""
        events = seal(self.head, drafts, self.large)
        return Commit(self.session.session_id, self.head, events, self.epoch, settled=tuple(settled))

    def draft(self, event_type: str, payload: JsonObject, message_id: MessageId | None, turn: int) -> Draft:
        """Return an event of a turn, the effect of a message."""
        return Draft(self.ids.event(self.now_ms), event_type, payload, turn, self.now_ms, message_id, message_id)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that is rolled back."""

    outcome: Outcome
    """``FAILED`` to retry, ``PARKED`` after the last attempt."""
    error: ErrorInfo
    message: InboxMessage | None
    """The message that was being handled; ``None`` for another hook or for changes between turns."""
    hook: str | None = None
    """The name of the hook that failed; ``None`` if unknown."""
    tree: TreeRef | None = None
    """The workspace as it left it."""


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
    delayed: Sequence[DelayedMessage] = ()
    """Messages to other agents that are sent later."""


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
    given_up: bool = False
    """Whether a person gave it up, as its recorded steps did not fit any more."""

    @property
    def error(self) -> ErrorInfo:
        """The error that the client gets."""
        if self.expired:
            return {"type": "Cancelled", "message": "its asker stopped waiting for an answer"}
        if self.given_up:
            return {"type": "Cancelled", "message": "it was given up, as its steps did not fit any more"}
        text = f"message {self.by} took its place ({self.policy})" if self.by else "its sender took it back"
        return {"type": "Cancelled", "message": text}


def user_message(message: InboxMessage) -> JsonObject:
    """Return the payload of a message's ``user_message`` event."""
    reminder, caller = reminder_in(message.headers), caller_in(message.headers)
    return {
        "message_id": message.message_id,
        "position": message.position,
        "sender": message.sender,
        "message": decode(message.body or b"{}"),
        **({"reminder": reminder.to_json()} if reminder is not None else {}),
        **({"caller": caller.to_json()} if caller is not None else {}),
    }


def body_of(message: InboxMessage) -> dict[str, Any]:
    """Return the body of a message, as hooks get it."""
    body: Any = decode(message.body or b"{}")
    return body  # type: ignore[no-any-return]  # admission takes objects only


def created_commit(next_commit: NextCommit, payload: JsonObject) -> Commit:
    """Return an agent's first commit."""
    return next_commit.of([next_commit.draft(AGENT_CREATED, payload, None, 0)])


def turn_commit(next_commit: NextCommit, result: TurnResult) -> Commit:
    """Return the commit of a successful turn: message, replies and ``turn.committed``, in this order."""
    message = result.message
    consumed = [*([message] if message else ()), *result.steered]
    sent = [(each.message_id, each.target) for each in result.outbox]
    sent += [(each.message_id, each.receiver) for each in result.delayed]
    payload: JsonObject = {
        "cause": result.cause,
        "state": {
            "entity_type": result.entity_type,
            "version": result.schema_version,
            "patch": [*result.patch],
        },
        **_tree_keys(result.tree),
        "consumed": [each.message_id for each in consumed],
        "sent": [message_id for message_id, _ in sent],
        **({"sent_to": [receiver for _, receiver in sent]} if sent else {}),
        "epoch": next_commit.epoch,
        **({"config": result.config} if result.config is not None else {}),
        **({"files": cast("list[Json]", list(result.files))} if result.files else {}),
        **({"steps": result.steps} if result.steps is not None else {}),
    }
    committed = next_commit.draft(TURN_COMMITTED, payload, message.message_id if message else None, result.turn)
    events = seal(next_commit.head, [*result.drafts, committed], next_commit.large)
    return Commit(
        next_commit.session.session_id,
        next_commit.head,
        events,
        next_commit.epoch,
        settled=tuple(Settlement(each.message_id, Outcome.CONSUMED) for each in consumed),
        outbox=tuple(result.outbox),
        snapshot=Snapshot(next_commit.head.branch_id, events[-1].seq, result.snapshot) if result.snapshot else None,
        reminders=(*result.reminders, *(each.to_reminder() for each in result.delayed)),
    )


def failure_commit(next_commit: NextCommit, attempt: FailedAttempt, on_failed: Address | None) -> Commit:
    """Return the commit that records a failed attempt; its payload always fits in line.

    Args:
        on_failed: the agent's address if it has an ``on_failed``, which is then told of a message that is parked.
    """
    message, error = attempt.message, attempt.error
    message_id = message.message_id if message else None
    payload: JsonObject = {
        "error": {"type": error["type"], "message": error["message"]},
        "hook": attempt.hook,
        "attempt": message.attempts + 1 if message else 1,
        "message_id": message_id,
        "parked": attempt.outcome is Outcome.PARKED,
        **_tree_keys(attempt.tree),
        "epoch": next_commit.epoch,
    }
    commit = next_commit.of(
        [next_commit.draft(TURN_FAILED, payload, message_id, next_commit.head.turn)],
        [Settlement(message.message_id, attempt.outcome)] if message else (),
    )
    if on_failed is None or message is None or attempt.outcome is not Outcome.PARKED:
        return commit
    headers = Headers.from_json(message.headers)
    if headers.failed is not None:  # nobody is told that on_failed has failed
        return commit
    return replace(commit, outbox=(_failure_notice(next_commit, on_failed, message, headers, error),))


def pause_commit(next_commit: NextCommit, message: InboxMessage, address: Address, pause: Pause) -> Commit:
    """Return the commit that ends an attempt because its turn pauses."""
    record = pause.record
    assert record.pause is not None, "it is the step of a pause"
    expires_ms = record.pause["expires"]
    payload: JsonObject = {
        "message_id": message.message_id,
        "call_id": record.key,
        "number": pause.number,
        "kind": record.pause["kind"],
        "reason": record.pause["reason"],
        "schema": record.pause["schema"],
        "args_hash": record.args_hash,
        **({"agents": [*agents]} if (agents := record.pause.get("agents")) else {}),
        "expires": expires_ms,
        **_tree_keys(record.tree),
        "epoch": next_commit.epoch,
    }
    commit = next_commit.of(
        [next_commit.draft(TURN_PAUSED, payload, message.message_id, next_commit.head.turn)],
        [Settlement(message.message_id, Outcome.PAUSED)],
    )
    if expires_ms is None:
        return commit
    body = expiry_body(address, message.message_id, pause.number)
    return replace(commit, reminders=(SetReminder(EXPIRY, expires_ms, body),))


def cancel_commit(
    next_commit: NextCommit,
    message: InboxMessage,
    cancellation: Cancellation,
    said: Sequence[Draft] = (),
    tree: TreeRef | None = None,
) -> Commit:
    """Return the commit that records the cancellation of a message.

    Args:
        said: the message's event, its calls of models and its replies so far; only the calls are recorded unless it
            was interrupted. Empty if its turn had not started.
        tree: the workspace as its turn left it; ``None`` if its turn had not started.
    """
    message_id, turn = message.message_id, next_commit.head.turn
    drafts: list[Draft] = []
    if cancellation.policy is BusyPolicy.INTERRUPT:
        drafts.extend(replace(draft, turn=turn) for draft in said)
        if not said:
            drafts.append(next_commit.draft(USER_MESSAGE, user_message(message), message_id, turn))
    else:
        drafts.extend(replace(draft, turn=turn) for draft in said if draft.type == MODEL_CALLED)
    payload: JsonObject = {
        "message_id": message_id,
        "policy": cancellation.policy,
        "by": cancellation.by,
        **({"given_up": True} if cancellation.given_up else {}),
        **_tree_keys(tree),
        "epoch": next_commit.epoch,
    }
    drafts.append(next_commit.draft(TURN_CANCELLED, payload, message_id, turn))
    commit = next_commit.of(drafts, [Settlement(message_id, Outcome.CANCELLED)])
    was_paused = message.status is MessageStatus.PAUSED
    return replace(commit, reminders=(DropReminder(EXPIRY),)) if was_paused else commit


def _failure_notice(
    next_commit: NextCommit, address: Address, failed: InboxMessage, headers: Headers, error: ErrorInfo
) -> OutboxMessage:
    """Return the message of an agent to itself for which ``on_failed`` runs, on behalf of the same caller."""
    caller = headers.caller.through(str(address)) if headers.caller is not None else None
    return OutboxMessage(
        next_commit.ids.message(next_commit.now_ms),
        address.name,
        encode({"message_id": failed.message_id, "error": {"type": error["type"], "message": error["message"]}}),
        next_commit.now_ms,
        str(address),
        address.tenant,
        Headers(trace=headers.trace, caller=caller, failed=failed.message_id).to_json(),
    )


def _tree_keys(tree: TreeRef | None) -> dict[str, Json]:
    return {"tree_id": tree.tree_id if tree else None, "oplog_id": tree.oplog_id if tree else None}
