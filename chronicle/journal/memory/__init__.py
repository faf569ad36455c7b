"""A journal in memory: for tests and simulations. It implements the port without durability.

Every method holds one lock, and a commit checks everything before it changes anything.
"""

from __future__ import annotations

from chronicle.journal.memory.events import Events
from chronicle.journal.memory.leases import Leases
from chronicle.journal.memory.objects import Objects
from chronicle.journal.memory.reminders import Reminders
from chronicle.journal.memory.sessions import Sessions
from chronicle.journal.memory.snapshots import Snapshots
from chronicle.journal.ports.reserve import NO_RESERVE, Reserve

__all__ = ["MemoryJournalStore"]


class MemoryJournalStore(Sessions, Events, Reminders, Leases, Snapshots, Objects):
    """A :class:`~chronicle.journal.port.JournalStore` with the lifetime of the object."""

    @property
    def reserve(self) -> Reserve:
        """No space: the journal takes none on a disk."""
        return NO_RESERVE

    def close(self) -> None:
        """Drop everything; using the store afterwards raises ``Unavailable``."""
        with self._lock:
            self._closed = True
