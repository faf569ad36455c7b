"""One turn: what a hook collects while it runs, and the commit that it becomes.

A turn is everything between two commits. `TurnScope` gathers its drafts and passes its frames on; `turn_commit` and
`failure_commit` turn the result into the one transaction that makes it true. Both are pure: no I/O, ids and time are
arguments.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from chronicle.canonical import decode, encode
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, OutboxMessage, Outcome, Settlement, Snapshot
from podium.errors import PodiumError
from podium.events import (
    AGENT_CREATED,
    TURN_CANCELLED,
    TURN_COMMITTED,
    TURN_FAILED,
    USER_MESSAGE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.clock import Clock
    from chronicle.ids import BlobId, EventId, IdSource
    from chronicle.journal.records import Head, InboxMessage, Session
    from chronicle.workspace.port import Iteration, TreeRef, Workspace
    from podium.address import Address
    from podium.agent.context import Reply
    from podium.blocking import BlockingRunner
    from podium.events import Cause, ErrorInfo
    from podium.stream import Frame

__all__ = ["TurnResult", "TurnScope", "created_commit", "failure_commit", "turn_commit"]


class TurnScope:
    """What one turn's context works on: drafts of events, and the way to the client.

    Args:
        turn: the number the turn gets when it commits.
        message: what it handles; ``None`` in hooks other than ``on_message``.
        publish: passes a frame on to the client.
        workspace: for history; ``None`` without one.
        run_blocking: takes the workspace's blocking calls off the event loop.
    """

    def __init__(
        self,
        turn: int,
        message: InboxMessage | None,
        publish: Callable[[Frame], None],
        workspace: Workspace | None,
        clock: Clock,
        ids: IdSource,
        run_blocking: BlockingRunner = asyncio.to_thread,
    ) -> None:
        self.turn = turn
        self._message = message
        self._publish = publish
        self._workspace = workspace
        self._clock = clock
        self._ids = ids
        self._run_blocking = run_blocking
        self._replies: list[Reply] = []
        self._drafts: list[Draft] = []
        self._outbox: list[OutboxMessage] = []
        self._over = False

    @property
    def message_id(self) -> str | None:
        """The id of the message being handled."""
        return self._message.message_id if self._message else None

    def new_reply(self) -> Reply:
        """Make a reply that belongs to this turn."""
        from podium.agent.context import Reply  # noqa: PLC0415  the context module needs this one for its types

        self._check_open()
        reply = Reply(self, self._ids.other("rpl_", self._clock.now_ms()))
        self._replies.append(reply)
        return reply

    def record(self, event_type: str, payload: JsonObject) -> None:
        """Add an event to the turn.

        Raises:
            PodiumError: the turn is over.
        """
        self._check_open()
        now_ms = self._clock.now_ms()
        self._drafts.append(
            Draft(self._ids.event(now_ms), event_type, payload, self.turn, now_ms, self.message_id, self.message_id)
        )

    def tell(self, sender: Address, receiver: Address, message: JsonObject) -> str:
        """Add a message to another agent to the turn, and return its id.

        Raises:
            InvalidInput: the message is not JSON.
            PodiumError: the turn is over.
        """
        self._check_open()
        now_ms = self._clock.now_ms()
        message_id = self._ids.message(now_ms)
        self._outbox.append(OutboxMessage(message_id, str(receiver), encode(message), now_ms, str(sender)))
        return message_id

    @property
    def outbox(self) -> Sequence[OutboxMessage]:
        """What the turn sends to others."""
        return self._outbox

    async def publish(self, frame: Frame) -> None:
        """Pass a frame on to the client, and let the event loop send it.

        Raises:
            PodiumError: the turn is over.
        """
        self._check_open()
        self._publish(frame)
        await asyncio.sleep(0)

    async def emit(self, name: str, data: JsonObject) -> None:
        """Pass an event of the agent's own on to the client."""
        plain = decode(encode(data))
        await self.publish({"type": "event", "name": name, "data": plain})

    async def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations."""
        return await self._run_blocking(self._files().history, path)

    async def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path at an iteration."""
        return await self._run_blocking(self._files().at, path, iteration)

    async def finish(self) -> Sequence[Draft]:
        """Finish the replies that are still open, close the scope and return its events."""
        for reply in self._replies:
            await reply.finish()
        self._over = True
        return self._drafts

    def abandon(self) -> None:
        """Close the scope; what it collected is dropped."""
        self._over = True

    def _files(self) -> Workspace:
        self._check_open()
        if self._workspace is None:
            raise PodiumError("this agent runs without a workspace")
        return self._workspace

    def _check_open(self) -> None:
        if self._over:
            raise PodiumError(
                f"turn {self.turn} is over: a context works only inside its hook; "
                "await what you start before the hook returns"
            )


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn made, ready to be committed."""

    turn: int
    cause: Cause
    message: InboxMessage | None
    drafts: Sequence[Draft]
    entity_type: str
    schema_version: int
    patch: Sequence[JsonObject]
    tree: TreeRef | None
    outbox: Sequence[OutboxMessage]
    """What it sends to other agents once it is committed."""
    snapshot: bytes | None
    """The body of a snapshot to be kept with the commit."""


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
        large: payloads that go out of line are put here; they must be durable before the commit is made.
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
    """Return the commit of a turn that went well: message, replies and ``turn.committed``, in this order.

    Args:
        large: payloads that go out of line are put here; they must be durable before the commit is made.
    """
    message = result.message
    message_id = message.message_id if message else None
    drafts: list[Draft] = []
    if message is not None:
        drafts.append(
            Draft(
                ids.event(now_ms),
                USER_MESSAGE,
                {
                    "message_id": message.message_id,
                    "position": message.position,
                    "sender": message.sender,
                    "message": decode(message.body or b"{}"),
                },
                result.turn,
                now_ms,
                message_id,
                message_id,
            )
        )
    drafts.extend(result.drafts)
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
                "consumed": [message.message_id] if message else [],
                "sent": [sent.message_id for sent in result.outbox],
                "epoch": epoch,
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
        settled=(Settlement(message.message_id, Outcome.CONSUMED),) if message else (),
        outbox=tuple(result.outbox),
        snapshot=Snapshot(expected.branch_id, events[-1].seq, result.snapshot) if result.snapshot else None,
    )


def failure_commit(
    session: Session,
    expected: Head,
    outcome: Outcome,
    error: ErrorInfo,
    message: InboxMessage | None,
    tree: TreeRef | None,
    epoch: int,
    event_id: EventId,
    now_ms: int,
) -> Commit:
    """Return the commit that records a try whose state and files were given up; its payload is always a small one.

    Args:
        outcome: ``FAILED`` to try again, ``PARKED`` after the last try, ``CANCELLED`` when the sender took it back.
        message: what was being handled; ``None`` for a hook or for changes between turns.
        tree: the workspace as the try had left it.
    """
    message_id = message.message_id if message else None
    if outcome is Outcome.CANCELLED:
        event_type = TURN_CANCELLED
        payload: JsonObject = {"message_id": message_id, **_tree_keys(tree), "epoch": epoch}
    else:
        event_type = TURN_FAILED
        payload = {
            "error": {"type": error["type"], "message": error["message"]},
            "attempt": message.attempts + 1 if message else 1,
            "message_id": message_id,
            "parked": outcome is Outcome.PARKED,
            **_tree_keys(tree),
            "epoch": epoch,
        }
    draft = Draft(event_id, event_type, payload, expected.turn, now_ms, message_id, message_id)
    return Commit(
        session.session_id,
        expected,
        seal(expected, [draft]),
        epoch,
        settled=(Settlement(message.message_id, outcome),) if message else (),
    )


def _tree_keys(tree: TreeRef | None) -> dict[str, Json]:
    return {"tree_id": tree.tree_id if tree else None, "oplog_id": tree.oplog_id if tree else None}
