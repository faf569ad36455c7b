"""The message loop of an activation: the next message, retries with back-off, the idle timeout, the end.

One loop runs one activation. It owns neither lease nor process; their owner acts on the loop's `Ending`.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import structlog
from structlog.contextvars import bound_contextvars

from podium.errors import Evicted
from podium.turn.activation import Step
from podium.turn.wakeup import Wakeup

if TYPE_CHECKING:
    from podium.turn.activation import Activation

__all__ = ["Ending", "MessageLoop"]

_UNPOKED_S: Final = 0.25
"""After the last message that was in the inbox, the inbox is read when the loop is poked, as after each admission; and
after this time, in case a poke was lost."""

_HELD_UP_S: Final = 1.0
"""Time that an agent stays awake whose turn is paused: a message that cancels the turn comes after the agent was woken
for it."""

_log = structlog.stdlib.get_logger("podium.turn.message_loop")


class Ending(StrEnum):
    """Why a loop ended."""

    IDLE = "idle"
    """The agent was idle and may sleep."""
    STOPPED = "stopped"
    """`MessageLoop.stop` was called."""
    EVICTED = "evicted"
    """Another activation has the lease."""


class MessageLoop:
    """Runs an activation until it is idle, stopped or evicted.

    Args:
        activation: started by the caller.
        idle_timeout_s: seconds without a message after which `on_idle_timeout` is called.
    """

    def __init__(self, activation: Activation, idle_timeout_s: float) -> None:
        self._activation = activation
        self._idle_timeout_s = idle_timeout_s
        self._poked = Wakeup()
        self._stopping = False
        self._evicted = False

    def poke(self) -> None:
        """Wake the loop: a message may have been admitted."""
        self._poked.set()

    def stop(self) -> None:
        """End after the running turn, if there is one."""
        self._stopping = True
        self._poked.set()

    def request_stop(self) -> None:
        """Start no further turn. Thread-safe; unlike `stop` it does not wake a loop that waits for a message."""
        self._stopping = True

    def evict(self) -> None:
        """End at once, without writing: the lease is lost."""
        self._evicted = True
        self._activation.interrupt()
        self._poked.set()

    async def run(self) -> Ending:
        """Drive the activation to its end and close its workspace.

        Raises:
            TurnsLost: the journal has lost turns of the activation, which another one starts without.
            Exception: the activation cannot continue, for example because its workspace could not be rolled back. No
                committed turn is lost; the next activation starts from the last commit.
        """
        with bound_contextvars(agent_id=str(self._activation.address), epoch=self._activation.lease.epoch):
            return await self._run()

    async def _run(self) -> Ending:
        try:
            ending = await self._drive()
            if ending is Ending.EVICTED:
                await self._activation.check_head()
                await self._activation.abandon()
            else:
                await self._activation.stop()
        except Evicted as error:
            _log.warning("evicted", agent_id=str(self._activation.address), error=str(error))
            await self._activation.abandon()
            return Ending.EVICTED
        except BaseException:
            await self._activation.abandon()
            raise
        return ending

    async def _drive(self) -> Ending:
        idle_s = self._idle_timeout_s
        while True:
            if not self._activation.has_read_ahead:  # a poke is for a message that is not among those read ahead
                self._poked.clear()
            if self._evicted:
                return Ending.EVICTED
            if self._stopping:
                return Ending.STOPPED
            step = await self._activation.handle_next()
            if step is Step.RETRY:
                await self._back_off(self._activation.retry_delay_s)
                continue
            if step is Step.HANDLED and self._activation.inbox_is_drained:
                unpoked_s = min(_UNPOKED_S, self._idle_timeout_s)
                idle_s = self._idle_timeout_s if await self._was_poked(unpoked_s) else self._idle_timeout_s - unpoked_s
            elif step is Step.NOTHING:
                wait_s = min(_HELD_UP_S, idle_s) if self._activation.is_held_up else idle_s
                if not await self._was_poked(wait_s) and await self._may_sleep():
                    return Ending.IDLE
                idle_s = self._idle_timeout_s

    async def _back_off(self, delay_s: float) -> None:
        """Wait before the next attempt of a message, while it is to be attempted, and the loop is to go on."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + delay_s
        while not (self._evicted or self._stopping) and self._activation.waits_to_retry:
            left_s = until_s - now_s()
            if left_s <= 0:
                return
            await self._poked.wait(left_s)

    async def _was_poked(self, timeout_s: float) -> bool:
        """Wait until the loop is poked; ``False`` after the timeout."""
        return self._poked.is_set or await self._poked.wait(timeout_s)

    async def _may_sleep(self) -> bool:
        if self._activation.is_read:
            return False
        return await self._activation.idle() and not self._poked.is_set and not self._activation.is_read
