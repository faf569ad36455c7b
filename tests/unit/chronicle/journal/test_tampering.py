"""Tampering with a SQLite journal's tables by hand: verification finds it, and says where."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.ids import IdSource
from chronicle.journal.chain import HASH_PREFIX, event_digest
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.verify import Anchor, verify_session
from chronicle.testing.journal_contract import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import BranchId
    from chronicle.journal.records import Session

_IDS = IdSource(random.Random(1))


class Journal:
    """A journal with one session: a main branch of 20 events, a fork at 7 with 4 more, and a deleted branch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        store = SqliteJournalStore(path)
        main = Writer.on(store, "hello/alice")
        main.turns(10)
        fork = main.fork(7)
        fork.turns(2)
        gone = main.fork(3)
        gone.turns(1)
        store.delete_branch(gone.head.branch_id, 5)
        self.session: Session = main.session
        self.main, self.fork = main.head.branch_id, fork.head.branch_id
        self.main_head, self.fork_head = main.head, fork.head
        self.other = Writer.on(store, "hello/bob")
        self.other.turns(3)
        store.close()
        with closing(self.connect()) as db:
            self.key = {branch: key for key, branch in db.execute("SELECT key, branch_id FROM branch")}

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    def run(self, *statements: str) -> None:
        """Run statements; ``{main}`` and ``{fork}`` stand for the first row id of the branches' events."""
        with closing(self.connect()) as db:
            for statement in statements:
                changed = db.execute(
                    statement.format(main=self.key[self.main] << 32, fork=self.key[self.fork] << 32)
                ).rowcount
                assert changed != 0, statement

    def found(self, *against: Anchor) -> tuple[BranchId | None, int | None]:
        """Verify, and return where the damage is."""
        store = SqliteJournalStore(self.path)
        try:
            report = verify_session(store, self.session, against)
        finally:
            store.close()
        assert report.damage is not None, "the damage was not found"
        assert report.damage.why
        assert not report.ok
        return report.damage.branch_id, report.damage.seq


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A new one for each test."""
    return Journal(tmp_path / "journal.db")


def test_untouched_it_verifies(journal: Journal) -> None:
    store = SqliteJournalStore(journal.path)
    report = verify_session(store, journal.session, [Anchor.of(journal.main_head), Anchor.of(journal.fork_head)])
    store.close()
    assert (report.ok, report.events, report.branches) == (True, 24, 2)


@pytest.mark.parametrize(
    "change",
    [
        "event_id = 'evt_other'",
        "type = 'user_massage'",
        "turn = turn + 1",
        "ts = ts - 1",
        "correlation_id = 'msg_2'",
        "correlation_id = NULL",
        "causation_id = 'msg_2'",
        "causation_id = NULL",
        "payload_ref = 'abc'",
        "payload = CAST(replace(CAST(payload AS TEXT), 'turn 6', 'turn 7') AS BLOB)",
        "payload = NULL",
        "payload = CAST(payload AS TEXT)",
        "payload = x''",
        "payload_sha256 = zeroblob(32)",
        "hash = zeroblob(32)",
        "hash = 'text'",
        "type = CAST(x'ff' AS TEXT)",
        "turn = 'six'",
        "turn = 1e300",
    ],
)
def test_a_changed_column(journal: Journal, change: str) -> None:
    journal.run(f"UPDATE event SET {change} WHERE id = {{main}} + 11")
    assert journal.found() == (journal.main, 11)


@pytest.mark.parametrize("column", ["event_id", "type", "correlation_id", "hash", "payload"])
def test_any_changed_byte(journal: Journal, column: str) -> None:
    generator = random.Random(column)
    with closing(journal.connect()) as db:
        for _ in range(20):
            row = journal.key[journal.main] << 32 | generator.randint(1, 20)
            (value,) = db.execute(f"SELECT CAST({column} AS BLOB) FROM event WHERE id = ?", (row,)).fetchone()
            changed = bytearray(value)
            changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(7)
            kind = "BLOB" if column in ("hash", "payload") else "TEXT"
            update = f"UPDATE event SET {column} = CAST(? AS {kind}) WHERE id = ?"
            db.execute(update, (bytes(changed), row))
            assert journal.found() == (journal.main, row & 0xFFFFFFFF)
            db.execute(update, (value, row))


def test_a_removed_event(journal: Journal) -> None:
    journal.run("DELETE FROM event WHERE id = {main} + 11")
    assert journal.found() == (journal.main, 11)


def test_a_removed_event_with_the_gap_closed(journal: Journal) -> None:
    journal.run(
        "DELETE FROM event WHERE id = {main} + 11",
        *[f"UPDATE event SET id = id - 1 WHERE id = {{main}} + {seq}" for seq in range(12, 21)],
        "UPDATE branch SET seq = seq - 1 WHERE key << 32 = {main}",
    )
    assert journal.found() == (journal.main, 11)


# S2.31
def test_an_event_that_was_rewritten_with_its_own_hash(journal: Journal) -> None:
    """It is sound in itself: the event after it stands on another one."""
    payload = b'{"text":"forged"}'
    with closing(journal.connect()) as db:
        row = journal.key[journal.main] << 32 | 11
        columns = "event_id, type, turn, ts, payload_ref, correlation_id"  # which the event has as its cause, too
        *fields, cause = db.execute(f"SELECT {columns} FROM event WHERE id = ?", (row,)).fetchone()
        (before,) = db.execute("SELECT hash FROM event WHERE id = ?", (row - 1,)).fetchone()
        sha256 = hashlib.sha256(payload)
        prev = HASH_PREFIX + before.hex()
        event_id, kind, turn, ts, ref = fields
        digest = event_digest(journal.main, 11, event_id, kind, turn, ts, sha256.hexdigest(), ref, cause, cause, prev)
        db.execute(
            "UPDATE event SET payload = ?, payload_sha256 = ?, hash = ? WHERE id = ?",
            (payload, sha256.digest(), bytes.fromhex(digest), row),
        )
    assert journal.found() == (journal.main, 12)


def test_the_first_event_removed(journal: Journal) -> None:
    journal.run("DELETE FROM event WHERE id = {main} + 1")
    assert journal.found() == (journal.main, 1)


def test_events_put_in_another_order(journal: Journal) -> None:
    journal.run(
        "UPDATE event SET id = -1 WHERE id = {main} + 11",
        "UPDATE event SET id = {main} + 11 WHERE id = {main} + 12",
        "UPDATE event SET id = {main} + 12 WHERE id = -1",
    )
    assert journal.found() == (journal.main, 11)


def test_an_event_of_another_branch_put_in(journal: Journal) -> None:
    columns = "type, turn, ts, correlation_id, causation_id, payload_ref, payload_sha256, erased, hash, payload"
    journal.run(
        "DELETE FROM event WHERE id = {main} + 9",
        f"INSERT INTO event SELECT {{main}} + 9, 'evt_copy', {columns} FROM event WHERE id = {{fork}} + 9",
    )
    assert journal.found() == (journal.main, 9)


def test_an_event_added_at_the_end(journal: Journal) -> None:
    columns = "type, turn, ts, correlation_id, causation_id, payload_ref, payload_sha256, erased, hash, payload"
    journal.run(f"INSERT INTO event SELECT {{main}} + 21, 'evt_more', {columns} FROM event WHERE id = {{main}} + 20")
    assert journal.found() == (journal.main, 21)


def test_a_cut_tail(journal: Journal) -> None:
    journal.run("DELETE FROM event WHERE id BETWEEN {main} + 15 AND {main} + 20")
    assert journal.found() == (journal.main, 15)


def test_a_cut_tail_with_the_head_moved_back(journal: Journal) -> None:
    """Consistent in itself: only a head kept elsewhere shows it."""
    journal.run(
        "DELETE FROM event WHERE id BETWEEN {main} + 15 AND {main} + 20",
        "UPDATE branch SET (seq, turn, event_id, hash) = (SELECT 14, turn, event_id, hash FROM event "
        "WHERE id = {main} + 14) WHERE key << 32 = {main}",
    )
    assert journal.found(Anchor.of(journal.main_head)) == (journal.main, 20)


def test_all_events_of_a_branch_removed(journal: Journal) -> None:
    journal.run("DELETE FROM event WHERE id BETWEEN {fork} AND {fork} + 100")
    assert journal.found() == (journal.fork, 8)


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        ("seq = 21", 21),
        ("seq = 19", 20),
        ("hash = zeroblob(32)", 20),
        ("turn = 11", 20),
        ("event_id = 'evt_other'", 20),
        ("event_id = NULL", 20),
        ("created_ms = 1", None),
        ("parent_seq = 1", None),
        ("parent_branch_id = 'br_other'", None),
        ("folded_seq = 1", None),
        ("base_hash = zeroblob(32)", None),
        ("base_hash = 'text'", None),
    ],
)
def test_a_changed_branch_record(journal: Journal, change: str, seq: int | None) -> None:
    journal.run(f"UPDATE branch SET {change} WHERE key << 32 = {{main}}")
    assert journal.found() == (journal.main, seq)


@pytest.mark.parametrize("seq", [5, 6, 8])
def test_a_fork_moved_to_another_event(journal: Journal, seq: int) -> None:
    journal.run(f"UPDATE branch SET parent_seq = {seq} WHERE key << 32 = {{fork}}")
    assert journal.found() == (journal.fork, None)


def test_a_deleted_branch(journal: Journal) -> None:
    journal.run(
        "DELETE FROM event WHERE id BETWEEN {fork} AND {fork} + 100", "DELETE FROM branch WHERE key << 32 = {fork}"
    )
    assert journal.found() == (journal.fork, None)


def test_a_deleted_parent(journal: Journal) -> None:
    journal.run(
        "DELETE FROM event WHERE id BETWEEN {main} AND {main} + 100", "DELETE FROM branch WHERE key << 32 = {main}"
    )
    assert journal.found() == (journal.main, None)


def test_a_branch_put_in(journal: Journal) -> None:
    journal.run(
        "INSERT INTO branch SELECT 99, 'br_new', session, parent_branch_id, parent_seq, created_ms, folded_seq, "
        "base_hash, seq, turn, event_id, hash FROM branch WHERE key << 32 = {fork}"
    )
    assert journal.found() == ("br_new", None)


def test_a_branch_renamed(journal: Journal) -> None:
    journal.run("UPDATE branch SET branch_id = 'br_new' WHERE key << 32 = {fork}")
    assert journal.found() == (journal.fork, None)


def test_a_branch_moved_to_another_session(journal: Journal) -> None:
    journal.run(
        "UPDATE branch SET session = (SELECT key FROM session WHERE name = 'hello/bob') WHERE key << 32 = {fork}"
    )
    assert journal.found() == (journal.fork, None)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM catalogue WHERE id = (1 << 32) + 2",
        "DELETE FROM catalogue WHERE id = (1 << 32) + 4",
        "DELETE FROM catalogue",
        "UPDATE catalogue SET change = 'created' WHERE id = (1 << 32) + 4",
        "UPDATE catalogue SET change = 'gone' WHERE id = (1 << 32) + 4",
        "UPDATE catalogue SET branch_id = 'br_x' WHERE id = (1 << 32) + 4",
        "UPDATE catalogue SET parent_branch_id = NULL WHERE id = (1 << 32) + 3",
        "UPDATE catalogue SET seq = seq + 1 WHERE id = (1 << 32) + 4",
        "UPDATE catalogue SET branch_hash = zeroblob(32) WHERE id = (1 << 32) + 4",
        "UPDATE catalogue SET ts = 0 WHERE id = (1 << 32) + 4",
        "UPDATE catalogue SET hash = zeroblob(32) WHERE id = (1 << 32) + 1",
        "UPDATE catalogue SET hash = 5 WHERE id = (1 << 32) + 1",
        "UPDATE session SET name = 'hello/mallory' WHERE key = 1",
        "UPDATE session SET created_ms = 1 WHERE key = 1",
        "UPDATE session SET main_branch_id = 'br_x' WHERE key = 1",
        "UPDATE session SET catalogue_size = 3 WHERE key = 1",
        "UPDATE session SET catalogue_hash = zeroblob(32) WHERE key = 1",
        "UPDATE session SET catalogue_hash = NULL WHERE key = 1",
    ],
)
def test_a_changed_catalogue(journal: Journal, change: str) -> None:
    journal.run(change)
    branch, seq = journal.found()
    assert seq is None
    assert branch is None


def test_a_whole_branch_replaced_by_a_copy_of_another(journal: Journal) -> None:
    """A consistent chain of its own, but of another branch."""
    other = journal.key[journal.other.head.branch_id] << 32
    columns = "type, turn, ts, correlation_id, causation_id, payload_ref, payload_sha256, erased, hash, payload"
    journal.run(
        "DELETE FROM event WHERE id BETWEEN {main} AND {main} + 100",
        f"INSERT INTO event SELECT id - {other} + {{main}}, 'x' || event_id, {columns} FROM event "
        f"WHERE id BETWEEN {other} AND {other} + 100",
        "UPDATE branch SET (seq, turn, hash) = (SELECT seq, turn, hash FROM branch AS o "
        f"WHERE o.key << 32 = {other}) WHERE key << 32 = {{main}}",
    )
    assert journal.found() == (journal.main, 1)


def test_a_page_overwritten_in_the_file(journal: Journal) -> None:
    data = bytearray(journal.path.read_bytes())
    at = data.index(b'"text":"turn 9"')
    data[at + 13] ^= 1
    journal.path.write_bytes(data)
    assert journal.found() == (journal.main, 17)


def test_a_damaged_parent_in_another_session_is_found_as_far_as_it_is_read(journal: Journal) -> None:
    store = SqliteJournalStore(journal.path)
    fork = store.fork_session(journal.main, 9, "hello/carol", _IDS.session(1), _IDS.branch(1), 1)
    store.close()
    journal.run("UPDATE event SET ts = 0 WHERE id = {main} + 10")
    store = SqliteJournalStore(journal.path)
    assert verify_session(store, fork).ok
    store.close()
    journal.run("UPDATE event SET ts = 0 WHERE id = {main} + 9")
    store = SqliteJournalStore(journal.path)
    report = verify_session(store, fork)
    store.close()
    assert report.damage is not None
    assert (report.damage.branch_id, report.damage.seq) == (journal.main, 9)
