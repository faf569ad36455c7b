"""Turns on one agent: its state, its files and its branch, moved together by one commit after the other.

Order of a turn, and what a kill at each point leaves::

    begin ─ hook runs ─ drain state ─ seal files ─ journal commit ─ adopt tree ─ "turn_end" to the client
          └──────── nothing of it ────────────────┘└──────── all of it ───────────────────────────────┘

Which message is next, how often it is tried and who is told is the activation's. Turns are run one at a time; only
`drop` may be called beside one.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import structlog

from chronicle.canonical import decode
from chronicle.errors import BranchInUse, ChronicleError, OverQuota, StorageRefused
from podium.agent.base import BaseAgent, agent_type_of
from podium.agent.context import AgentContext
from podium.agent_record import AgentRecord, read_agent, snapshot_body
from podium.artifacts.writing import ArtifactWriter
from podium.errors import AgentLoadError, UnknownAgent
from podium.events import HOOKS, USER_MESSAGE
from podium.history.branching import given_up
from podium.history.fold import mark_commit, plan_retention
from podium.state import StateError, from_json, migration_patch, take, to_json
from podium.state.access import permit_turn, restrict_to_turns, retire
from podium.state.guard import Permit, use_permit
from podium.turn.commit import TurnResult, cancel_commit, created_commit, failure_commit, turn_commit, user_message
from podium.turn.environment import Environment, WorkspaceRequest
from podium.turn.hook_call import TryFailed, UserCode, describe
from podium.turn.ledger import Ledger
from podium.turn.scope import TurnScope
from podium.turn.snapshot_policy import SnapshotPolicy
from podium.turn.steering import Steering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.ids import BlobId
    from chronicle.journal.records import Commit, Draft, Head, InboxMessage, Lease, Outcome, Session
    from chronicle.workspace.port import TreeRef, Workspace
    from podium.address import Address
    from podium.agent.models.delta_state import DeltaState
    from podium.events import Cause, ErrorInfo
    from podium.turn.commit import Stop
    from podium.turn.stream import Frame

__all__ = ["Done", "TurnRunner", "body_of"]

_log = structlog.stdlib.get_logger("podium.turn.runner")


@dataclass(frozen=True, slots=True)
class Done:
    """A hook that went well; what it did is committed."""

    answer: Any
    """What it returned."""
    patch: list[JsonObject]
    """The state's change."""
    steered: Sequence[InboxMessage]
    """Messages that it was handed while it ran; they are consumed with it."""


