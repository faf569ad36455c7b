"""Turns of one agent: each moves state, files and branch together, by one commit.

Order of a turn, and what a kill at each point leaves::

    begin ─ hook runs ─ drain state ─ seal files ─ journal commit ─ adopt tree ─ "turn_end" to the client
          └──────── nothing of it ────────────────┘└──────── all of it ───────────────────────────────┘

The activation selects messages, counts attempts and publishes frames. Turns run one at a time; only `drop` may be
called while one runs.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, cast

from chronicle.errors import ChronicleError, StorageRefused
from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus, StoredStep
from podium.agent.agent_types import agent_type_of
from podium.agent.base import BaseAgent, sandbox_of
from podium.agent.context import AgentContext
from podium.agent_record import AgentRecord, read_agent, snapshot_body
from podium.artifacts.writing import ArtifactWriter
from podium.errors import AgentLoadError, Permanent, UnknownAgent
from podium.events import HOOKS
from podium.history.step_record import read_record, write_record
from podium.messages.headers import ask_in
from podium.state import StateError, apply_patch, from_json, migration_patch, take, to_json
from podium.state.access import TurnPermit, restrict_to_turns, retire
from podium.state.guard import Permit, use_permit
from podium.turn.busy import BusyPolicy
from podium.turn.hooks.hook_runner import AttemptFailed, AttemptPaused, HookRunner, describe, is_permanent
from podium.turn.hooks.seen_config import SeenConfig
from podium.turn.hooks.steering import STEERED, Steering
from podium.turn.journal.commit import (
    CompletedTurn,
    FailedAttempt,
    NextCommit,
    TurnResult,
    body_of,
    cancel_commit,
    created_commit,
    failure_commit,
    pause_commit,
    turn_commit,
)
from podium.turn.journal.ledger import Ledger
from podium.turn.journal.snapshot_policy import SnapshotPolicy
from podium.turn.ports import Environment, WorkspaceRequest
from podium.turn.retaining import retain
from podium.turn.rollback import roll_back, seal_failed_attempt
from podium.turn.scope.artifacts import keep_artifacts
from podium.turn.scope.open_turn import OpenTurn
from podium.turn.scope.recorded_calls import RecordedCalls, name_texts
from podium.turn.scope.turn_scope import TurnScope
from podium.turn.steps.changes import question
from podium.turn.steps.pausing import Pause
from podium.turn.steps.turn_steps import LiveAgent, TurnSteps
from podium.turn.stream import frame_sink, turn_start
from podium.turn.telemetry import TurnOutcome
from podium.turn.turn_telemetry import TurnTelemetry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.ids import BlobId, EventId
    from chronicle.journal.records import Commit, Draft, InboxMessage, Lease, Outcome, Session
    from chronicle.workspace.port import TreeRef, Workspace
    from podium.address import Address
    from podium.agent.models.delta_state import DeltaState
    from podium.events import Cause, ErrorInfo
    from podium.sandbox.policy import Policy
    from podium.turn.journal.commit import Cancellation
    from podium.turn.steps.changes import Misfit
    from podium.turn.stream import Frame
    from podium.turn.telemetry import Span

__all__ = ["TurnRunner"]


class TurnRunner:
    """Runs turns of one agent under one lease.

    Args:
        agent: the instance whose hooks are called.
        address: the agent's.
        environment: store, blobs, clock, ids and the workspace opener.
        publish: sends a frame to the readers of a message.
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
        self._sandbox = sandbox_of(self._class)
        self._on_failed = address if self._class.on_failed is not BaseAgent.on_failed else None
        self.config = SeenConfig(
            environment.config, observed=self._class.on_config_change is not BaseAgent.on_config_change
        )
        self._snapshots = SnapshotPolicy(environment.most_replayed_turns)
        self._schema_patch: list[JsonObject] = []
        self._writing = asyncio.Lock()
        """Held from reading the head until the commit on top of it is done."""
        self._steering: Steering | None = None
        self._calls: RecordedCalls
        self._permit: Permit | None = None
        """The running turn's permit to change the state."""
        self._steps: TurnSteps | None = None
        self._sealed: TreeRef | None = None
        """The tree of the last commit, until the workspace has adopted it."""
        self.hooks = HookRunner(str(address), environment.clock)
        self.telemetry = TurnTelemetry(address, environment.meter, environment.tracer, environment.clock)
        self.ledger: Ledger
        self.state: DeltaState
        self.workspace: Workspace

    # -- beginning ------------------------------------------------------------------------------------------------

    async def open(self, session: Session, lease: Lease) -> TreeRef | None:
        """Load the state and open the workspace.

        Returns:
            the recovered tree of an attempt that an earlier activation left unfinished; ``None`` without one.

        Raises:
            StateError: the stored state does not fit the class.
            AgentLoadError: the agent is new, and its class's State cannot be built.
            Evicted: the lease is lost already.
        """
        env = self._env
        head = await env.run_store(env.store.head, session.main_branch_id)
        self.ledger = Ledger(env.store, env.committer, session, lease, head, env.run_store, env.leases)
        self._calls = RecordedCalls(env, self.ledger)
        record = await self._read_or_create()
        opened = await env.open_workspace(WorkspaceRequest(self._address, record.tree, lease.epoch, self.turn + 1))
        self.workspace = opened.workspace
        self._load_state(record)
        return opened.recovered

    async def close(self) -> None:
        """Close the workspace, if it was opened."""
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
        event_id: EventId | None = None,
        stream_of: InboxMessage | None = None,
        attempt: Span | None = None,
    ) -> CompletedTurn:
        """Run a hook, and commit its turn unless it changed nothing; call `begin_next_turn` afterwards.

        A turn that handles a message is always committed.

        Args:
            message: what the turn handles and consumes.
            event_id: the id of the message's event; required with a message.
            stream_of: for a hook that runs on behalf of a message, the message whose stream gets the events that the
                hook emits. Its replies and artifacts answer no message and are only recorded: a client would get them
                or not, depending on whether the agent slept.
            attempt: the span of the message's attempt, which the turn is traced in.

        Raises:
            AttemptFailed: the hook failed; the caller rolls the turn back.
            AttemptPaused: the hook was stopped because its turn pauses; the caller calls `pause`.
            Evicted: the lease is lost.
        """
        on_behalf_of = message or stream_of
        turn = OpenTurn(
            self.turn + 1,
            self._address,
            self._env,
            self.workspace,
            ArtifactWriter(self._env.blobs, lambda: self.workspace.root, self._class.max_artifact_bytes),
            self.ledger.reminders,
            self._sandbox,
            self._calls,
        )
        scope = TurnScope(turn, message, frame_sink(self._publish, message, stream_of))
        if message is not None:
            assert event_id is not None, "a message is recorded as an event"
            scope.record_message(message, event_id)  # first: its replies follow it
        context = self._context(scope)
        steerable = message is not None and self._steerable
        steering = self._steering = Steering(lambda handed: self._steer(scope, handed)) if steerable else None

        def call() -> Awaitable[Any]:
            return steering.run(lambda: hook(context)) if steering is not None else hook(context)

        steps: TurnSteps | None = None
        try:
            with (
                self.telemetry.hook(cause, turn.number, attempt) as span,
                TurnPermit(self.state, f"turn {turn.number} of {self._address}") as self._permit,
            ):
                turn.traceparent = span.traceparent
                if message is not None:
                    if self._sandbox is not None:
                        await self._check(self._sandbox)
                    steps = await self._open_steps(turn, message, limit_s)
                answer = await self.hooks.call(call, limit_s, on_behalf_of.message_id if on_behalf_of else None)
                if steps is not None:
                    await steps.finish()
                    if steps.pause_at is not None:  # by a task that the hook has left behind
                        raise AttemptPaused("the turn pauses")
                steered = steering.taken if steering is not None else ()
                patch = await self._commit(cause, message, turn, steered)
        except AttemptFailed as failed:
            turn.close()
            failed.misfit = self._steps.misfit if self._steps is not None else None
            failed.said = scope.replies.so_far()
            failed.hook = "on_steer" if steering is not None and steering.failed else HOOKS[cause]
            raise
        except AttemptPaused as paused:
            turn.close()
            assert steps is not None, "only a step pauses a turn"
            assert steps.pause_at is not None, "it has stopped the hook"
            paused.pause = steps.pause_at
            raise
        except (ChronicleError, StateError, OSError, Permanent) as error:
            turn.close()
            failure = AttemptFailed(describe(error), permanent=is_permanent(error), hook=HOOKS[cause])
            failure.misfit = self._steps.misfit if self._steps is not None else None
            raise failure from error
        finally:
            self._steering = self._permit = self._steps = None
            if steps is not None:
                await steps.close()
            self.telemetry.streamed(turn.tokens)
        if turn.outbox or turn.delayed or turn.reminders:
            self._env.on_sent()
        return CompletedTurn(answer, patch, steered, turn.results)

    async def begin_next_turn(self) -> None:
        """Adopt the committed tree as the workspace's base; changes from now on belong to the next turn."""
        tree, self._sealed = self._sealed, None
        if tree is not None and tree != self.workspace.base:
            await self._env.run_blocking(self.workspace.adopt, tree)
        await self._env.run_blocking(self.workspace.begin_turn, self.turn + 1)

    async def retain(self) -> None:
        """Apply the class's retention; see `podium.turn.retaining.retain`."""
        if (policy := self._class.retention) is not None:
            await retain(policy, self._env, self.ledger, self.committed, self._append)

    def steer(self, message: InboxMessage) -> bool:
        """Steer the running turn with a message, if a turn runs and accepts messages.

        A turn that replays the steps of an earlier attempt accepts none: what it changed, a later step would undo.

        Returns:
            whether the turn has the message.
        """
        if self._steps is not None and self._steps.replays and not self.is_steered(message.message_id):
            return False
        return self._take(message)

    def _take(self, message: InboxMessage) -> bool:
        steering = self._steering
        return steering is not None and (steering.has(message.message_id) or steering.take(message))

    def is_steered(self, message_id: str) -> bool:
        """Whether a message steers the running turn."""
        return self._steering is not None and self._steering.has(message_id)

    @staticmethod
    async def _check(sandbox: Policy) -> None:
        """Refuse a message whose class asks for a sandbox that this machine does not have.

        Raises:
            SandboxRefused: it has none that is as strong.
        """
        from podium.sandbox.probe import best_rung  # noqa: PLC0415  for agents that run commands only

        await best_rung(sandbox)

    async def _open_steps(self, turn: OpenTurn, message: InboxMessage, limit_s: float) -> TurnSteps:
        """Open the steps of a turn, with those that earlier attempts ended. Call it in the task of the hook."""

        async def base() -> JsonObject:
            return cast("JsonObject", apply_patch((await self.committed()).state, self._schema_patch))

        stored = await self.ledger.steps(message.message_id)
        agent = LiveAgent(self._address, self._env, self.ledger, self.workspace, self.state, self.telemetry)
        steps = TurnSteps(agent, message.message_id, stored, base, self._steer_again, self.hooks.pause)
        if steps.is_given_up:
            failed = AttemptFailed({"type": "Cancelled", "message": "it was given up"}, cancelled=True)
            failed.given_up = True
            raise failed
        self._steps = steps
        if stored:
            await steps.check_fit()
        turn.steps = steps
        turn.deadline_ms = self._env.clock.now_ms() + int(limit_s * 1000)
        return steps

    async def _steer_again(self, message_id: str) -> bool:
        """Steer the running turn with a message that steered an earlier attempt, if it still waits."""
        message = await self.ledger.read(lambda: self._env.store.message(MessageId(message_id)))
        return message.status is MessageStatus.PENDING and self._take(message)

    async def _steer(self, scope: TurnScope, message: InboxMessage) -> None:
        event_id = self._env.ids.event(self._env.clock.now_ms())
        self._publish(message, turn_start(scope.turn.number, message.attempts + 1, event_id, steered=True))
        if self._steps is not None:
            self._steps.steered(message.message_id)
        await scope.replies.emit(STEERED, {"message_id": message.message_id, "message": body_of(message)})
        handed = scope.steered(message, lambda frame: self._publish(message, frame), event_id)
        assert self._permit is not None, "a turn is steered while it runs"
        with use_permit(self._permit):  # the task was created by the caller of `steer`
            await self._agent.on_steer(self._context(handed), body_of(message))

    async def _commit(
        self, cause: Cause, message: InboxMessage | None, turn: OpenTurn, steered: Sequence[InboxMessage]
    ) -> list[JsonObject]:
        """Commit a hook's turn, and return the state's patch."""
        env = self._env
        steps = self._steps
        drafts = await turn.finish()
        changes, state = take(self.state, whole=self._snapshots.due, recheck=steps is not None and steps.recheck)
        patch = [*self._schema_patch, *(steps.patch if steps is not None else ()), *changes]
        with self.telemetry.seal():
            tree = await env.run_blocking(self.workspace.seal)
        config = self.config.to_record(cause)
        sent = turn.outbox or turn.delayed
        changed = patch or drafts or sent or turn.reminders or (cause == "config" and config is not None)
        if not (message or changed) and tree == self.workspace.base:
            return patch
        await keep_artifacts(turn)
        snapshot = None
        if state is not None:
            seen = self.config.seen if config is None else config
            snapshot = snapshot_body(turn.number, self._entity_type, self._schema_version, state, tree, seen)
        result = TurnResult(
            turn.number,
            cause,
            message,
            steered,
            drafts,
            self._entity_type,
            self._schema_version,
            patch,
            tree,
            turn.outbox,
            snapshot,
            config,
            steps=steps.summary if steps is not None else None,
            reminders=turn.changed_reminders,
            delayed=turn.delayed,
        )
        commit, large = await self._append(lambda next_commit: turn_commit(next_commit, result))
        self._schema_patch = []
        if config is not None:
            self.config.seen = config
        last = commit.events[-1]
        self._snapshots.committed(len(large[last.payload_ref] if last.payload_ref else last.payload or b""), snapshot)
        self._sealed = tree
        self.telemetry.committed(len(turn.outbox) + len(turn.delayed))
        return patch

    # -- a turn that does not -------------------------------------------------------------------------------------

    async def fail(self, message: InboxMessage | None, outcome: Outcome, error: ErrorInfo, hook: str | None) -> None:
        """Record a failed attempt with its tree, and go back to the last commit.

        If the disk is too full for the record, the attempt's files are rolled back first, and the record has no tree.

        Args:
            hook: the name of the hook that failed.

        Raises:
            Evicted: the lease is lost.
            ChronicleError: the workspace could not be rolled back, or the disk is still full; the activation must end.
        """
        tree = await seal_failed_attempt(self._env, self.workspace, self._address)
        attempt = FailedAttempt(outcome, error, message, hook, tree)
        try:
            await self.record_failure(attempt)
        except StorageRefused:
            await roll_back(self._env, self.workspace)
            await self.record_failure(attempt)
        await self._reload()
        self.telemetry.rolled_back(TurnOutcome(outcome), counted=message is not None)

    async def record_failure(self, attempt: FailedAttempt) -> None:
        """Record a failed attempt that is rolled back already; raises as `fail`."""
        commit, _ = await self._append(lambda next_commit: failure_commit(next_commit, attempt, self._on_failed))
        if commit.outbox:
            self._env.on_sent()

    async def cancel(self, message: InboxMessage, cancellation: Cancellation, said: Sequence[Draft]) -> None:
        """Record a cancelled turn with its tree, and go back to the last commit; raises as `fail`.

        Args:
            said: the message's event and its replies so far.
        """
        tree = await seal_failed_attempt(self._env, self.workspace, self._address)
        try:
            await self._append_cancel(message, cancellation, said, tree)
        except StorageRefused:  # as in `fail`
            await roll_back(self._env, self.workspace)
            await self._append_cancel(message, cancellation, said, tree)
        await self._reload()
        self.telemetry.rolled_back(TurnOutcome.CANCELLED)

    async def pause(self, message: InboxMessage, pause: Pause) -> None:
        """Record that the turn of a message pauses, and go back to the last commit; raises as `fail`."""
        try:
            await self._append_pause(message, pause)
        except StorageRefused:  # as in `fail`
            await roll_back(self._env, self.workspace)
            await self._append_pause(message, pause)
        await self._reload()
        self.telemetry.rolled_back(TurnOutcome.PAUSED)
        self._env.on_sent()

    async def ask_about_steps(self, message: InboxMessage, misfit: Misfit) -> Pause:
        """Pause the turn of a message whose recorded steps do not fit until a person decides; raises as `fail`."""
        records = [read_record(step.body, self._env.blobs) for step in await self.ledger.steps(message.message_id)]
        asked = ask_in(message.headers)
        record = question(records, misfit, self._env.clock.now_ms(), asked.deadline_ms if asked is not None else None)
        pause = Pause(len(records) + 1, record)
        step = StoredStep(message.message_id, pause.number, record.key, write_record(record, {}))
        try:
            await self.ledger.put_step(step)
        except StorageRefused:  # as in `fail`
            await roll_back(self._env, self.workspace)
            await self.ledger.put_step(step)
        await self.pause(message, pause)
        return pause

    async def drop(self, message: InboxMessage, cancellation: Cancellation) -> None:
        """Record the cancellation of a pending, paused or parked message; raises `Evicted` as `fail`."""
        self.ledger.pass_over(message)
        await self._append_cancel(message, cancellation, (), None)

    async def _append_pause(self, message: InboxMessage, pause: Pause) -> None:
        await self._append(lambda next_commit: pause_commit(next_commit, message, self._address, pause))

    async def _append_cancel(
        self, message: InboxMessage, cancellation: Cancellation, said: Sequence[Draft], tree: TreeRef | None
    ) -> None:
        if cancellation.policy is BusyPolicy.INTERRUPT:  # else the calls are recorded without the texts that they name
            name_texts(said)
        await self._append(lambda next_commit: cancel_commit(next_commit, message, cancellation, said, tree))

    async def _reload(self) -> None:
        self._calls.forget()
        await roll_back(self._env, self.workspace)
        await self._env.run_blocking(self._env.store.reserve.restore)
        self._load_state(await self.committed())
        await self.begin_next_turn()

    # -- journal, state and workspace -----------------------------------------------------------------------------

    async def _append(self, make: Callable[[NextCommit], Commit]) -> tuple[Commit, Mapping[BlobId, bytes]]:
        """Build a commit on top of the head, and commit it.

        Returns:
            the commit, and its payloads that are out of line.

        Raises:
            ChronicleError: nothing was committed.
            Evicted: the lease is lost.
        """
        async with self._writing:
            ledger, env = self.ledger, self._env
            next_commit = NextCommit(ledger.session, ledger.head, ledger.epoch, env.ids, env.clock.now_ms())
            commit = make(next_commit)
            with self.telemetry.commit():
                if next_commit.large:
                    await env.run_blocking(env.blobs.put, next_commit.large)
                await ledger.append(commit)
        return commit, next_commit.large

    async def _read_or_create(self) -> AgentRecord:
        try:
            return await self.committed()
        except UnknownAgent:  # it has an inbox and never started
            await self._create()
            return await self.committed()

    async def _create(self) -> None:
        payload: JsonObject = {
            "agent": str(self._address),
            "entity_type": self._entity_type,
            "version": self._schema_version,
            "state": to_json(self._new_state()),
            "tree_id": None,
            "oplog_id": None,
            **({"config": self._env.config} if self._env.config else {}),
        }
        await self._append(lambda next_commit: created_commit(next_commit, payload))

    def _new_state(self) -> DeltaState:
        try:
            return self._class.State()
        except StateError:
            raise
        except (Exception, SystemExit) as error:  # of a default or a validator of the user's
            message = f"building a new {self._class.__name__}.State raised {type(error).__name__}: {error}"
            raise AgentLoadError(message, traceback.format_exc()) from error

    async def committed(self) -> AgentRecord:
        """Return the agent at its last commit, read from the journal."""
        return await self.ledger.read(lambda: read_agent(self._env.store, self._env.blobs, self._address))

    def _load_state(self, record: AgentRecord) -> None:
        if hasattr(self, "state"):
            retire(self.state)
        self.state = from_json(self._class.State, record.state, record.schema_version)
        restrict_to_turns(self.state, str(self._address))
        self.config.seen = record.config
        self._schema_patch = migration_patch(record.state, self.state)
        self._snapshots.opened(record)

    def _context(self, scope: TurnScope) -> AgentContext[Any]:
        return AgentContext(scope, self._address, self.state, self.workspace, self._env.config)
