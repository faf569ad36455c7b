"""Leases in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.errors import LeaseHeld
from chronicle.journal.memory.tables import Tables
from chronicle.journal.records import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Session

__all__ = ["Leases"]


class Leases(Tables):
    """Holders and epochs of leases."""

    def acquire_lease(
        self, session_id: SessionId, holder: str, now_ms: int, ttl_ms: int, *, takeover: bool = False
    ) -> Lease:
        """Acquire the lease under a new epoch, one higher than the last."""
        with self._open():
            session = self._session(session_id)
            held = session.lease
            if held is not None and held.holder != holder and held.expires_ms > now_ms and not takeover:
                raise LeaseHeld(held.holder, held.epoch, held.expires_ms)
            session.epoch += 1
            session.lease = Lease(session_id, holder, session.epoch, now_ms + ttl_ms)
            return session.lease

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Release the lease; does nothing if it is no longer held under that epoch."""
        with self._open():
            session = self._sessions.get(session_id)
            if session is not None and session.lease is not None and session.lease.epoch == epoch:
                session.lease = None

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> Sequence[SessionId]:
        """Extend leases, each given by its session and epoch, to ``now_ms + ttl_ms`` in one transaction."""
        stale: list[SessionId] = []
        with self._open():
            for session_id, epoch in leases:
                session = self._sessions.get(session_id)
                if session is None or session.lease is None or session.lease.epoch != epoch:
                    stale.append(session_id)
                else:
                    session.lease = replace(session.lease, expires_ms=now_ms + ttl_ms)
        return stale

    def release_leases(self, leases: Sequence[tuple[SessionId, int]]) -> None:
        """Release leases, each given by its session and epoch, in one transaction."""
        for session_id, epoch in leases:
            self.release_lease(session_id, epoch)

    def lease(self, session_id: SessionId) -> Lease | None:
        """Return the lease as last acquired; ``None`` if released or never acquired."""
        with self._open():
            session = self._sessions.get(session_id)
            return session.lease if session is not None else None

    def held_sessions(self, holder_prefix: str) -> Sequence[tuple[Session, Lease]]:
        """Return the leases, expired or not, whose holder's name starts with ``holder_prefix``, with their sessions."""
        with self._open():
            held = [(each.record, each.lease) for each in self._sessions.values() if each.lease is not None]
            return [(session, lease) for session, lease in held if lease.holder.startswith(holder_prefix)]
