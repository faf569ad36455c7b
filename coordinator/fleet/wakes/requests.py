"""Requests to wake agents: one for each agent without a route, shared by all its waiting callers.

They are served in rounds: in each, one request of every tenant that has some, in the order in which they were made. So
an agent never waits behind a storm of another tenant's. It does not depend on Ray or on hosts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from coordinator.telemetry.instruments import WAKE_DURATION, WAKES
from podium.turn.telemetry import NO_METER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from chronicle.clock import Clock
    from coordinator.fleet.model import Code, Route
    from podium.address import Address
    from podium.turn.telemetry import Meter

__all__ = ["QuietPeriod", "WakeRequest", "WakeRequests"]

_log: Final = structlog.stdlib.get_logger("coordinator")

_QUIET_AFTER_S: Final = 0.2
"""Time from the end of a wake until the fleet counts as quiet: the first turn follows the wake."""
_LONGEST_S: Final = 2.0
"""Wakes that follow each other for longer hold up nothing: without warm hosts each of them would take a second."""


@dataclass(slots=True)
class WakeRequest:
    """A request to wake an agent."""

    code: Code
    asked_s: float
    """When it was made, by the clock's ``monotonic_s``."""
    round: int = 0
    """In which it is to be served."""
    losses: int = 0
    """Hosts that died during the activation of the agent, or during their start for it."""
    poked: bool = False
    """Whether a message came during the activation of the agent, which may have read the inbox before."""
    route: asyncio.Future[Route] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The result: the route, or the error of the wake."""


@dataclass(slots=True)
class _Queue:
    """The open requests of a tenant."""

    length: int = 0
    last_round: int = -1
    """Of the latest of them."""


class WakeRequests:
    """The open requests; the activation of an agent may be under way.

    Args:
        added: called when a request is added, or is to be tried again.
        clock: for how long they take.
        meter: takes that.
    """

    def __init__(self, added: Callable[[], None], clock: Clock, meter: Meter = NO_METER) -> None:
        self._added = added
        self._clock = clock
        self._meter = meter
        self._requests: dict[Address, WakeRequest] = {}
        self._queues: dict[str, _Queue] = {}
        """Of the tenants with open requests, and of those that had one in the current round: another one of theirs is
        of the next."""
        self._round = 0
        """The latest of which a request was served."""
        self._activating: set[Address] = set()
        """The agents that a host is to activate, until it is known what became of that."""

    def add(self, address: Address, code: Code) -> WakeRequest:
        """Request an agent; return its open request if there is one."""
        request = self._requests.get(address)
        if request is None:
            queue = self._queues.setdefault(address.tenant, _Queue())
            queue.length += 1
            queue.last_round = max(self._round, queue.last_round + 1)
            request = WakeRequest(code, self._clock.monotonic_s(), queue.last_round)
            self._requests[address] = request
            self._added()
        return request

    def get(self, address: Address) -> WakeRequest | None:
        """Return the open request for an agent, if there is one."""
        return self._requests.get(address)

    def begin(self, address: Address) -> WakeRequest:
        """Note that a host is to activate an agent, which no other host gets until `end`; return the open request."""
        self._activating.add(address)
        request = self._requests[address]
        if request.round > self._round:
            self._round = request.round
            for tenant, queue in list(self._queues.items()):
                self._forget(tenant, queue)
        return request

    def end(self, address: Address) -> None:
        """Note that it is known what became of an activation."""
        self._activating.discard(address)
        if address in self._requests:  # it is to be tried again
            self._added()

    def waiting(self) -> Iterator[tuple[Address, Code]]:
        """Yield the requested agents that no host is to activate, and their codes, in the order of their service."""
        return ((address, code) for address, code in self if address not in self._activating)

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._requests)

    def __iter__(self) -> Iterator[tuple[Address, Code]]:
        """Yield the requested agents and their codes, in the order of their service."""
        found: Iterable[tuple[Address, WakeRequest]] = self._requests.items()
        if len(self._queues) > 1:
            found = sorted(found, key=lambda each: each[1].round)  # of a round the oldest first, as sorts are stable
        for address, request in found:
            yield address, request.code

    def fulfil(self, address: Address, request: WakeRequest, route: Route) -> None:
        """Complete a request with the route to the agent, and one that was made since it failed."""
        _log.info("agent_woken", agent_id=str(address), host_id=route.host_id, epoch=route.epoch, turn=route.turn)
        for each in (request, self._pop(address) or request):
            if not each.route.done():
                self._measure(address, each, "woken")
                each.route.set_result(route)

    def fail(self, address: Address, request: WakeRequest, error: Exception) -> None:
        """Fail a request with the reason why the agent cannot be woken."""
        if self._requests.get(address) is request:
            self._pop(address)
        if not request.route.done():
            self._measure(address, request, "failed")
            request.route.set_exception(error)
            request.route.exception()  # marks it as retrieved: asyncio would warn if no caller waits

    def fail_all(self, code: Code, error: Exception) -> list[Address]:
        """Fail all requests for agents of a code that cannot be loaded; return these agents."""
        failed = [address for address, request in self._requests.items() if request.code == code]
        for address in failed:
            self.fail(address, self._requests[address], error)
        return failed

    def start_lost(self, code: Code, error: Exception, most_losses: int) -> bool:
        """Count a host that died before it had loaded a code; fail the requests with more than ``most_losses`` losses.

        Returns:
            whether requests for the code remain: otherwise the start need not be retried.
        """
        for address, request in list(self._requests.items()):
            if request.code == code:
                request.losses += 1
                if request.losses > most_losses:
                    self.fail(address, request, error)
        return any(request.code == code for request in self._requests.values())

    def _pop(self, address: Address) -> WakeRequest | None:
        request = self._requests.pop(address, None)
        if request is not None:
            queue = self._queues[address.tenant]
            queue.length -= 1
            self._forget(address.tenant, queue)
        return request

    def _forget(self, tenant: str, queue: _Queue) -> None:
        if not queue.length and queue.last_round < self._round:
            del self._queues[tenant]

    def _measure(self, address: Address, request: WakeRequest, outcome: str) -> None:
        labels = address.agent_type, address.tenant
        self._meter.add(WAKES, (*labels, outcome))
        if outcome == "woken":
            self._meter.observe(WAKE_DURATION, labels, self._clock.monotonic_s() - request.asked_s)


class QuietPeriod:
    """Whether no agent is being woken, so that the work of the background may take a core.

    Args:
        clock: the source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waking = 0
        self._since_s = 0.0
        """When the wakes began that follow each other until now."""
        self._quiet_from_s = 0.0

    def wake_began(self) -> None:
        """Note that a host begins to activate an agent."""
        now_s = self._clock.monotonic_s()
        if not self._waking and now_s >= self._quiet_from_s:
            self._since_s = now_s
        self._waking += 1

    def wake_ended(self) -> float:
        """Note the end of an activation, good or bad; return the seconds after which there may be a lull."""
        self._waking -= 1
        self._quiet_from_s = self._clock.monotonic_s() + _QUIET_AFTER_S
        return _QUIET_AFTER_S

    def is_now(self) -> bool:
        """Whether there is a lull, or the wakes have gone on for so long that they are waited for no longer."""
        now_s = self._clock.monotonic_s()
        return (not self._waking and now_s >= self._quiet_from_s) or now_s >= self._since_s + _LONGEST_S
