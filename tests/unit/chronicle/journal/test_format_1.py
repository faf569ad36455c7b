"""Journals of format 1, which have no namespaces: read as they are, migrated when they are opened to write."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import OlderVersionRuns, UnsupportedFormat
from chronicle.journal.chain import catalogue_genesis
from chronicle.journal.records import DEFAULT_NAMESPACE
from chronicle.journal.sqlite import SqliteJournalStore, schema
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import Writer
from tests.golden.homes import JOURNAL_FORMATS, extract

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[name for name, version in JOURNAL_FORMATS.items() if version == 1])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A journal that an earlier version wrote, with the files beside it."""
    home = extract(request.param, tmp_path / "golden") / "home"
    for file in home.glob("journal.db*"):
        shutil.copy2(file, tmp_path)
    shutil.rmtree(tmp_path / "golden")
    return tmp_path / "journal.db"


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def contents(store: SqliteJournalStore) -> list[object]:
    """What users see of a journal."""
    return [
        (session, store.catalogue(session.session_id), [list(store.events(branch.branch_id)) for branch in branches])
        for session in store.sessions()
        for branches in [store.branches(session.session_id)]
    ] + [store.outbox(), store.tombstones()]


def test_reading_leaves_it_as_it_is(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        assert store.damage() is None
        sessions = store.sessions()
        assert [session.name for session in sessions] == ["filer/ann", "filer/ben"]
        assert {session.namespace for session in sessions} == {DEFAULT_NAMESPACE}
        assert all(verify_session(store, session).ok for session in sessions)
        assert store.session("filer/ann") == sessions[0]
        assert not store.sessions(namespace="acme")
        assert not store.outbox()
        assert not store.tombstones()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_opening_to_write_migrates_it(path: Path) -> None:
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        before = contents(store)
    with closing(SqliteJournalStore(path, watched=True)) as store:
        assert contents(store) == before
        for session in store.sessions():
            assert store.catalogue(session.session_id)[0].prev_hash == catalogue_genesis(session)
            assert verify_session(store, session).ok
        Writer.on(store, "filer/ann", "acme").turns(1)
    assert version_of(path) == schema.VERSION
    assert version_of(path.with_name("journal.db.v1.backup")) == 1
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        assert store.damage() is None
        assert [session.namespace for session in store.sessions("filer/ann")] == ["acme", DEFAULT_NAMESPACE]
        assert contents(store)[1:3] == before[:2]


def test_it_is_not_migrated_while_that_is_not_allowed(path: Path) -> None:
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        before = contents(store)
    sums = {file: file.read_bytes() for file in path.parent.glob("journal.db-sums")}
    answers = iter([False, True])  # what holds for the first look holds for the whole opening
    with pytest.raises(OlderVersionRuns, match="has format 1 and is in use by an older version; end it"):
        SqliteJournalStore(path, watched=True, may_migrate=lambda: next(answers))
    assert list(answers) == [True]
    assert version_of(path) == 1
    assert not path.with_name("journal.db.v1.backup").exists()
    assert {file: file.read_bytes() for file in path.parent.glob("journal.db-sums")} == sums
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        assert contents(store) == before


def test_only_an_older_journal_asks_whether_it_may_be_migrated(tmp_path: Path) -> None:
    def never() -> bool:
        raise AssertionError

    for _ in range(2):  # made, then opened again
        SqliteJournalStore(tmp_path / "journal.db", watched=True, may_migrate=never).close()
    assert version_of(tmp_path / "journal.db") == schema.VERSION


def test_a_full_disk_during_the_migration_is_named_and_changes_nothing(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        before = list(db.iterdump())
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            schema.prepare(db, path)
        assert not db.in_transaction
        assert list(db.iterdump()) == before
        db.execute("PRAGMA max_page_count = 100000")
        schema.prepare(db, path)
    assert version_of(path) == schema.VERSION


def test_it_has_the_declarations_of_a_new_journal(path: Path, tmp_path: Path) -> None:
    SqliteJournalStore(path).close()
    SqliteJournalStore(tmp_path / "new.db").close()

    def declared(path: Path) -> set[tuple[str, str, str]]:
        with closing(sqlite3.connect(path)) as db:
            return set(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall())

    assert declared(path) == declared(tmp_path / "new.db")


def test_code_of_format_1_refuses_it(path: Path) -> None:
    SqliteJournalStore(path).close()
    says = f"format {schema.VERSION}, .* reads up to 1"
    with closing(sqlite3.connect(path)) as db, pytest.raises(UnsupportedFormat, match=says):
        schema.prepare(db, path, target=1)


def test_a_process_of_format_1_goes_on_with_its_sessions_and_makes_no_new_ones(path: Path) -> None:
    """It has the journal open while a newer version migrates it. Its statements are those of its code."""
    new_session = (
        "INSERT INTO session (session_id, name, main_branch_id, created_ms) VALUES ('ses_x', 'a/b', 'br_x', 1) "
        "ON CONFLICT (name) DO NOTHING"
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as older, closing(SqliteJournalStore(path)) as store:
        with pytest.raises(sqlite3.OperationalError, match="ON CONFLICT clause does not match"):
            older.execute(new_session)
        older.execute("INSERT INTO outbox (message_id, target, body, created_ms) VALUES ('msg_x', 'a/b', x'7b7d', 1)")
        assert [session.name for session in store.sessions()] == ["filer/ann", "filer/ben"]
        assert [message.namespace for message in store.outbox()] == [DEFAULT_NAMESPACE]