class TurnRunner:
    """Runs turns of one agent under one lease.

    Args:
        agent: the instance whose hooks are called.
        address: the agent's.
        environment: store, clock and the way to open a workspace.
        publish: passes a frame on to those who follow a message.
    """

    def __init__(
        self,
        agent: BaseAgent,
        address: Address,
        environment: Environment,
        publish: Callable[[InboxMessage, Frame], None],
    ) -> None:
        self._agent = agent
        self._class = type(agent)
        self._address = address
        self._env = environment
        self._publish = publish
        self._entity_type = self._class.State._entity_type or agent_type_of(self._class)  # noqa: SLF001
        self._schema_version = self._class.State._version  # noqa: SLF001
        self._steerable = self._class.on_steer is not BaseAgent.on_steer
        self._snapshots = SnapshotPolicy(environment.most_replayed_turns)
        self._schema_patch: list[JsonObject] = []
        self._writing = asyncio.Lock()
        """Held from reading the head to having committed on top of it."""
        self._steering: Steering | None = None
        self._permit: Permit | None = None
        """What the code of the running turn changes the state by."""
        self._sealed: TreeRef | None = None
        """The tree of the turn that was committed last, until the workspace stands on it."""
        self.usercode = UserCode(str(address), environment.clock)
        self.ledger: Ledger
        self.state: DeltaState
        self.workspace: Workspace

    # -- beginning ------------------------------------------------------------------------------------------------

    async def open(self, session: Session, lease: Lease) -> TreeRef | None:
        """Load the state and open the workspace.

        Returns:
            the tree that an earlier activation left unfinished, if it left one.

        Raises:
            StateError: the stored state does not fit the class.
            AgentLoadError: the agent is new, and its class's State cannot be made.
            Evicted: the lease is lost already.
        """
        env = self._env
        head = await env.run_store(env.store.head, session.main_branch_id)
        self.ledger = Ledger(env.store, env.committer, session, lease, head, env.run_store)
        record = await self._read_or_create()
        opened = await env.open_workspace(WorkspaceRequest(self._address, record.tree, lease.epoch, self.turn + 1))
        self.workspace = opened.workspace
        self._load_state(record)
        return opened.recovered

    async def close(self) -> None:
        """Let go of the workspace, if it was opened."""
        workspace = getattr(self, "workspace", None)
        if workspace is not None:
            await self._env.run_blocking(workspace.close)

    @property
    def turn(self) -> int:
        """Turns committed so far."""
        return self.ledger.head.turn

    # -- a turn that goes well ------------------------------------------------------------------------------------

    async def run(
        self,
        cause: Cause,
        message: InboxMessage | None,
        hook: Callable[[AgentContext[Any]], Awaitable[Any]],
        limit_s: float,
        *,
        stream_of: InboxMessage | None = None,
    ) -> Done:
        """Run a hook and commit what it did, if it did anything or handled a message. Call `next_turn` after it.

        Args:
            message: what the turn handles and consumes.
            stream_of: for a hook that runs on behalf of a message, the message whose stream hears what it emits. Its
                replies and artifacts answer no message and are only recorded: whether a client heard them would depend
                on whether the agent slept.

        Raises:
            TryFailed: the hook did not go well; the caller gives its work up.
            Evicted: the lease is lost.
        """
        heard = message or stream_of
        scope = TurnScope(
            self.turn + 1,
            message,
            self._listener(message, stream_of),
            self.workspace,
            self._env.clock,
            self._env.ids,
            ArtifactWriter(self._env.blobs, self.workspace.root, self._class.max_artifact_bytes),
            self._env.run_blocking,
        )
        if message is not None:
            scope.record(USER_MESSAGE, user_message(message))  # now: what it is answered comes after it
        context = self._context(scope)
        steerable = message is not None and self._steerable
        steering = self._steering = Steering(lambda handed: self._steer(scope, handed)) if steerable else None

        def call() -> Awaitable[Any]:
            return steering.around(lambda: hook(context)) if steering is not None else hook(context)

        try:
            with permit_turn(self.state, f"turn {scope.turn} of {self._address}") as self._permit:
                answer = await self.usercode.call(call, limit_s, heard.message_id if heard else None)
                steered = steering.taken if steering is not None else ()
                patch = await self._commit(cause, message, scope, steered)
        except TryFailed as failed:
            failed.said = scope.abandon()
            failed.hook = "on_steer" if steering is not None and steering.failed else HOOKS[cause]
            raise
        except (ChronicleError, StateError, OSError) as error:
            scope.abandon()
            raise TryFailed(describe(error), hook=HOOKS[cause]) from error
        finally:
            self._steering = self._permit = None
        if scope.outbox:
            self._env.on_sent()
        return Done(answer, patch, steered)

    async def next_turn(self) -> None:
        """Let the workspace stand on what was committed, and changes from now on belong to the next turn."""
        tree, self._sealed = self._sealed, None
        if tree is not None and tree != self.workspace.base:
            await self._env.run_blocking(self.workspace.adopt, tree)
        await self._env.run_blocking(self.workspace.begin_turn, self.turn + 1)

    async def retain(self) -> None:
        """Drop history that the class's retention lets go, and make a mark to drop more at later, where that is due.

        Either is whole or not at all, and leaves the agent as it is.

        Raises:
            Evicted: the lease is lost.
            ChronicleError: not everything was done.
        """
        retention = self._class.retention
        if retention is None:
            return
        env, ledger = self._env, self.ledger
        store, branch_id, now_ms = env.store, ledger.head.branch_id, env.clock.now_ms()
        todo = await ledger.read(lambda: plan_retention(store, store.branch(branch_id), retention, now_ms))
        if todo.fold_to is not None:
            try:
                await env.run_blocking(store.fold, branch_id, todo.fold_to.seq, now_ms)
            except BranchInUse:
                return  # forks read it; marks would only pile up until they are gone
        if todo.mark:
            record = await self._read()
            trees = await ledger.read(lambda: given_up(store, env.blobs, record))
            large: dict[BlobId, bytes] = {}
            await self._append(
                lambda head, now_ms: mark_commit(
                    record, head, trees, ledger.epoch, env.ids.event(now_ms), now_ms, large
                ),
                large,
            )

    def steer(self, message: InboxMessage) -> bool:
        """Hand a message to the turn that runs, if one does that takes messages.

        Returns:
            whether the turn has it now.
        """
        steering = self._steering
        return steering is not None and (steering.has(message.message_id) or steering.take(message))

    def is_steered(self, message_id: str) -> bool:
        """Whether the turn that runs was handed a message."""
        return self._steering is not None and self._steering.has(message_id)

    async def _steer(self, scope: TurnScope, message: InboxMessage) -> None:
        start: Frame = {"type": "turn_start", "turn": scope.turn, "attempt": message.attempts + 1, "steered": True}
        self._publish(message, start)
        handed = scope.steered(message, lambda frame: self._publish(message, frame))
        assert self._permit is not None, "a turn is steered while it runs"
        with use_permit(self._permit):  # the task is of the one that handed the message over
            await self._agent.on_steer(self._context(handed), body_of(message))

    async def _commit(
        self, cause: Cause, message: InboxMessage | None, scope: TurnScope, steered: Sequence[InboxMessage]
    ) -> list[JsonObject]:
        """Commit what a hook did, and return the state's patch."""
        env, turn = self._env, scope.turn
        drafts = await scope.finish()
        changes, state = take(self.state, whole=self._snapshots.due)
        patch = [*self._schema_patch, *changes]
        tree = await env.run_blocking(self.workspace.seal)
        if not (message or patch or drafts or scope.outbox) and tree == self.workspace.base:
            return patch
        await scope.keep_artifacts()
        snapshot = None
        if state is not None:
            snapshot = snapshot_body(turn, self._entity_type, self._schema_version, state, tree)
        result = TurnResult(
            turn,
            cause,
            message,
            steered,
            drafts,
            self._entity_type,
            self._schema_version,
            patch,
            tree,
            scope.outbox,
            snapshot,
        )
        ledger = self.ledger
        large: dict[BlobId, bytes] = {}
        commit = await self._append(
            lambda head, now_ms: turn_commit(ledger.session, head, result, ledger.epoch, env.ids, now_ms, large), large
        )
        self._schema_patch = []
        last = commit.events[-1]
        self._snapshots.committed(len(large[last.payload_ref] if last.payload_ref else last.payload or b""), snapshot)
        self._sealed = tree
        return patch

    # -- a turn that does not -------------------------------------------------------------------------------------

    async def fail(self, message: InboxMessage | None, outcome: Outcome, error: ErrorInfo, hook: str | None) -> None:
        """Record a failed try with its tree, and go back to the last commit.

        Where the disk is so full that this cannot be recorded, what the try wrote is given up first, without its tree.

        Args:
            hook: the name of the hook that failed.

        Raises:
            Evicted: the lease is lost.
            ChronicleError: the workspace could not be rolled back, or the disk is still full; the activation is over.
        """
        tree = await self._failed_tree()
        try:
            await self.record_failure(message, outcome, error, tree, hook)
        except StorageRefused:
            await self._roll_back()
            await self.record_failure(message, outcome, error, tree, hook)
        await self._go_back()

    async def record_failure(
        self,
        message: InboxMessage | None,
        outcome: Outcome,
        error: ErrorInfo,
        tree: TreeRef | None,
        hook: str | None = None,
    ) -> None:
        """Record a failed try whose work is gone already; raises as `fail`."""
        ledger, ids = self.ledger, self._env.ids
        await self._append(
            lambda head, now_ms: failure_commit(
                ledger.session, head, outcome, error, hook, message, tree, ledger.epoch, ids.event(now_ms), now_ms
            )
        )

    async def cancel(self, message: InboxMessage, stop: Stop, said: Sequence[Draft]) -> None:
        """Record a turn that was stopped, with its tree, and go back to the last commit; raises as `fail`.

        Args:
            said: the message and what it was answered until then.
        """
        tree = await self._failed_tree()
        try:
            await self._append_cancel(message, stop, said, tree)
        except StorageRefused:  # as in `fail`
            await self._roll_back()
            await self._append_cancel(message, stop, said, tree)
        await self._go_back()

    async def drop(self, message: InboxMessage, stop: Stop) -> None:
        """Record that a message which waits is not to be handled; raises `Evicted` as `fail`."""
        await self._append_cancel(message, stop, (), None)

    async def _append_cancel(
        self, message: InboxMessage, stop: Stop, said: Sequence[Draft], tree: TreeRef | None
    ) -> None:
        ledger, ids = self.ledger, self._env.ids
        large: dict[BlobId, bytes] = {}
        await self._append(
            lambda head, now_ms: cancel_commit(
                ledger.session, head, message, stop, said, tree, ledger.epoch, ids, now_ms, large
            ),
            large,
        )

    async def _failed_tree(self) -> TreeRef | None:
        try:
            return await self._env.run_blocking(self.workspace.seal)
        except OverQuota as over:
            return over.kept
        except (ChronicleError, OSError) as problem:
            _log.warning("failed_tree_not_kept", agent_id=str(self._address), error=str(problem))
            return None

    async def _roll_back(self) -> None:
        try:
            await self._env.run_blocking(self.workspace.rollback)
        except (ChronicleError, OSError):
            if not await self._env.run_blocking(self._env.make_room):
                raise
            await self._env.run_blocking(self.workspace.rollback)

    async def _go_back(self) -> None:
        await self._roll_back()
        await self._env.run_blocking(self._env.put_by)
        self._load_state(await self._read())
        await self.next_turn()

    # -- journal, state and workspace -----------------------------------------------------------------------------

    async def _append(self, make: Callable[[Head, int], Commit], large: Mapping[BlobId, bytes] | None = None) -> Commit:
        """Make a commit on top of the head, and do it.

        Args:
            large: has the commit's payloads that go out of line, once it is made; they are made durable before it.

        Raises:
            ChronicleError: nothing was committed.
            Evicted: the lease is lost.
        """
        async with self._writing:
            commit = make(self.ledger.head, self._env.clock.now_ms())
            if large:
                await self._env.run_blocking(self._env.blobs.put, large)
            await self.ledger.append(commit)
        return commit

    async def _read_or_create(self) -> AgentRecord:
        try:
            return await self._read()
        except UnknownAgent:  # addressed, and never started
            await self._create()
            return await self._read()

    async def _create(self) -> None:
        payload: JsonObject = {
            "agent": str(self._address),
            "entity_type": self._entity_type,
            "version": self._schema_version,
            "state": to_json(self._new_state()),
            "tree_id": None,
            "oplog_id": None,
        }
        ledger, ids = self.ledger, self._env.ids
        large: dict[BlobId, bytes] = {}
        await self._append(
            lambda head, now_ms: created_commit(
                ledger.session, head, payload, ledger.epoch, ids.event(now_ms), now_ms, large
            ),
            large,
        )

    def _new_state(self) -> DeltaState:
        try:
            return self._class.State()
        except StateError:
            raise
        except (Exception, SystemExit) as error:  # of a default or a validator of the user's
            message = f"making a new {self._class.__name__}.State raised {type(error).__name__}: {error}"
            raise AgentLoadError(message, traceback.format_exc()) from error

    async def _read(self) -> AgentRecord:
        return await self.ledger.read(lambda: read_agent(self._env.store, self._env.blobs, self._address))

    def _load_state(self, record: AgentRecord) -> None:
        if hasattr(self, "state"):
            retire(self.state)
        self.state = from_json(self._class.State, record.state, record.schema_version)
        restrict_to_turns(self.state, str(self._address))
        self._schema_patch = migration_patch(record.state, self.state)
        self._snapshots.opened(record)

    def _listener(self, message: InboxMessage | None, stream_of: InboxMessage | None) -> Callable[[Frame], None]:
        """Return what a hook's frames are passed to: all of them for its message, emitted events for another one."""
        publish = self._publish
        if message is not None:
            return lambda frame: publish(message, frame)
        if stream_of is not None:
            return lambda frame: publish(stream_of, frame) if frame["type"] == "event" else None
        return _discard

    def _context(self, scope: TurnScope) -> AgentContext[Any]:
        return AgentContext(scope, self._address, self.state, self.workspace.root)


def body_of(message: InboxMessage) -> dict[str, Any]:
    """Return a message as a hook is given it."""
    return cast("dict[str, Any]", decode(message.body or b"{}"))


def _discard(frame: Frame) -> None:
    """Drop a frame of a hook that nobody listens to."""
