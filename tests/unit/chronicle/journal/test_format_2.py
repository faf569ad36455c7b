"""Journals of format 2, without headers, steps and reminders: read as they are, migrated when opened to write."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import UnsupportedFormat
from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus, SetReminder, StoredStep
from chronicle.journal.sqlite import SqliteJournalStore, schema
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import Writer
from tests.golden.homes import extract

if TYPE_CHECKING:
    from pathlib import Path

PENDING = (
    "INSERT INTO inbox (id, session, message_id, idempotency_key, sender, body_sha256, admitted_ms, attempts, status, "
    "body) VALUES ((SELECT key << 32 | last_position + 1 FROM session WHERE name = 'filer/ann'), "
    "(SELECT key FROM session WHERE name = 'filer/ann'), 'msg_x', NULL, 'me', NULL, 5, 1, 0, x'7b7d')"
)
"""As the code of format 2 admits a message."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal that an earlier version wrote, with the files beside it."""
    home = extract("histories-3", tmp_path / "golden") / "home"
    for file in home.glob("journal.db*"):
        shutil.copy2(file, tmp_path)
    shutil.rmtree(tmp_path / "golden")
    return tmp_path / "journal.db"


@pytest.fixture
def with_messages(path: Path) -> Path:
    """The journal, with a message that waits and one to deliver."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(PENDING)
        db.execute("UPDATE session SET last_position = last_position + 1 WHERE name = 'filer/ann'")
        db.execute(
            "INSERT INTO outbox (message_id, target, body, created_ms, namespace) "
            "VALUES ('msg_y', 'a/b', x'7b7d', 1, 't')"
        )
    for name in ("journal.db-sums", "journal.db-heads"):
        path.with_name(name).unlink()
    return path


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def contents(store: SqliteJournalStore) -> list[object]:
    """What users see of a journal."""
    sessions = store.sessions()
    return [
        *(list(store.events(session.main_branch_id)) for session in sessions),
        *(store.messages(session.session_id, status) for session in sessions for status in MessageStatus),
        store.outbox(),
    ]


def test_reading_leaves_it_as_it_is(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        assert store.damage() is None
        ann, ben = store.sessions()
        assert (ann.name, ben.name) == ("filer/ann", "filer/ben")
        assert all(verify_session(store, session).ok for session in (ann, ben))
        (message, *_) = store.messages(ann.session_id, MessageStatus.CONSUMED)
        assert message.headers is None
        assert not store.steps(message.message_id)
        assert not store.steps_of_session(ann.session_id)
        assert not store.reminders(ann.session_id)
        assert not store.due_reminders(2**60, 10)
        assert store.next_reminder_ms() is None
        assert not store.outbox()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_opening_to_write_migrates_it(with_messages: Path) -> None:
    path = with_messages
    with closing(SqliteJournalStore(path, read_only=True)) as store:
        before = contents(store)
        assert [message.message_id for message in store.outbox()] == ["msg_y"]
    with closing(SqliteJournalStore(path, watched=True)) as store:
        assert contents(store) == before
        ann = Writer.on(store, "filer/ann")
        ann.epoch = store.acquire_lease(ann.session.session_id, "host", 0, 1, takeover=True).epoch
        store.put_step(ann.session.session_id, StoredStep(MessageId("msg_x"), 1, "step", b"{}"), ann.epoch)
        ann.write(reminders=(SetReminder("daily", 5, b"{}"),))
        assert len(store.steps(MessageId("msg_x"))) == len(store.due_reminders(5, 9)) == 1
        assert store.message(MessageId("msg_x")).headers is None
    assert version_of(path) == schema.VERSION
    assert version_of(path.with_name("journal.db.v2.backup")) == 2
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        assert store.damage() is None
        assert all(verify_session(store, session).ok for session in store.sessions())


def test_it_has_the_declarations_of_a_new_journal(path: Path, tmp_path: Path) -> None:
    SqliteJournalStore(path).close()
    SqliteJournalStore(tmp_path / "new.db").close()

    def declared(path: Path) -> set[tuple[str, str, str]]:
        with closing(sqlite3.connect(path)) as db:
            return set(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall())

    assert declared(path) == declared(tmp_path / "new.db")


def test_code_of_format_2_refuses_it(path: Path) -> None:
    SqliteJournalStore(path).close()
    says = f"format {schema.VERSION}, .* reads up to 2"
    with closing(sqlite3.connect(path)) as db, pytest.raises(UnsupportedFormat, match=says):
        schema.prepare(db, path, target=2)


def test_a_process_of_format_2_goes_on(path: Path) -> None:
    """It has the journal open while a newer version migrates it. Its statements are those of its code."""
    with closing(sqlite3.connect(path, isolation_level=None)) as older, closing(SqliteJournalStore(path)) as store:
        older.execute(PENDING)
        older.execute("UPDATE session SET last_position = last_position + 1 WHERE name = 'filer/ann'")
        (message,) = store.pending(store.session("filer/ann").session_id)
        assert (message.message_id, message.headers) == ("msg_x", None)
