"""An activation: one agent in memory, from its waking until it sleeps.

It is driven from outside, one step at a time, by the host's message loop, a test harness or a simulator. It starts no
tasks and no threads of its own, except blocking calls and the steering of a turn. The caller's duties: call `start`
once, then `handle_next` and `idle` one at a time, `stop` at the end; `cancel`, `preempt` and `interrupt` may be called
at any time between.

The activation selects the next message, counts its attempts and publishes the frames; :mod:`podium.turn.runner` runs
the turns. It knows no Ray, no FUSE and no SQL: store, workspace opener, clock and ids are passed in.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.errors import ChronicleError, NotFound
from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus, Outcome
from podium.agent.handler_specs import policy_for
from podium.errors import AgentAsleep, AgentLoadError
from podium.events import HOOKS
from podium.messages.headers import failed_in
from podium.turn.busy import BusyPolicy, may_preempt
from podium.turn.hooks.hook_runner import AttemptFailed, AttemptPaused, leaves_of
from podium.turn.hooks.message_hook import hook_for
from podium.turn.journal.commit import Cancellation, FailedAttempt, body_of
from podium.turn.journal.frames import pause_frames, settled_frames
from podium.turn.journal.lost_attempt import judge_lost_attempt
from podium.turn.runner import TurnRunner
from podium.turn.scope.asks import time_left_s
from podium.turn.shutdown import shut_down
from podium.turn.stream import StreamHub, turn_start
from podium.turn.telemetry import TurnOutcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from chronicle.journal.records import InboxMessage, Lease
    from chronicle.workspace.port import TreeRef, Workspace
    from podium.address import Address
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext
    from podium.agent.models.delta_state import DeltaState
    from podium.events import Cause
    from podium.turn.journal.ledger import Offer
    from podium.turn.ports import Environment
    from podium.turn.reading import Read
    from podium.turn.steps.pausing import Pause
    from podium.turn.stream import Frame
    from podium.turn.telemetry import Span

__all__ = ["Activation", "Step"]

_SOON_S: Final = 1.0
"""Time without a frame of a message that was not handled yet, after which the journal is asked."""

_log = structlog.stdlib.get_logger("podium.turn.activation")


class Step(Enum):
    """Result of `Activation.handle_next`."""

    NOTHING = "nothing"
    """No message waits."""
    HANDLED = "handled"
    """A message was committed, cancelled, parked or paused."""
    RETRY = "retry"
    """An attempt failed and was rolled back; the message is still the next one."""


class Activation:
    """One agent, awake under one lease.

    Args:
        agent_class: the user's class.
        address: the agent's.
        lease: held by the caller, who also renews and releases it.
        environment: store, blobs, clock, ids and the workspace opener.

    Raises:
        AgentLoadError: the class's ``__init__`` raised.
    """

    def __init__(self, agent_class: type[BaseAgent], address: Address, lease: Lease, environment: Environment) -> None:
        self._class = agent_class
        self._agent = _instance(agent_class)
        self._lease = lease
        self._env = environment
        self._runner = TurnRunner(self._agent, address, environment, self._publish)
        self._hooks = self._runner.hooks
        self._initialised = False
        self._over = False
        self._reads: dict[object, float] = {}
        """The deadlines of the read-only handlers that run, by the clock's ``monotonic_s``."""
        """Calls of read-only handlers that run."""
        self._choosing = asyncio.Lock()
        """Held while a pending message is taken from the inbox or cancelled, so that none is both."""
        self._current: InboxMessage | None = None
        """The message that is being handled."""
        self._before_hook: MessageId | None = None
        """The message being handled while its hook has not begun."""
        self._early_steering: list[MessageId] = []
        """Messages that are to steer the turn whose hook has not begun."""
        self._cancellations: dict[str, Cancellation] = {}
        """Why the messages being handled were cancelled, unless their own senders cancelled them."""
        self._retried: MessageId | None = None
        """The message whose last attempt failed, and that is to be attempted again."""
        self.address = address
        self.streams = StreamHub()
        self.retry_delay_s = 0.0
        """Delay before the next attempt after `Step.RETRY`, in seconds."""

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self, *, unclean: bool = False, lost: str | None = None) -> None:
        """Load the state, open the workspace, and record an attempt that an earlier activation left unfinished.

        Args:
            unclean: the activation before did not end in order; that counts as one attempt of the oldest message.
            lost: how its process ended, in a few words; ``None`` if unknown.

        Raises:
            StateError: the stored state does not fit the class.
            AgentLoadError: the agent is new, and its class's State cannot be built.
            Evicted: the lease is lost already.
        """
        session = await self._env.run_store(self._env.store.session, self.address.name, self.address.tenant)
        recovered = await self._runner.open(session, self._lease)
        if unclean or recovered is not None:
            await self._record_lost_attempt(recovered, unclean=unclean, lost=lost)
            await self._runner.begin_next_turn()  # the layer need not be recovered again

    async def handle_next(self) -> Step:
        """Take the oldest pending message and attempt to handle it once.

        Raises:
            Evicted: the lease is lost; nothing was written, and the activation is over.
            TurnsLost: the journal has lost turns of this activation; likewise.
        """
        async with self._choosing:
            self._current = message = await self._runner.ledger.next_message()
            self._before_hook = message.message_id if message is not None else None
        if message is None:
            return Step.NOTHING
        try:
            await self._runner.ledger.make_sure()
            with self._runner.telemetry.attempt(message, self._lease.epoch) as attempt:
                return await self._handle(message, attempt)
        finally:
            self._current = self._before_hook = None
            self._early_steering.clear()  # it was for this turn

    async def read(self, message: dict[str, Any]) -> Read:
        """Call the read-only handler that a message names, at once; see `podium.turn.reading.read`.

        Raises:
            AgentAsleep: the activation is over.
        """
        from podium.turn.reading import read  # noqa: PLC0415  few agents have such handlers

        if self._over:
            raise AgentAsleep(f"{self.address} is going to sleep")
        this, limit_s = object(), self._class.turn_timeout_s
        self._reads[this] = self._env.clock.monotonic_s() + limit_s
        try:
            record = await self._runner.committed()
            return await read(self._agent, record, self._env.config, message, limit_s)
        finally:
            del self._reads[this]

    @property
    def is_read(self) -> bool:
        """Whether a read-only handler runs."""
        return bool(self._reads)

    @property
    def read_deadline_s(self) -> float | None:
        """The first deadline of the read-only handlers that run, by the clock's ``monotonic_s``. Thread-safe."""
        return min(list(self._reads.values()), default=None)

    async def idle(self) -> bool:
        """Call `on_idle_timeout`, and commit what it changed; not while a turn is paused, whose base that would change.

        Returns:
            whether the agent may sleep.
        """
        if self.is_held_up:
            return True
        answer = await self._run_hook("idle", self._agent.on_idle_timeout, self._class.turn_timeout_s)
        return bool(answer) if answer is not None else True

    async def stop(self) -> None:
        """End in order: `on_shutdown`, a last commit, retention of the history, and closing the workspace.

        Open streams end with `AgentAsleep`: their messages are in the inbox. The caller releases the lease.
        """
        try:
            if self._initialised:
                await self._run_hook("shutdown", self._shut_down, self._class.shutdown_timeout_s)
                await self._retain()
        finally:
            await self.abandon()

    async def _shut_down(self, ctx: AgentContext[Any]) -> None:
        await shut_down(self._agent, ctx, self._runner, self._env)

    async def check_head(self) -> None:
        """Check that the journal has the last commit; see `Ledger.check_head`."""
        await self._runner.ledger.check_head()

    async def abandon(self) -> None:
        """Close the workspace and end the streams without writing; for a lost lease or a failed start."""
        self._over = True
        self.streams.fail_all(AgentAsleep(f"{self.address} is going to sleep"))
        try:
            await self._runner.close()
        except ChronicleError as error:  # its mount server is gone, and the mount with it; the next opening cleans up
            _log.warning("workspace_not_closed", agent_id=str(self.address), error=str(error))

    def offer(self, offer: Offer) -> None:
        """Hand over a message that was admitted a moment ago; see `Ledger.offer`."""
        self._runner.ledger.offer(offer)

    async def follow(self, message_id: MessageId, position: int | None = None) -> AsyncGenerator[list[Frame], None]:
        """Yield the frames of a message in batches, from now on, up to its terminal frame.

        For a message that is settled already, they are read from the journal.

        Args:
            position: of the message in the inbox, if known. For one that was admitted a moment ago, the journal is read
                only if no frame of it comes soon.

        Raises:
            AgentAsleep: the activation ended before the message was settled; deliver it again.
            NotFound: no such message.
        """
        with self.streams.subscribe(message_id) as subscription:
            looked = not self._runner.ledger.is_open(message_id, position)
            if looked and (frames := await self.settled(message_id)):
                yield frames
                return
            if self._over:
                raise AgentAsleep(f"{self.address} is going to sleep")
            async for batch in subscription.batches(None if looked else _SOON_S):
                if batch:
                    yield batch
                elif not looked:
                    looked = True
                    if frames := await self.settled(message_id):
                        yield frames
                        return

    async def settled(self, message_id: MessageId) -> list[Frame]:
        """Return the frames of a settled message, read from the journal; an empty list while it is pending.

        Raises:
            NotFound: no such message.
        """
        store, blobs, ledger = self._env.store, self._env.blobs, self._runner.ledger
        branch_id = ledger.session.main_branch_id
        # The store's head, not the ledger's: a commit whose answer is still on its way has settled the message already.
        return await ledger.read(lambda: settled_frames(store, blobs, branch_id, message_id))

    # -- from outside, while it runs ------------------------------------------------------------------------------

    @property
    def lease(self) -> Lease:
        """The lease that it runs under."""
        return self._lease

    @property
    def turn(self) -> int:
        """Turns committed so far."""
        return self._runner.turn

    @property
    def state(self) -> DeltaState:
        """The live state, uncommitted changes included."""
        return self._runner.state

    @property
    def workspace(self) -> Workspace:
        """The open workspace."""
        return self._runner.workspace

    @property
    def has_read_ahead(self) -> bool:
        """Whether the next message is known already, and the inbox not read before it is handled."""
        return self._runner.ledger.has_read_ahead

    @property
    def inbox_is_drained(self) -> bool:
        """Whether all messages that were in the inbox when it was last read are settled."""
        return self._runner.ledger.is_drained

    @property
    def is_held_up(self) -> bool:
        """Whether a turn is paused, so that there is nothing to do."""
        return self._runner.ledger.is_held_up

    @property
    def waits_to_retry(self) -> bool:
        """Whether the message of the last `Step.RETRY` is still to be attempted, so that its delay is waited for."""
        return self._retried is not None and not self._hooks.is_cancelled(self._retried)

    @property
    def running_message_id(self) -> MessageId | None:
        """The message on whose behalf a hook runs; ``None`` when none runs. Thread-safe."""
        return self._hooks.message_id

    @property
    def deadline_s(self) -> float | None:
        """The running hook's deadline, by the clock's ``monotonic_s``; ``None`` when no hook runs. Thread-safe."""
        return self._hooks.deadline_s

    @property
    def deadline_reason(self) -> str:
        """The reason of the running hook's deadline, such as ``its limit of 600 s``. Thread-safe."""
        return self._hooks.deadline_reason

    async def cancel(self, message_id: MessageId) -> None:
        """Cancel a message for its sender.

        A pending, paused or parked message is cancelled durably before this returns. The turn of a message being
        handled is stopped; the cancellation is durable when the message's stream has ended. A committed message cannot
        be cancelled, nor one that steers a turn, unless that turn fails. Call it from a task that is not cancelled.

        Raises:
            NotFound: no such message.
            Evicted: the lease is lost; the message stays pending for the next activation.
        """
        async with self._choosing:
            current = self._current
            if (current is not None and current.message_id == message_id) or self._runner.is_steered(message_id):
                self._hooks.cancel(message_id)
                return
            message = await self._message(message_id)
            if message.status.is_in_inbox:
                await self._drop(message)

    async def preempt(self, message_id: MessageId, policy: BusyPolicy) -> None:
        """Apply the busy policy of a pending message to the turn of an earlier one, if such a turn runs.

        A message that was attempted and will be attempted again counts as running, also after a host's death: the
        policy applies as soon as its hook begins. Idempotent. It applies to the turn that runs now, not to later ones.
        A paused turn is cancelled by ``interrupt`` and ``rollback``; a message that is to steer it waits.

        Raises:
            NotFound: no such message.
        """
        if policy in (BusyPolicy.ENQUEUE, BusyPolicy.REJECT):
            return
        async with self._choosing:
            message = await self._message(message_id)
            current = self._current or await self._attempted()
            if current is None and policy is not BusyPolicy.STEER:
                paused = await self._runner.ledger.paused_message()
                if paused is not None and may_preempt(message, paused):
                    self._cancellations.setdefault(paused.message_id, Cancellation(policy, message_id))
                    await self._drop(paused)
                return
            if current is None or not may_preempt(message, current):
                return
            early = self._current is None or self._before_hook == current.message_id
            if policy is BusyPolicy.STEER:
                if early:
                    self._early_steering.append(message_id)
                else:
                    self._runner.steer(message)
            elif early or self._hooks.message_id == current.message_id:  # otherwise it is committed or rolled back now
                self._cancellations.setdefault(current.message_id, Cancellation(policy, message_id))
                self._hooks.cancel(current.message_id)

    def expire_deadline(self, message_id: str | None = None) -> None:
        """Move the deadline of a message being handled to now. Thread-safe. The hook itself is not stopped.

        Args:
            message_id: any message if ``None``.
        """
        self._hooks.expire_deadline(message_id)

    def interrupt(self) -> None:
        """Stop the running turn, if there is one, because the activation must end. The turn is rolled back.

        Its message stays in the inbox, and no attempt is counted.
        """
        self._hooks.interrupt()

    # -- one message ----------------------------------------------------------------------------------------------

    async def _handle(self, message: InboxMessage, attempt: Span) -> Step:
        if self._hooks.is_cancelled(message.message_id):  # cancelled while it steered a turn that failed
            await self._drop(message)
            return Step.HANDLED
        limit_s = time_left_s(message, self._class.turn_timeout_s, self._env.clock.now_ms())
        if limit_s <= 0:
            self._cancellations.setdefault(message.message_id, Cancellation(expired=True))
            await self._drop(message)
            return Step.HANDLED
        parked, about = None, failed_in(message.headers)
        if about is not None:
            parked = await self._parked(MessageId(about))
            if parked is None:  # it was put back or dropped meanwhile: nothing is to be said about it
                await self._drop(message)
                return Step.HANDLED
        hook, event_id = hook_for(self._agent, message, parked), self._env.ids.event(self._env.clock.now_ms())
        self._publish(message, turn_start(self.turn + 1, message.attempts + 1, event_id))
        try:
            await self._ensure_initialised(message)

            async def run_hook(ctx: AgentContext[Any]) -> None:
                self._before_hook = None
                await self._steer_early()
                await hook.run(ctx)

            done = await self._runner.run("message", message, run_hook, limit_s, event_id=event_id, attempt=attempt)
        except AttemptPaused as pauses:
            await self._runner.pause(message, pauses.pause)
            return await self._after_pause(message, pauses.pause)
        except AttemptFailed as failed:
            if failed.hook == HOOKS["message"]:
                failed.hook = hook.name
            attempt.fail(failed.error["type"], failed.error["message"])
            return await self._after_failure(message, failed)
        head = self._runner.ledger.head
        for consumed in (message, *done.steered):
            self._discard_requests(consumed)
            end: Frame = {"type": "turn_end", "turn": head.turn, "version": head.seq, "patch": done.patch}
            if consumed.message_id in done.results:
                end["data"] = done.results[consumed.message_id]
            self._publish(consumed, end)
        await self._runner.begin_next_turn()
        return Step.HANDLED

    async def _steer_early(self) -> None:
        """Hand the running turn the messages that came before its hook began; one that cannot be read waits instead."""
        for message_id in self._early_steering:
            try:
                await self.preempt(message_id, BusyPolicy.STEER)
            except ChronicleError as error:
                _log.warning("not_preempted", agent_id=str(self.address), message_id=message_id, error=str(error))

    async def _after_pause(self, message: InboxMessage, pause: Pause) -> Step:
        if self._hooks.is_cancelled(message.message_id):  # at the last moment
            await self._drop(replace(message, status=MessageStatus.PAUSED))
            return Step.HANDLED
        self._discard_requests(message)
        assert pause.record.pause is not None, "it is the step of a pause"
        for frame in pause_frames(pause.record.key, pause.record.pause, pause.record.args_hash):
            self._publish(message, frame)
        return Step.HANDLED

    async def _after_failure(self, message: InboxMessage, failed: AttemptFailed) -> Step:
        if failed.cancelled:
            cancellation = self._cancellations.get(message.message_id, Cancellation(given_up=failed.given_up))
            await self._runner.cancel(message, cancellation, failed.said)
            self._discard_requests(message)
            self._publish(message, {"type": "error", "error": cancellation.error, "parked": False})
            return Step.HANDLED
        if failed.interrupted:
            await self._runner.fail(None, Outcome.FAILED, failed.error, failed.hook)
            return self._retry(message, 0.0)
        if failed.misfit is not None:
            return await self._after_pause(message, await self._runner.ask_about_steps(message, failed.misfit))
        policy, attempt = policy_for(self._class, body_of(message)), message.attempts + 1
        permanent = failed.permanent or any(
            isinstance(leaf, Exception) and not isinstance(leaf, policy.on)
            for leaf in (leaves_of(failed.raised) if failed.raised is not None else ())
        )
        if attempt < policy.attempts and not permanent:
            await self._runner.fail(message, Outcome.FAILED, failed.error, failed.hook)
            again: Frame = {"type": "turn_retry", "attempt": attempt, "error": failed.error, "hook": failed.hook}
            self._publish(message, again)
            return self._retry(message, policy.delay_after_s(attempt))
        await self._runner.fail(message, Outcome.PARKED, failed.error, failed.hook)
        self._discard_requests(message)
        end: Frame = {"type": "error", "error": failed.error, "hook": failed.hook, "attempt": attempt, "parked": True}
        self._publish(message, end)
        return Step.HANDLED

    def _retry(self, message: InboxMessage, delay_s: float) -> Step:
        self._retried, self.retry_delay_s = message.message_id, delay_s
        return Step.RETRY

    async def _retain(self) -> None:
        try:
            await self._runner.retain()
        except ChronicleError as error:  # retried by the next activation
            _log.warning("history_not_folded", agent_id=str(self.address), error=str(error))

    async def _attempted(self) -> InboxMessage | None:
        """Return the oldest pending message if it was attempted before."""
        message = await self._runner.ledger.next_message()
        return message if message is not None and message.attempts else None

    async def _drop(self, message: InboxMessage) -> None:
        cancellation = self._cancellations.get(message.message_id, Cancellation())
        await self._runner.drop(message, cancellation)
        self._discard_requests(message)
        self._publish(message, {"type": "error", "error": cancellation.error, "parked": False})

    async def _message(self, message_id: MessageId) -> InboxMessage:
        return await self._runner.ledger.read(lambda: self._env.store.message(message_id))

    async def _parked(self, message_id: MessageId) -> InboxMessage | None:
        """Return a message if it is the agent's own, and parked."""
        try:
            message = await self._message(message_id)
        except NotFound:  # its record was pruned
            return None
        is_own = message.session_id == self._lease.session_id
        return message if is_own and message.status is MessageStatus.PARKED else None

    def _discard_requests(self, message: InboxMessage) -> None:
        """Discard the cancellation requests of a message that is settled."""
        if self._retried == message.message_id:
            self._retried = None
        self._hooks.clear(message.message_id)
        self._cancellations.pop(message.message_id, None)

    def _publish(self, message: InboxMessage, frame: Frame) -> None:
        self.streams.publish(message.message_id, frame)

    # -- the other hooks ------------------------------------------------------------------------------------------

    async def _ensure_initialised(self, message: InboxMessage) -> None:
        if not self._initialised:
            await self._runner.run("init", None, self._agent.on_init, self._class.turn_timeout_s, stream_of=message)
            await self._runner.begin_next_turn()
            self._initialised = True
        changes = self._runner.config.changes()
        if changes:
            await self._runner.run(
                "config",
                None,
                lambda ctx: self._agent.on_config_change(ctx, changes),
                self._class.turn_timeout_s,
                stream_of=message,
            )
            await self._runner.begin_next_turn()

    async def _run_hook(self, cause: Cause, hook: Callable[[AgentContext[Any]], Awaitable[Any]], limit_s: float) -> Any:
        """Run a hook as a turn of its own. A failure is recorded and rolled back; then the answer is ``None``."""
        try:
            done = await self._runner.run(cause, None, hook, limit_s)
        except AttemptFailed as failed:
            _log.warning("hook_failed", agent_id=str(self.address), hook=cause, error=failed.error)
            await self._runner.fail(None, Outcome.FAILED, failed.error, failed.hook)
            return None
        await self._runner.begin_next_turn()
        return done.answer

    async def _record_lost_attempt(self, recovered: TreeRef | None, *, unclean: bool, lost: str | None) -> None:
        message = await self._runner.ledger.next_message() if unclean else None
        attempts = policy_for(self._class, body_of(message)).attempts if message is not None else 1
        outcome, error = judge_lost_attempt(message, attempts, lost)
        _log.info("try_lost", agent_id=str(self.address), error=error)
        await self._runner.record_failure(FailedAttempt(outcome, error, message, tree=recovered))
        if message is not None:
            self._runner.telemetry.lost(TurnOutcome(outcome))


def _instance(agent_class: type[BaseAgent]) -> BaseAgent:
    try:
        return agent_class()
    except (Exception, SystemExit) as error:  # the caller's process may not have the user's exception class
        message = f"{agent_class.__name__}.__init__ raised {type(error).__name__}: {error}"
        raise AgentLoadError(message, traceback.format_exc()) from error
