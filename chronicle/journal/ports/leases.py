"""The part of the port of journal stores that is about leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Lease, Session

__all__ = ["LeaseRecords"]


class LeaseRecords(Protocol):
    """Leases of sessions, each under an epoch.

    They go by the time that callers give (``now_ms``), unless the store is on a server: then by its clock.
    """

    def acquire_lease(
        self,
        session_id: SessionId,
        holder: str,
        now_ms: int,
        ttl_ms: int,
        *,
        takeover: bool = False,
        least_epoch: int = 0,
    ) -> Lease:
        """Acquire the lease under a new epoch, one higher than the last, or ``least_epoch`` if that is higher.

        Args:
            takeover: acquire it before another holder's lease has expired, because that holder is known to be dead.
            least_epoch: higher than epochs that the journal may have lost.

        Raises:
            LeaseHeld: another holder's lease has not expired and ``takeover`` is false. A holder may replace its own
                lease.
            NotFound: no such session.
        """

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> Sequence[SessionId]:
        """Extend leases, each given by its session and epoch, to ``now_ms + ttl_ms`` in one transaction.

        Returns:
            the sessions whose leases were acquired by another holder, or released, or that do not exist; the others'
            leases are extended all the same.
        """

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Release the lease; does nothing if it is no longer held under that epoch."""

    def release_leases(self, leases: Sequence[tuple[SessionId, int]]) -> None:
        """Release leases, each given by its session and epoch, in one transaction; each as `release_lease` does."""

    def lease(self, session_id: SessionId) -> Lease | None:
        """Return the lease as last acquired, expired or not; ``None`` if released or never acquired."""

    def held_sessions(self, holder_prefix: str) -> Sequence[tuple[Session, Lease]]:
        """Return the leases, expired or not, whose holder's name starts with ``holder_prefix``, with their sessions."""
