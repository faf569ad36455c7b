"""The delivery of an admitted message: to its agent's host, and to the next one, until the message is settled.

Hosts end and are replaced during a delivery. The message has one stream of frames all the same, in which each failed
attempt is reported once, in order (`_Attempts`): by the host that retries it, or from the journal if the attempt ended
with its host. Which host has the agent is known to `coordinator.ray.router`, which makes the calls to Ray.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.clock import SystemClock
from coordinator.fleet.liveness import PROBES_PER_SILENCE
from coordinator.host.delivery import WayLost
from coordinator.service.repetition import Told
from podium.errors import AgentAsleep, HostDied
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from coordinator.client_messages import Admitted
    from coordinator.fleet.model import Code, Route
    from coordinator.ray.router import Router
    from coordinator.service.repetition import Repetition
    from podium.address import Address
    from podium.turn.stream import Frame

__all__ = ["MessageDelivery"]

_log: Final = structlog.stdlib.get_logger(__name__)

_POSITION_EVERY_S: Final = 2.0
"""Interval at which a waiting message's position is reported."""
_AGAIN_S: Final = 0.2
"""Pause before a host that lives and was not reached is tried again: its ``podium node`` starts, or a cable is cut."""
_LATER_S: Final = 1.0
"""Pause if that was in vain."""
_WAITING: Final = frozenset({BusyPolicy.ENQUEUE, BusyPolicy.REJECT})
"""Policies of messages for which the coordinator is asked for nothing but to wake the agent."""


class MessageDelivery:
    """Delivers messages.

    Args:
        router: the way to agents.
        silence_s: seconds without an answer to a liveness probe after which a host counts as dead.
    """

    def __init__(self, router: Router, silence_s: float) -> None:
        self._router = router
        self._routes = router.routes
        self._silence_s = silence_s
        self._clock = SystemClock()

    async def deliver(self, address: Address, code: Code, message: Admitted) -> AsyncGenerator[list[Frame], None]:
        """Yield the frames of a message in batches; wake its agent, and again if its host ends before that is settled.

        Raises:
            PodiumError: the agent cannot be woken; the message stays in its inbox.
        """
        lost: Route | None = None
        cut_off: Route | None = None
        """The route to a host that lives, and was not reached."""
        told = Told()
        attempts, repeated = _Attempts(message), message.receipt.repeated
        while True:
            frames: list[Frame] = []
            known = route = self._routes.get(address)
            if route is None:
                # One that was admitted now is read by waking the agent.
                fresh = lost is None and cut_off is None and not repeated
                if message.before and message.when_busy in _WAITING:
                    async for queued in self._while_held_up(message):
                        yield queued
                frames = [] if fresh else await message.settled()
                if not frames:
                    try:
                        route = await self._router.wake(address, code, lost, may_be_early=message.when_busy in _WAITING)
                    except HostDied:  # its last attempt may have been that of the activation
                        frames = await message.settled()
                        if not frames:
                            raise
            ended_with_hosts = lost is not None or repeated or route is None
            if ended_with_hosts and (retries := await attempts.unreported()):
                yield retries
            if route is None:
                yield told.repetition().new(frames)
                return
            again = cut_off is not None and (route.host_id, route.epoch) == (cut_off.host_id, cut_off.epoch)
            with self._routes.in_use(address):
                if known is None:
                    self._routes.put(address, route)
                    start = self._router.agent_start(address, route) if not again else None
                    if start is not None:
                        yield [{"message_id": message.message_id, **start}]
                repetition = told.repetition() if again else None
                try:
                    async with aclosing(self._stream(address, route, message, repetition)) as batches:
                        async for batch in batches:
                            if reported := await attempts.report(batch):
                                if route.machine:
                                    told.add(reported)
                                yield reported
                except AgentAsleep:
                    lost = route
                except WayLost as error:
                    if not again:
                        _log.warning("way_lost", host_id=route.host_id, agent_id=str(address), error=str(error))
                    if await self._lives(route):
                        await asyncio.sleep(_LATER_S if again else _AGAIN_S)
                        cut_off = route
                    else:
                        lost = route
                except HostDied as error:
                    _log.warning("host_lost", host_id=route.host_id, agent_id=str(address), error=str(error))
                    lost = route
                else:
                    return
            self._routes.drop(address, route)

    async def _while_held_up(self, message: Admitted) -> AsyncGenerator[list[Frame], None]:
        """Yield ``queued`` frames of a message as long as it waits behind a paused turn; its agent is not woken."""
        before = message.before
        while await message.is_held_up():
            if before != (before := await message.count_before()):
                yield [{"type": "queued", "message_id": message.message_id, "before": before}]
            await asyncio.sleep(_POSITION_EVERY_S)

    async def _lives(self, route: Route) -> bool:
        """Return whether a host lives, as far as Ray knows, although it could not be reached."""
        try:
            await self._router.probe_host(route)
        except (AgentAsleep, HostDied):
            return False
        return True

    async def _stream(
        self, address: Address, route: Route, message: Admitted, repetition: Repetition | None = None
    ) -> AsyncGenerator[list[Frame], None]:
        """Yield a host's frames of a message, ``queued`` frames while it waits, and the terminal frame in any case.

        Args:
            repetition: if the host was asked for them before, what takes out those that it tells again.
        """
        channel = self._routes.channel(address, route)
        if message.when_busy not in _WAITING and repetition is None:
            await self._router.preempt(address, message.message_id, message.when_busy)
        before, begun, heard_s = message.before, False, self._clock.monotonic_s()
        # Others may be settled unread.
        is_next = message.when_busy in _WAITING and not message.receipt.repeated and repetition is None
        known = (message.receipt.position, message.offer) if is_next else (None, None)
        delivering = channel.deliver(address, message.message_id, *known, tick_s=_POSITION_EVERY_S)
        async with aclosing(delivering) as batches:
            async for batch in batches:
                if batch:
                    heard_s = self._clock.monotonic_s()
                    begun = begun or any(frame["type"] == "turn_start" for frame in batch)
                    yield batch if repetition is None else repetition.new(batch)
                    continue
                if not begun and before != (before := await message.count_before()):
                    yield [{"type": "queued", "message_id": message.message_id, "before": before}]
                if self._clock.monotonic_s() > heard_s + self._silence_s / PROBES_PER_SILENCE:
                    await self._router.probe_host(route)
                    heard_s = self._clock.monotonic_s()
                    if frames := await message.settled():
                        _log.warning("end_not_reported", host_id=route.host_id, message_id=message.message_id)
                        yield frames
                        return


class _Attempts:
    """The failed attempts of a message that were reported: each is reported once, whichever source has it."""

    def __init__(self, message: Admitted) -> None:
        self._message = message
        self._last = 0

    async def unreported(self) -> list[Frame]:
        """Return the ``turn_retry`` frames that the journal has of further failed attempts."""
        return self._new(await self._message.failed_tries())

    async def report(self, batch: list[Frame]) -> list[Frame]:
        """Return a host's batch without attempts that were reported, and with those that ended with an earlier host."""
        retries = [frame for frame in batch if frame["type"] == "turn_retry"]
        if retries:
            new = self._new(retries)
            batch = [frame for frame in batch if frame["type"] != "turn_retry" or frame in new]
        skips = any(frame["type"] == "turn_start" and frame["attempt"] > self._last + 1 for frame in batch)
        return [*await self.unreported(), *batch] if skips else batch

    def _new(self, retries: list[Frame]) -> list[Frame]:
        new = [frame for frame in retries if frame["attempt"] > self._last]
        self._last = max([self._last, *(frame["attempt"] for frame in new)])
        return new
