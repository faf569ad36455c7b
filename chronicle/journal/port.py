"""The port of journal stores, implemented in memory, on SQLite and on PostgreSQL.

A store writes records as given. In the same transaction it checks the head (compare-and-swap), the epoch (fence) and
the inbox (idempotency, order). It does not compute hashes and does not read payloads: :mod:`chronicle.journal.chain`
seals, :mod:`chronicle.journal.verify` verifies.

Session names belong to a namespace: two sessions of one name are different sessions if their namespaces differ. Ids are
unique in the whole store. Methods that name a session take its namespace, which is `DEFAULT_NAMESPACE` by default;
methods that list sessions list those of all namespaces unless one is given.

Every method may be called from any thread. Writes are durable when they return: they survive a power loss. A write that
raises :class:`~chronicle.errors.Unavailable` may or may not have happened: before anything else, the caller looks it up
by the id of its first event (:meth:`EventRecords.find_event`).

The port has a part for each kind of record, in :mod:`chronicle.journal.ports`. A consumer takes the narrowest.

The contract in code is ``chronicle.testing.journal_contract``: subclass it to test a store of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.journal.ports.branches import BranchRecords
from chronicle.journal.ports.events import EventRecords
from chronicle.journal.ports.inbox import InboxRecords
from chronicle.journal.ports.leases import LeaseRecords
from chronicle.journal.ports.objects import ObjectRecords
from chronicle.journal.ports.outbox import OutboxRecords
from chronicle.journal.ports.pauses import PauseRecords
from chronicle.journal.ports.reminders import ReminderRecords
from chronicle.journal.ports.sessions import SessionRecords
from chronicle.journal.ports.steps import StepRecords

if TYPE_CHECKING:
    from chronicle.journal.ports.reserve import Reserve

__all__ = ["JournalStore"]


class JournalStore(
    SessionRecords,
    BranchRecords,
    EventRecords,
    InboxRecords,
    StepRecords,
    PauseRecords,
    ReminderRecords,
    OutboxRecords,
    LeaseRecords,
    ObjectRecords,
    Protocol,
):
    """All records of a journal."""

    @property
    def reserve(self) -> Reserve:
        """The space that is reserved for essential writes."""

    def close(self) -> None:
        """Release files and connections. Using the store afterwards raises ``Unavailable``."""
