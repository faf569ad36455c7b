"""An activation: one agent's life in memory, from its waking to its going to sleep.

It is driven from outside, one step at a time, by the host's loop, a test harness or a simulator; it starts no tasks
and no threads of its own, but for the blocking calls it waits for and the steering of a turn. Its caller's duties: call
`start` once, then `handle_next` and `idle` one at a time, `stop` at the end; `cancel`, `preempt` and `interrupt` may
come at any time between.

Here it is decided which message is next, how often it is tried and who is told; turns themselves are
:mod:`podium.turn.runner`'s. It knows no Ray, no FUSE and no SQL: the store, the workspace's opener, clock and ids are
given to it.
"""

from __future__ import annotations

import asyncio
import traceback
from enum import Enum
from typing import TYPE_CHECKING, Any

import structlog

from chronicle.errors import ChronicleError
from chronicle.journal.records import Outcome
from podium.errors import AgentAsleep, AgentLoadError
from podium.turn.busy import BusyPolicy, may_preempt
from podium.turn.commit import Stop
from podium.turn.hook_call import TryFailed
from podium.turn.journal_frames import settled_frames
from podium.turn.runner import TurnRunner, body_of
from podium.turn.stream import StreamHub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from chronicle.ids import MessageId
    from chronicle.journal.records import InboxMessage, Lease
    from chronicle.workspace.port import TreeRef, Workspace
    from podium.address import Address
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext
    from podium.agent.models.delta_state import DeltaState
    from podium.events import Cause, ErrorInfo
    from podium.turn.environment import Environment
    from podium.turn.stream import Frame

__all__ = ["Activation", "Step"]

