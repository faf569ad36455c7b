"""Renewals of leases, of all hosts of a node together.

Each host asks three times in the life of a lease. One that asks for the first time, or when its last renewal is nearly
so long ago, has the leases of all hosts renewed, in one call of the journal; the others then find theirs renewed. So
the database sees one renewal in that time, whatever the number of hosts, and no lease is left alone for more than two
thirds of its life.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.port import JournalStore

__all__ = ["Renewals"]

_ASKS: Final = 3
"""How often a host asks in the life of a lease (`coordinator.host.host_watch`)."""
_DUE: Final = 0.9
"""From which part of the time between two asks on a lease is renewed: hosts do not ask on the dot."""
_ASKED: Final = 1.5
"""For which part of that time a host that does not ask again has its leases renewed along."""
_TOGETHER: Final = 1000
"""Leases renewed in one transaction, during which commits of their sessions wait."""


@dataclass(slots=True)
class _Renewed:
    """A lease of a host."""

    epoch: int
    ttl_ms: int
    asked_s: float
    renewed_s: float
    is_lost: bool = False

    @property
    def interval_s(self) -> float:
        return self.ttl_ms / 1000 / _ASKS


class Renewals:
    """The renewals of a store process. Its methods may be called from any thread.

    Args:
        store: the journal.
        now_s: a monotonic clock.
    """

    def __init__(self, store: JournalStore, now_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now_s = now_s
        self._hosts: dict[str, dict[SessionId, _Renewed]] = {}
        self._guard = threading.Lock()

    def renew(self, host_id: str, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> list[SessionId]:
        """Renew leases of a host, unless they were a moment ago; see `LeaseRecords.renew_leases`.

        Returns:
            the sessions whose leases the host has lost, as of the last renewal.

        Raises:
            Unavailable: the journal could not be reached.
        """
        with self._guard:
            now_s = self._now_s()
            known = self._hosts.setdefault(host_id, {})
            for session_id, epoch in leases:
                lease = known.get(session_id)
                if lease is None or lease.epoch != epoch:
                    lease = known[session_id] = _Renewed(epoch, ttl_ms, now_s, -math.inf)
                lease.asked_s, lease.ttl_ms = now_s, ttl_ms
            asked = [known[session_id] for session_id, _ in leases]
            if any(now_s - lease.renewed_s >= _DUE * lease.interval_s for lease in asked if not lease.is_lost):
                self._renew_all(now_ms, now_s)
            return [session_id for session_id, _ in leases if known[session_id].is_lost]

    def forget(self, host_id: str, sessions: Iterable[SessionId]) -> None:
        """Renew some leases of a host no more."""
        with self._guard:
            known = self._hosts.get(host_id, {})
            for session_id in sessions:
                known.pop(session_id, None)
            if not known:
                self._hosts.pop(host_id, None)

    def _renew_all(self, now_ms: int, now_s: float) -> None:
        by_ttl: dict[int, dict[SessionId, _Renewed]] = {}
        for host_id, known in list(self._hosts.items()):
            for session_id, lease in list(known.items()):
                if now_s - lease.asked_s > _ASKED * lease.interval_s:  # the host has ended, or stands still
                    del known[session_id]
                    if not known:
                        del self._hosts[host_id]
                elif not lease.is_lost:
                    newest = by_ttl.setdefault(lease.ttl_ms, {})
                    other = newest.get(session_id)
                    if other is not None:  # an epoch has one holder, and the higher one came after
                        min(lease, other, key=lambda each: each.epoch).is_lost = True
                    if other is None or other.epoch < lease.epoch:
                        newest[session_id] = lease
        for ttl_ms, leases in by_ttl.items():
            rest = iter(leases.items())
            while part := dict(islice(rest, _TOGETHER)):
                given = [(session_id, lease.epoch) for session_id, lease in part.items()]
                lost = set(self._store.renew_leases(given, now_ms, ttl_ms))
                for session_id, lease in part.items():
                    lease.renewed_s, lease.is_lost = now_s, session_id in lost
