"""An activation: one agent's life in memory, from its waking to its going to sleep.

It is driven from outside, one step at a time, by the host's loop, a test harness or a simulator; it starts no tasks
and no threads of its own, but for the blocking calls it waits for. Its caller's duties: call `start` once, then
`handle_next` and `idle` one at a time, `stop` at the end; `cancel` and `interrupt` may come at any time between.

Order of a turn, and what a kill at each point leaves::

    begin ─ hook runs ─ drain state ─ seal files ─ journal commit ─ adopt tree ─ "turn_end" to the client
          └──────── nothing of it ────────────────┘└──────── all of it ───────────────────────────────┘

It knows no Ray, no FUSE and no SQL: the store, the workspace's opener, clock and ids are given to it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import structlog

from chronicle.canonical import decode
from chronicle.errors import ChronicleError, OverQuota
from chronicle.journal.records import MessageStatus, Outcome
from podium.agent.base import agent_type_of
from podium.agent.context import AgentContext
from podium.errors import AgentAsleep, UnknownAgent
from podium.ledger import Ledger
from podium.record import AgentRecord, read_agent, snapshot_body
from podium.settled import settled_frames
from podium.snapshots import MOST_TURNS, SnapshotPolicy
from podium.state import StateError, check, drain, from_json, migration_patch, to_json
from podium.stream import StreamHub
from podium.turn import TurnResult, TurnScope, created_commit, failure_commit, turn_commit
from podium.usercode import TryFailed, UserCode, cancelled_error, describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from chronicle.blobs.store import BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.clock import Clock
    from chronicle.ids import BlobId, IdSource, MessageId
    from chronicle.journal.records import InboxMessage, Lease
    from chronicle.journal.store import JournalStore
    from chronicle.workspace.port import Opened, TreeRef, Workspace
    from podium.address import Address
    from podium.agent.base import BaseAgent
    from podium.agent.models.delta_state import DeltaState
    from podium.blocking import BlockingRunner
    from podium.events import Cause, ErrorInfo
    from podium.ledger import Committer
    from podium.stream import Frame

__all__ = ["Activation", "Environment", "Step", "WorkspaceOpener", "WorkspaceRequest"]

_log = structlog.stdlib.get_logger("podium.activation")


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """Which workspace an activation wants opened."""

    address: Address
    base: TreeRef | None
    epoch: int
    turn: int


if TYPE_CHECKING:
    WorkspaceOpener = Callable[[WorkspaceRequest], Awaitable[Opened]]


@dataclass(frozen=True, slots=True)
class Environment:
    """What an activation is given to work with."""

    store: JournalStore
    blobs: BlobStore
    """Where payloads too large for the journal go."""
    committer: Committer
    clock: Clock
    ids: IdSource
    open_workspace: WorkspaceOpener
    on_sent: Callable[[], None] = lambda: None
    """Told after a commit that sent messages to other agents: they are in the outbox, to be delivered."""
    run_blocking: BlockingRunner = asyncio.to_thread
    """Takes blocking calls off the event loop."""
    most_replayed_turns: int = MOST_TURNS
    """Turns after which a snapshot is kept; few in a simulation, so that short ones have snapshots."""


class Step(Enum):
    """What `Activation.handle_next` did."""

    NOTHING = "nothing"
    """No message waits."""
    HANDLED = "handled"
    """A message was committed, cancelled or parked."""
    RETRY = "retry"
    """A try failed and was rolled back; the message is still the next one."""


class Activation:
    """One agent, awake under one lease.

    Args:
        agent_class: the user's class.
        address: the agent's.
        lease: held by the caller, who also renews and releases it.
        environment: store, clock and the way to open a workspace.
    """

    def __init__(self, agent_class: type[BaseAgent], address: Address, lease: Lease, environment: Environment) -> None:
        self._class = agent_class
        self._agent = agent_class()
        self._lease = lease
        self._env = environment
        self._entity_type = agent_class.State._entity_type or agent_type_of(agent_class)  # noqa: SLF001
        self._schema_version = agent_class.State._version  # noqa: SLF001
        self._initialised = False
        self._over = False
        self._usercode = UserCode(str(address), environment.clock)
        self._snapshots = SnapshotPolicy(environment.most_replayed_turns)
        self._schema_patch: list[JsonObject] = []
        self._state: DeltaState
        self._workspace: Workspace
        self._ledger: Ledger
        self.address = address
        self.streams = StreamHub()

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self, *, unclean: bool = False) -> None:
        """Load state, open the workspace, and record what an earlier activation left unfinished.

        Args:
            unclean: the activation before did not end in order; that counts as one attempt of the inbox's head.

        Raises:
            StateError: the stored state does not fit the class.
            Evicted: the lease is lost already.
        """
        store = self._env.store
        session = await self._env.run_blocking(store.session, str(self.address))
        head = await self._env.run_blocking(store.head, session.main_branch_id)
        self._ledger = Ledger(store, self._env.committer, session, self._lease, head, self._env.run_blocking)
        record = await self._read_or_create()
        opened = await self._env.open_workspace(
            WorkspaceRequest(self.address, record.tree, self._lease.epoch, self._ledger.head.turn + 1)
        )
        self._workspace = opened.workspace
        self._load_state(record)
        if unclean or opened.recovered is not None:
            await self._record_lost_try(opened.recovered, unclean=unclean)

    async def handle_next(self) -> Step:
        """Take the inbox's next message and try to handle it once.

        Raises:
            Evicted: the lease is lost; nothing was written, and the activation is over.
        """
        message = await self._ledger.next_message()
        if message is None:
            return Step.NOTHING
        if self._usercode.is_taken_back(message.message_id):
            await self._give_up(message, None, cancelled_error())
            return Step.HANDLED
        attempt = message.attempts + 1
        self._publish(message, {"type": "turn_start", "turn": self.turn + 1, "attempt": attempt})
        try:
            await self._ensure_initialised(message)
            body = _body(message)
            _, patch = await self._run(
                "message", message, lambda ctx: self._agent.on_message(ctx, body), self._class.turn_timeout_s
            )
        except TryFailed as failed:
            return await self._after_failure(message, failed)
        head = self._ledger.head
        self._usercode.forget(message.message_id)
        self._publish(message, {"type": "turn_end", "turn": head.turn, "version": head.seq, "patch": patch})
        await self._next_turn()
        return Step.HANDLED

    async def idle(self) -> bool:
        """Ask `on_idle_timeout`, and commit what it changed.

        Returns:
            whether the agent may go to zero.
        """
        answer = await self._run_hook("idle", self._agent.on_idle_timeout, self._class.turn_timeout_s)
        return bool(answer) if answer is not None else True

    async def stop(self) -> None:
        """End in order: `on_shutdown`, a last commit of what changed since the last turn, and the workspace closed.

        Streams that still wait end with `AgentAsleep`: their messages are in the inbox. The lease stays the caller's.
        """
        try:
            if self._initialised:
                await self._run_hook("shutdown", self._agent.on_shutdown, self._class.shutdown_timeout_s)
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Let go of the workspace and end the streams without writing anything; for a lost lease or a broken start."""
        self._over = True
        self.streams.fail_all(AgentAsleep(f"{self.address} is going to sleep"))
        workspace = getattr(self, "_workspace", None)
        if workspace is not None:
            try:
                await self._env.run_blocking(workspace.close)
            except ChronicleError as error:  # who serves it is gone, and the mount with it; the next opening clears up
                _log.warning("workspace_not_closed", agent_id=str(self.address), error=str(error))

    async def follow(self, message_id: MessageId) -> AsyncIterator[list[Frame]]:
        """Yield the frames of a message in batches, from now on, up to its terminal frame.

        A message that is settled already gives its end as the journal has it.

        Raises:
            AgentAsleep: the activation ended before the message was settled; deliver it again.
            NotFound: no such message.
        """
        with self.streams.subscribe(message_id) as subscription:
            frames = await self.settled(message_id)
            if frames:
                yield frames
                return
            if self._over:
                raise AgentAsleep(f"{self.address} is going to sleep")
            async for batch in subscription.batches():
                yield batch

    async def settled(self, message_id: MessageId) -> list[Frame]:
        """Return how a message ended, as the journal has it; nothing while it waits.

        Raises:
            NotFound: no such message.
        """
        store = self._env.store
        message = await self._ledger.read(lambda: store.message(message_id))
        if message.status is MessageStatus.PENDING:
            return []
        # Not the ledger's head: a commit whose answer is still on its way has settled the message already.
        branch_id = self._ledger.session.main_branch_id
        return await self._ledger.read(lambda: settled_frames(store, self._env.blobs, store.head(branch_id), message))

    # -- from outside, while it runs ------------------------------------------------------------------------------

    @property
    def lease(self) -> Lease:
        """The lease it runs under."""
        return self._lease

    @property
    def turn(self) -> int:
        """Turns committed so far."""
        return self._ledger.head.turn

    @property
    def state(self) -> DeltaState:
        """The live state; what is not yet committed included."""
        return self._state

    @property
    def workspace(self) -> Workspace:
        """The open workspace."""
        return self._workspace

    @property
    def due_s(self) -> float | None:
        """When the running hook's time is over, by the clock's ``monotonic_s``; ``None`` when no hook runs."""
        return self._usercode.due_s

    def cancel(self, message_id: str) -> None:
        """Take a message back: stop its turn if it runs, else drop it when its place comes. Too late once committed."""
        self._usercode.take_back(message_id)

    def make_due(self, message_id: str) -> None:
        """Let a message's time be over now, if it is being handled; from any thread. It stops nothing by itself."""
        self._usercode.make_due(message_id)

    def interrupt(self) -> None:
        """Stop the running turn, if one runs, because the activation has to end: nothing of it is kept.

        Its message stays in the inbox, and no attempt is counted.
        """
        self._usercode.interrupt()

    # -- one turn -------------------------------------------------------------------------------------------------

    async def _ensure_initialised(self, message: InboxMessage) -> None:
        if not self._initialised:
            await self._run("init", None, self._agent.on_init, self._class.turn_timeout_s, stream_of=message)
            await self._next_turn()
            self._initialised = True

    async def _run_hook(self, cause: Cause, hook: Callable[[AgentContext[Any]], Awaitable[Any]], limit_s: float) -> Any:
        """Run a hook as a turn of its own; a failure is recorded and rolled back, and gives ``None``."""
        try:
            answer, _ = await self._run(cause, None, hook, limit_s)
        except TryFailed as failed:
            _log.warning("hook_failed", agent_id=str(self.address), hook=cause, error=failed.error)
            await self._give_up(None, Outcome.FAILED, failed.error)
            return None
        await self._next_turn()
        return answer

    async def _run(
        self,
        cause: Cause,
        message: InboxMessage | None,
        hook: Callable[[AgentContext[Any]], Awaitable[Any]],
        limit_s: float,
        *,
        stream_of: InboxMessage | None = None,
    ) -> tuple[Any, list[JsonObject]]:
        """Run a hook and commit what it did, if it did anything or handled a message.

        Args:
            message: what the turn handles and consumes.
            stream_of: for a hook that runs on behalf of a message, the message whose stream hears it.

        Returns:
            the hook's answer and the state patch.

        Raises:
            TryFailed: the hook did not go well; the caller gives its work up.
            Evicted: the lease is lost.
        """
        turn = self.turn + 1
        heard = message or stream_of
        scope = TurnScope(
            turn,
            message,
            (lambda frame: self._publish(heard, frame)) if heard else _discard,
            self._workspace,
            self._env.clock,
            self._env.ids,
            self._env.run_blocking,
        )
        context = AgentContext(scope, self.address, self._state, self._workspace.root)
        try:
            answer = await self._usercode.call(lambda: hook(context), limit_s, heard.message_id if heard else None)
            drafts = await scope.finish()
            check(self._state)
            # Atomic until the state is copied: a task the agent left running may change it while files are sealed, and
            # what it changes belongs to the next patch, not to this turn's snapshot.
            patch = [*self._schema_patch, *drain(self._state)]
            state = to_json(self._state) if self._snapshots.due else None
            tree = await self._env.run_blocking(self._workspace.seal)
            if not (message or patch or drafts or scope.outbox) and tree == self._workspace.base:
                return answer, patch
            snapshot = None
            if state is not None:
                snapshot = snapshot_body(turn, self._entity_type, self._schema_version, state, tree)
            result = TurnResult(
                turn,
                cause,
                message,
                drafts,
                self._entity_type,
                self._schema_version,
                patch,
                tree,
                scope.outbox,
                snapshot,
            )
            large: dict[BlobId, bytes] = {}
            commit = turn_commit(
                self._ledger.session,
                self._ledger.head,
                result,
                self._ledger.epoch,
                self._env.ids,
                self._env.clock.now_ms(),
                large,
            )
            await self._put(large)
        except TryFailed:
            scope.abandon()
            raise
        except (ChronicleError, StateError, OSError) as error:
            scope.abandon()
            raise TryFailed(describe(error)) from error
        await self._ledger.append(commit)
        if scope.outbox:
            self._env.on_sent()
        self._schema_patch = []
        last = commit.events[-1]
        size = len(large[last.payload_ref] if last.payload_ref else last.payload or b"")
        self._snapshots.committed(size, snapshot)
        if tree != self._workspace.base:
            await self._env.run_blocking(self._workspace.adopt, tree)
        return answer, patch

    async def _after_failure(self, message: InboxMessage, failed: TryFailed) -> Step:
        if failed.cancelled:
            await self._give_up(message, None, failed.error)
            return Step.HANDLED
        if failed.interrupted:
            await self._give_up(None, Outcome.FAILED, failed.error)
            return Step.RETRY
        attempt = message.attempts + 1
        if attempt < self._class.max_attempts:
            await self._give_up(message, Outcome.FAILED, failed.error)
            self._publish(message, {"type": "turn_retry", "attempt": attempt, "error": failed.error})
            return Step.RETRY
        await self._give_up(message, Outcome.PARKED, failed.error)
        self._usercode.forget(message.message_id)
        self._publish(message, {"type": "error", "error": failed.error, "attempt": attempt, "parked": True})
        return Step.HANDLED

    async def _give_up(self, message: InboxMessage | None, outcome: Outcome | None, error: ErrorInfo) -> None:
        """Record a failed or cancelled (``outcome`` is ``None``) try with its tree, and go back to the last commit.

        Raises:
            Evicted: the lease is lost.
            ChronicleError: the workspace could not be rolled back; the activation cannot go on.
        """
        try:
            tree: TreeRef | None = await self._env.run_blocking(self._workspace.seal)
        except OverQuota as over:
            tree = over.kept
        except ChronicleError as problem:
            _log.warning("failed_tree_not_kept", agent_id=str(self.address), error=str(problem))
            tree = None
        await self._append_failure(message, outcome or Outcome.CANCELLED, error, tree)
        await self._env.run_blocking(self._workspace.rollback)
        self._load_state(await self._read())
        await self._next_turn()
        if message is not None and outcome is None:
            self._usercode.forget(message.message_id)
            self._publish(message, {"type": "error", "error": error, "parked": False})

    async def _append_failure(
        self, message: InboxMessage | None, outcome: Outcome, error: ErrorInfo, tree: TreeRef | None
    ) -> None:
        now_ms = self._env.clock.now_ms()
        await self._ledger.append(
            failure_commit(
                self._ledger.session,
                self._ledger.head,
                outcome,
                error,
                message,
                tree,
                self._ledger.epoch,
                self._env.ids.event(now_ms),
                now_ms,
            )
        )

    # -- state and workspace --------------------------------------------------------------------------------------

    async def _read_or_create(self) -> AgentRecord:
        try:
            return await self._read()
        except UnknownAgent:  # addressed, and never started
            await self._create()
            return await self._read()

    async def _read(self) -> AgentRecord:
        return await self._ledger.read(lambda: read_agent(self._env.store, self._env.blobs, self.address))

    async def _create(self) -> None:
        now_ms = self._env.clock.now_ms()
        payload: JsonObject = {
            "agent": str(self.address),
            "entity_type": self._entity_type,
            "version": self._schema_version,
            "state": to_json(self._class.State()),
            "tree_id": None,
            "oplog_id": None,
        }
        large: dict[BlobId, bytes] = {}
        commit = created_commit(
            self._ledger.session,
            self._ledger.head,
            payload,
            self._ledger.epoch,
            self._env.ids.event(now_ms),
            now_ms,
            large,
        )
        await self._put(large)
        await self._ledger.append(commit)

    def _load_state(self, record: AgentRecord) -> None:
        self._state = from_json(self._class.State, record.state, record.schema_version)
        self._schema_patch = migration_patch(record.state, self._state)
        self._snapshots.opened(record)

    async def _record_lost_try(self, recovered: TreeRef | None, *, unclean: bool) -> None:
        message = await self._ledger.next_message() if unclean else None
        last_try = message is not None and message.attempts + 1 >= self._class.max_attempts
        await self._append_failure(
            message,
            Outcome.PARKED if last_try else Outcome.FAILED,
            {"type": "HostLost", "message": "its process ended before the turn was committed"},
            recovered,
        )

    async def _put(self, large: Mapping[BlobId, bytes]) -> None:
        """Make payloads durable that go out of line."""
        if large:
            await self._env.run_blocking(self._env.blobs.put, large)

    async def _next_turn(self) -> None:
        await self._env.run_blocking(self._workspace.begin_turn, self.turn + 1)

    def _publish(self, message: InboxMessage, frame: Frame) -> None:
        self.streams.publish(message.message_id, frame)


def _body(message: InboxMessage) -> dict[str, Any]:
    return cast("dict[str, Any]", decode(message.body or b"{}"))


def _discard(frame: Frame) -> None:
    """Drop a frame of a hook that nobody listens to."""
