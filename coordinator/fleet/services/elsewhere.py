"""Agents that end their turns on the Ray cluster of another service, which has handed the home over to this one.

Until such an agent has ended its turn and released its lease, nothing wakes it here: its lease would be taken from a
host that lives, though not on this cluster, and the attempt would be lost.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError
from coordinator.fleet.leases import HOST_PREFIX
from coordinator.fleet.services.handover import STALE_S, Freshness, draining
from podium.address import Address
from podium.errors import InvalidAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore
    from coordinator.documents import Documents

__all__ = ["LOOK_S", "Elsewhere"]

LOOK_S: Final = 0.25
"""Interval of looks at which of them have ended their turns: an agent that has is woken here after it."""
_CLOCKS_MS: Final = 5000
"""By how much the clocks of a machine and of the database may differ: a lease that has ended is nobody's."""

_log = structlog.stdlib.get_logger("coordinator.elsewhere")


class Elsewhere:
    """The agents of a service that drains.

    Args:
        documents: the home's; ``None`` if there is no other service.
        store: the journal.
        clock: for the ends of leases.
        alive: whether a host of a name is alive on this cluster.
    """

    def __init__(
        self,
        documents: Documents | None = None,
        store: JournalStore | None = None,
        clock: Clock | None = None,
        alive: Callable[[str], bool] = bool,
    ) -> None:
        self._documents = documents
        self._store = store
        self._clock = clock if clock is not None else SystemClock()
        self._alive = alive
        self._freshness = Freshness(is_seen=True)
        self._hosts: frozenset[str] | None = None
        """The hosts of the other service that had agents at the first look."""
        self._agents: frozenset[Address] = frozenset()
        self.is_draining = False
        """Whether another service has turns to end: then a host that is not known here may live."""

    def __contains__(self, address: Address) -> bool:
        """Whether an agent has not ended its turn elsewhere, as far as is known."""
        return address in self._agents

    def look(self) -> float:
        """Look which agents are left; it blocks. Return after how many seconds to look again, 0 if none are left.

        Raises:
            ChronicleError: it is not known; what was known stays.
        """
        if self._documents is None or self._store is None:
            return 0.0
        begun_s = time.monotonic()
        try:
            told = draining(self._documents)
        except ChronicleError:
            self._freshness = Freshness(is_seen=True)  # what could not be read is no silence
            raise
        if time.monotonic() - begun_s > STALE_S:
            self._freshness = Freshness(is_seen=True)
        if not self._freshness.holds(told):
            if told is not None:
                _log.warning("draining_service_gone", service=told[0], then="its agents are woken here")
            self.is_draining, self._agents, self._hosts = False, frozenset(), None
            return 0.0
        held = list(self._store.held_sessions(HOST_PREFIX))
        if self._hosts is None:
            self._hosts = frozenset({lease.holder for _, lease in held if not self._alive(lease.holder)})
        agents, ended_ms = set(), self._clock.now_ms() - _CLOCKS_MS
        for session, lease in held:
            if lease.holder in self._hosts and lease.expires_ms > ended_ms:
                with contextlib.suppress(InvalidAddress):
                    agents.add(Address.of(session))
        self._agents, self.is_draining = frozenset(agents), True
        return max(LOOK_S, 4 * (time.monotonic() - begun_s))  # of thousands of agents the read takes a while

    def look_again(self) -> float:
        """As `look`, where an error is logged, and it is looked again."""
        try:
            return self.look()
        except ChronicleError as error:
            _log.warning("draining_service_not_known", error=str(error))
            return LOOK_S
