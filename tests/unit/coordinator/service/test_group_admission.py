"""Messages that are admitted together: what becomes of the others when one cannot be."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import IdempotencyConflict, InboxFull, InvalidInput, NotFound, Unavailable
from chronicle.ids import IdSource
from chronicle.journal.sqlite.store import SqliteJournalStore
from coordinator.client_messages import Admission, Admitted, Arrival
from coordinator.service.group_admission import GroupAdmission
from coordinator.service.requests import message_in
from podium.address import Address
from podium.errors import AgentBusy
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.ids import MessageId
    from chronicle.journal.records import InboxWrite, Receipt

CLOCK = SystemClock()
GOOD, BAD = Address("note", "good"), Address("note", "bad")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal is, with its tables."""
    SqliteJournalStore(tmp_path / "journal.db").close()
    return tmp_path / "journal.db"


class DeletedBefore(SqliteJournalStore):
    """A journal from which an agent is deleted just before its message is admitted."""

    def admit_many(self, admissions: Sequence[InboxWrite]) -> list[Receipt | Exception]:
        """As of the journal."""
        self.delete_session(self.session(BAD.name).session_id, CLOCK.now_ms())
        return super().admit_many(admissions)


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


def admission_on(store: SqliteJournalStore) -> Admission:
    return Admission(store, MemoryBlobStore(), IdSource(), CLOCK, 3)


def arrival(address: Address, key: str | None, when_busy: BusyPolicy = BusyPolicy.ENQUEUE) -> Arrival:
    return Arrival(address, b"{}", key, when_busy)


def admit(store: SqliteJournalStore, *arrivals: tuple[Address, str]) -> list[Admitted | Exception]:
    """Admit messages together, by their addresses and idempotency keys."""
    return admission_on(store).admit_many([arrival(address, key) for address, key in arrivals])


def positions(outcomes: Sequence[Admitted | BaseException]) -> list[int | type[BaseException]]:
    """Return the positions of the admitted, and the types of the others' errors."""
    return [each.receipt.position if isinstance(each, Admitted) else type(each) for each in outcomes]


def refuse(path: Path, table: str, condition: str, how: str = "ABORT") -> None:
    """Have the database refuse some rows of a table."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            f"CREATE TRIGGER refusing BEFORE INSERT ON {table} WHEN {condition} BEGIN SELECT RAISE({how}, 'no'); END"
        )


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
        first, _, bad, last = admit(store, (GOOD, "one"), (BAD, "zero"), (BAD, "one"), (GOOD, "two"))
        assert isinstance(bad, NotFound)
        assert [each.receipt.position for each in (first, last) if isinstance(each, Admitted)] == [1, 2]


def test_agents_that_were_deleted_since_their_last_messages_begin_anew(tmp_path: Path) -> None:
    with closing(SqliteJournalStore(tmp_path / "journal.db")) as store:
        admission = admission_on(store)
        first = admission.admit_many([arrival(GOOD, None), arrival(BAD, None)])
        store.delete_session(store.session(BAD.name).session_id, CLOCK.now_ms())
        then = admission.admit_many([arrival(BAD, None), arrival(GOOD, None), arrival(BAD, None)])
        assert positions(first) == [1, 1]
        assert positions(then) == [1, 2, 2]
        store.delete_session(store.session(BAD.name).session_id, CLOCK.now_ms())
        alone = admission.admit(BAD, b"{}", None, BusyPolicy.ENQUEUE)
        assert alone.receipt.position == 1
        pending = store.pending(store.session(BAD.name).session_id)
        assert [message.message_id for message in pending] == [alone.message_id]


def test_an_agent_that_is_deleted_before_hurts_no_other_message(tmp_path: Path) -> None:
    with closing(DeletedBefore(tmp_path / "journal.db")) as store:
        assert positions(admit(store, (GOOD, "one"), (BAD, "one"), (GOOD, "two"))) == [1, NotFound, 2]


def test_an_agent_that_cannot_be_made_hurts_no_other_message(path: Path) -> None:
    with closing(SqliteJournalStore(path)) as store:
        refuse(path, "session", f"NEW.name = '{BAD.name}'")
        assert positions(admit(store, (BAD, "one"), (GOOD, "one"), (BAD, "two"))) == [InvalidInput, 1, InvalidInput]
        assert positions(admit(store, (BAD, "one"))) == [InvalidInput]
        assert [session.name for session in store.sessions()] == [GOOD.name]


def test_a_message_that_the_database_refuses_hurts_no_other(path: Path) -> None:
    with closing(SqliteJournalStore(path)) as store:
        refuse(path, "inbox", "NEW.idempotency_key = 'bad'")
        assert positions(admit(store, (GOOD, "one"), (GOOD, "bad"), (GOOD, "two"))) == [1, InvalidInput, 2]


def test_a_batch_whose_transaction_ended_is_not_admitted_in_part(path: Path) -> None:
    with closing(SqliteJournalStore(path)) as store:
        refuse(path, "inbox", "NEW.idempotency_key = 'bad'", "ROLLBACK")
        with pytest.raises(Unavailable, match="nothing was written"):
            admit(store, (GOOD, "one"), (GOOD, "bad"), (GOOD, "two"))
        assert store.backlog().pending == 0
        assert positions(admit(store, (GOOD, "one"), (GOOD, "two"))) == [1, 2]


def test_each_message_of_a_batch_has_its_own_answer(path: Path) -> None:
    with closing(SqliteJournalStore(path)) as store:
        together = [
            arrival(GOOD, "one"),
            arrival(GOOD, "one"),
            replace(arrival(GOOD, "one"), body=b"1"),
            arrival(GOOD, None, BusyPolicy.REJECT),
            arrival(BAD, None, BusyPolicy.REJECT),
            arrival(GOOD, None),
            arrival(GOOD, None),
            arrival(GOOD, None),
        ]
        outcomes = admission_on(store).admit_many(together)
        assert positions(outcomes) == [1, 1, IdempotencyConflict, AgentBusy, 1, 2, 3, InboxFull]
        admitted = [each for each in outcomes if isinstance(each, Admitted)]
        assert [each.receipt.repeated for each in admitted] == [False, True, False, False, False]
        assert [each.before for each in admitted] == [0, 0, 0, 1, 2]
        assert admission_on(store).admit_many([]) == []


async def test_callers_that_wait_together_get_their_own_answers(path: Path) -> None:
    with closing(SqliteJournalStore(path)) as store:
        refuse(path, "session", f"NEW.name = '{BAD.name}'")
        with closing(GroupAdmission(admission_on(store), frozenset)) as group:
            arrivals = [arrival(address, key) for key in ("one", "two", "one") for address in (GOOD, BAD)]
            outcomes = await asyncio.gather(*map(group.admit, arrivals), return_exceptions=True)
        assert positions(outcomes) == [1, InvalidInput, 2, InvalidInput, 1, InvalidInput]
        pending = store.pending(store.session(GOOD.name).session_id)
        assert [message.idempotency_key for message in pending] == ["one", "two"]
