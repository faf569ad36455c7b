"""Messages that are admitted together: what becomes of the others when one cannot be."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import InvalidInput, NotFound
from chronicle.ids import IdSource
from chronicle.journal.sqlite.store import SqliteJournalStore
from coordinator.client_messages import Admission, Admitted, Arrival
from coordinator.service.requests import message_in
from podium.address import Address
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import MessageId

CLOCK = SystemClock()
GOOD, BAD = Address("note", "good"), Address("note", "bad")


class DeletedMeanwhile(SqliteJournalStore):
    """A journal from which an agent is deleted just after its message was admitted."""

    def waiting_before(self, message_id: MessageId) -> int:
        """As of the journal."""
        bad = self.message(message_id).session_id if message_id in self._of_bad() else None
        if bad is not None:
            self.delete_session(bad, CLOCK.now_ms())
        return super().waiting_before(message_id)

    def _of_bad(self) -> list[MessageId]:
        try:
            session = self.session(BAD.name)
        except NotFound:
            return []
        return [message.message_id for message in self.pending(session.session_id)]


def admit(store: SqliteJournalStore, *arrivals: tuple[Address, str]) -> list[Admitted | Exception]:
    """Admit messages together, by their addresses and idempotency keys."""
    admission = Admission(store, MemoryBlobStore(), IdSource(), CLOCK, 1000)
    return admission.admit_many([Arrival(address, b"{}", key, BusyPolicy.ENQUEUE) for address, key in arrivals])


def test_a_key_that_cannot_be_stored_hurts_no_other_message(tmp_path: Path) -> None:
    with closing(SqliteJournalStore(tmp_path / "journal.db")) as store:
        first, bad, last = admit(store, (GOOD, "one"), (BAD, "\ud800"), (GOOD, "two"))
        assert isinstance(bad, ValueError)
        assert isinstance(first, Admitted)
        assert isinstance(last, Admitted)
        pending = store.pending(store.session(GOOD.name).session_id)
        assert [message.message_id for message in pending] == [first.message_id, last.message_id]


@pytest.mark.parametrize("key", ["\ud800", "a\0b"])
def test_a_key_that_no_journal_stores_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="idempotency_key"):
        message_in({"agent": "note/a", "message": {}, "idempotency_key": key})


def test_an_agent_that_is_deleted_meanwhile_hurts_no_other_message(tmp_path: Path) -> None:
    with closing(DeletedMeanwhile(tmp_path / "journal.db")) as store:
        first, bad, last = admit(store, (GOOD, "one"), (BAD, "one"), (GOOD, "two"))
        assert isinstance(bad, NotFound)
        assert [each.receipt.position for each in (first, last) if isinstance(each, Admitted)] == [1, 2]
