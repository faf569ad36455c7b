"""The contract of a journal store, as tests: subclass `JournalStoreContract` with a fixture ``store`` and run pytest.

    class TestMyStore(JournalStoreContract):
        @pytest.fixture
        def store(self) -> Iterator[JournalStore]:
            store = MyStore(...)
            yield store
            store.close()

Each test gets an empty store. Give a second way to the same data by overriding `other_handle`, if the store has one:
what one handle wrote, the other must see.
"""

from __future__ import annotations

from chronicle.testing.journal_contract.commits import CommitContract
from chronicle.testing.journal_contract.dropping import DroppingContract
from chronicle.testing.journal_contract.events import EventContract
from chronicle.testing.journal_contract.forks import ForkContract
from chronicle.testing.journal_contract.inbox import InboxContract
from chronicle.testing.journal_contract.leases import LeaseContract
from chronicle.testing.journal_contract.namespaces import NamespaceContract
from chronicle.testing.journal_contract.objects import ObjectContract
from chronicle.testing.journal_contract.pauses import PauseContract
from chronicle.testing.journal_contract.reminders import ReminderContract
from chronicle.testing.journal_contract.sessions import SessionContract
from chronicle.testing.journal_contract.snapshots import SnapshotContract
from chronicle.testing.journal_contract.steps import StepContract
from chronicle.testing.journal_contract.writer import Writer

__all__ = ["JournalStoreContract", "Writer"]


class JournalStoreContract(
    SessionContract,
    NamespaceContract,
    EventContract,
    CommitContract,
    InboxContract,
    StepContract,
    PauseContract,
    ReminderContract,
    LeaseContract,
    ForkContract,
    DroppingContract,
    SnapshotContract,
    ObjectContract,
):
    """Promises of every journal store."""
