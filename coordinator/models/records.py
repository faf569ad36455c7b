"""The ports to the records of calls. The contract in code is ``tests/contract/home_records.py``.

A call has a row before its provider is asked, with the status ``running``, and its result before the last chunk is
handed out. Rows that are ``running`` when a model gateway starts are those of one that was killed: they become
``lost``. Both writes survive a power loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from decimal import Decimal

    from coordinator.models.calls import CallRecord

__all__ = ["CallLog", "CallRecords"]


class CallRecords(Protocol):
    """The records of calls, for the model gateway. Safe to share between threads.

    Methods raise `StorageRefused` if they cannot be read or written, `Corrupt` if they are damaged.
    """

    def begin(self, record: CallRecord) -> bool:
        """Record a call that begins; durable on return.

        Returns:
            whether its id is new; else nothing was recorded.
        """
        ...

    def end(self, record: CallRecord) -> None:
        """Record the result of a call; durable on return."""
        ...

    def give_up_running(self) -> int:
        """Mark the calls of an earlier process, which was killed, as lost; return their number."""
        ...

    def spent(self, tenant: str, day_ms: int) -> Decimal:
        """Return the cost of a tenant's calls that began on a day.

        Args:
            day_ms: the beginning of the day.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class CallLog(Protocol):
    """The records of calls, for whoever reads them; nothing is created or written."""

    def latest(
        self,
        tenant: str | None,
        limit: int,
        *,
        owner: str | None = None,
        profile: str | None = None,
        before: tuple[int, str] | None = None,
    ) -> list[CallRecord]:
        """Return the latest records, the latest first.

        Args:
            tenant: only the calls of this one; of all, if ``None``.
            limit: the most records.
            owner: only the calls of this one.
            profile: only the calls of this one.
            before: start and id of the last record that is known.

        Raises:
            StorageRefused: they cannot be read.
            Corrupt: they are damaged.
        """
        ...

    def count(
        self,
        tenant: str | None,
        *,
        owner: str | None = None,
        profile: str | None = None,
        before: tuple[int, str] | None = None,
    ) -> int:
        """Return the number of records that `latest` returns without a limit; raises as that does."""
        ...