_log = structlog.stdlib.get_logger("podium.turn.activation")


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

    Raises:
        AgentLoadError: the class's ``__init__`` raised.
    """

    def __init__(self, agent_class: type[BaseAgent], address: Address, lease: Lease, environment: Environment) -> None:
        self._class = agent_class
        self._agent = _instance(agent_class)
        self._lease = lease
        self._env = environment
        self._runner = TurnRunner(self._agent, address, environment, self._publish)
        self._usercode = self._runner.usercode
        self._initialised = False
        self._over = False
        self._choosing = asyncio.Lock()
        """Held while it is decided what becomes of a message that waits."""
        self._current: InboxMessage | None = None
        """The message that is being handled."""
        self._stops: dict[str, Stop] = {}
        """Why messages that are being handled were stopped, unless their senders took them back."""
        self.address = address
        self.streams = StreamHub()

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self, *, unclean: bool = False, lost: str | None = None) -> None:
        """Load state, open the workspace, and record what an earlier activation left unfinished.

        Args:
            unclean: the activation before did not end in order; that counts as one attempt of the inbox's head.
            lost: how its process ended, in a few words; ``None`` if that is not known.

        Raises:
            StateError: the stored state does not fit the class.
            AgentLoadError: the agent is new, and its class's State cannot be made.
            Evicted: the lease is lost already.
        """
        session = await self._env.run_store(self._env.store.session, str(self.address))
        recovered = await self._runner.open(session, self._lease)
        if unclean or recovered is not None:
            await self._record_lost_try(recovered, unclean=unclean, lost=lost)
            await self._runner.next_turn()  # the workspace need not tell of it any more

    async def handle_next(self) -> Step:
        """Take the inbox's next message and try to handle it once.

        Raises:
            Evicted: the lease is lost; nothing was written, and the activation is over.
        """
        async with self._choosing:
            self._current = message = await self._runner.ledger.next_message()
        if message is None:
            return Step.NOTHING
        try:
            return await self._handle(message)
        finally:
            self._current = None

    async def idle(self) -> bool:
        """Ask `on_idle_timeout`, and commit what it changed.

        Returns:
            whether the agent may go to zero.
        """
        answer = await self._run_hook("idle", self._agent.on_idle_timeout, self._class.turn_timeout_s)
        return bool(answer) if answer is not None else True

    async def stop(self) -> None:
        """End in order: `on_shutdown`, a last commit of what changed, old history dropped, and the workspace closed.

        Streams that still wait end with `AgentAsleep`: their messages are in the inbox. The lease stays the caller's.
        """
        try:
            if self._initialised:
                await self._run_hook("shutdown", self._agent.on_shutdown, self._class.shutdown_timeout_s)
                await self._retain()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Let go of the workspace and end the streams without writing anything; for a lost lease or a broken start."""
        self._over = True
        self.streams.fail_all(AgentAsleep(f"{self.address} is going to sleep"))
        try:
            await self._runner.close()
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
        store, blobs, ledger = self._env.store, self._env.blobs, self._runner.ledger
        branch_id = ledger.session.main_branch_id
        # The store's head, not the ledger's: a commit whose answer is still on its way has settled the message already.
        return await ledger.read(lambda: settled_frames(store, blobs, branch_id, message_id))

    # -- from outside, while it runs ------------------------------------------------------------------------------

    @property
    def lease(self) -> Lease:
        """The lease it runs under."""
        return self._lease

    @property
    def turn(self) -> int:
        """Turns committed so far."""
        return self._runner.turn

    @property
    def state(self) -> DeltaState:
        """The live state; what is not yet committed included."""
        return self._runner.state

    @property
    def workspace(self) -> Workspace:
        """The open workspace."""
        return self._runner.workspace

    @property
    def running_message_id(self) -> MessageId | None:
        """On behalf of which message a hook runs now; ``None`` when none runs. It may be read from any thread."""
        return self._usercode.message_id

    @property
    def due_s(self) -> float | None:
        """When the running hook's time is over, by the clock's ``monotonic_s``; ``None`` when no hook runs."""
        return self._usercode.due_s

    @property
    def due_because(self) -> str:
        """Why the running hook's time ends when it does, such as ``its limit of 600 s``; to be read as `due_s`."""
        return self._usercode.due_because

    async def cancel(self, message_id: MessageId) -> None:
        """Take a message back for its sender, or give up one that was parked.

        One that waits or is parked is dropped for good before this returns. The turn of one that is being handled is
        stopped; that is for good when its stream has ended. It is too late for one that is committed, and for one that
        steers a turn until that turn fails. Call it from a task that is not cancelled.

        Raises:
            NotFound: no such message.
            Evicted: the lease is lost; the message waits for the next activation.
        """
        async with self._choosing:
            current = self._current
            if (current is not None and current.message_id == message_id) or self._runner.is_steered(message_id):
                self._usercode.take_back(message_id)
                return
            message = await self._message(message_id)
            if message.status.is_in_inbox:
                await self._drop(message)

    async def preempt(self, message_id: MessageId, policy: BusyPolicy) -> None:
        """Do what the sender of a message that waits asks for if the agent is busy with an earlier one.

        It is harmless when it is not, and when it is asked again. What is asked for holds for the turn that runs now.

        Raises:
            NotFound: no such message.
        """
        if policy in (BusyPolicy.ENQUEUE, BusyPolicy.REJECT):
            return
        async with self._choosing:
            message = await self._message(message_id)
            current = self._current
            if current is None or not may_preempt(message, current):
                return
            if policy is BusyPolicy.STEER:
                self._runner.steer(message)
            elif self._usercode.message_id == current.message_id:  # else it is being committed or rolled back
                self._stops.setdefault(current.message_id, Stop(policy, message_id))
                self._usercode.take_back(current.message_id)

    def make_due(self, message_id: str | None = None) -> None:
        """Let a message's time be over now, if it is being handled; from any thread. It stops nothing by itself.

        Args:
            message_id: whichever is being handled if ``None``.
        """
        self._usercode.make_due(message_id)

    def interrupt(self) -> None:
        """Stop the running turn, if one runs, because the activation has to end: nothing of it is kept.

        Its message stays in the inbox, and no attempt is counted.
        """
        self._usercode.interrupt()

    # -- one message ----------------------------------------------------------------------------------------------

    async def _handle(self, message: InboxMessage) -> Step:
        if self._usercode.is_taken_back(message.message_id):  # while it steered a turn that failed
            await self._drop(message)
            return Step.HANDLED
        attempt = message.attempts + 1
        self._publish(message, {"type": "turn_start", "turn": self.turn + 1, "attempt": attempt})
        try:
            await self._ensure_initialised(message)
            body = body_of(message)
            done = await self._runner.run(
                "message", message, lambda ctx: self._agent.on_message(ctx, body), self._class.turn_timeout_s
            )
        except TryFailed as failed:
            return await self._after_failure(message, failed)
        head = self._runner.ledger.head
        for consumed in (message, *done.steered):
            self._forget(consumed)
            end: Frame = {"type": "turn_end", "turn": head.turn, "version": head.seq, "patch": done.patch}
            self._publish(consumed, end)
        await self._runner.next_turn()
        return Step.HANDLED

    async def _after_failure(self, message: InboxMessage, failed: TryFailed) -> Step:
        if failed.cancelled:
            stop = self._stops.get(message.message_id, Stop())
            await self._runner.cancel(message, stop, failed.said)
            self._forget(message)
            self._publish(message, {"type": "error", "error": stop.error, "parked": False})
            return Step.HANDLED
        if failed.interrupted:
            await self._runner.fail(None, Outcome.FAILED, failed.error, failed.hook)
            return Step.RETRY
        attempt = message.attempts + 1
        if attempt < self._class.max_attempts:
            await self._runner.fail(message, Outcome.FAILED, failed.error, failed.hook)
            again: Frame = {"type": "turn_retry", "attempt": attempt, "error": failed.error, "hook": failed.hook}
            self._publish(message, again)
            return Step.RETRY
        await self._runner.fail(message, Outcome.PARKED, failed.error, failed.hook)
        self._forget(message)
        end: Frame = {"type": "error", "error": failed.error, "hook": failed.hook, "attempt": attempt, "parked": True}
        self._publish(message, end)
        return Step.HANDLED

    async def _retain(self) -> None:
        try:
            await self._runner.retain()
        except ChronicleError as error:  # the next activation does it
            _log.warning("history_not_folded", agent_id=str(self.address), error=str(error))

    async def _drop(self, message: InboxMessage) -> None:
        stop = Stop()
        await self._runner.drop(message, stop)
        self._forget(message)
        self._publish(message, {"type": "error", "error": stop.error, "parked": False})

    async def _message(self, message_id: MessageId) -> InboxMessage:
        return await self._runner.ledger.read(lambda: self._env.store.message(message_id))

    def _forget(self, message: InboxMessage) -> None:
        """Forget what was asked of a message that is settled."""
        self._usercode.forget(message.message_id)
        self._stops.pop(message.message_id, None)

    def _publish(self, message: InboxMessage, frame: Frame) -> None:
        self.streams.publish(message.message_id, frame)

    # -- the other hooks ------------------------------------------------------------------------------------------

    async def _ensure_initialised(self, message: InboxMessage) -> None:
        if not self._initialised:
            await self._runner.run("init", None, self._agent.on_init, self._class.turn_timeout_s, stream_of=message)
            await self._runner.next_turn()
            self._initialised = True

    async def _run_hook(self, cause: Cause, hook: Callable[[AgentContext[Any]], Awaitable[Any]], limit_s: float) -> Any:
        """Run a hook as a turn of its own; a failure is recorded and rolled back, and gives ``None``."""
        try:
            done = await self._runner.run(cause, None, hook, limit_s)
        except TryFailed as failed:
            _log.warning("hook_failed", agent_id=str(self.address), hook=cause, error=failed.error)
            await self._runner.fail(None, Outcome.FAILED, failed.error, failed.hook)
            return None
        await self._runner.next_turn()
        return done.answer

    async def _record_lost_try(self, recovered: TreeRef | None, *, unclean: bool, lost: str | None) -> None:
        message = await self._runner.ledger.next_message() if unclean else None
        last_try = message is not None and message.attempts + 1 >= self._class.max_attempts
        ended = "its process ended before the turn was committed"
        error: ErrorInfo = {"type": "HostLost", "message": f"{ended}: {lost}" if lost else ended}
        _log.info("try_lost", agent_id=str(self.address), error=error)
        await self._runner.record_failure(message, Outcome.PARKED if last_try else Outcome.FAILED, error, recovered)


def _instance(agent_class: type[BaseAgent]) -> BaseAgent:
    try:
        return agent_class()
    except (Exception, SystemExit) as error:  # a user's exception may not exist in the process that is told of it
        message = f"{agent_class.__name__}.__init__ raised {type(error).__name__}: {error}"
        raise AgentLoadError(message, traceback.format_exc()) from error
