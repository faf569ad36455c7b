"""Journals of an older format, as code of a made-up next format sees them: migrated when they are opened to write."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import OlderVersionRuns, UnsupportedFormat, UnusableFormat
from chronicle.journal.sqlite import SqliteJournalStore, schema
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import Writer
from tests import next_format
from tests.next_format import OLDER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of the older format, at rest."""
    path = tmp_path / "journal.db"
    with closing(SqliteJournalStore(path, watched=True)) as store:
        Writer.on(store, "hello/alice").turns(3)
        Writer.on(store, "hello/bob", "acme").turns(2)
    next_format.use(monkeypatch.setattr)
    return path


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def contents(path: Path) -> list[str]:
    """What the older format has."""
    with closing(sqlite3.connect(path)) as db:
        return [line for line in db.iterdump() if "colour" not in line]


def test_opening_to_write_migrates_it_after_a_backup(path: Path) -> None:
    before = contents(path)
    with closing(SqliteJournalStore(path, watched=True)) as store:
        assert all(verify_session(store, session).ok for session in store.sessions())
        assert contents(path) == before
        Writer.on(store, "hello/alice").turns(1)
    assert version_of(path) == OLDER + 1
    backup = path.with_name(f"journal.db.v{OLDER}.backup")
    assert version_of(backup) == OLDER
    assert contents(backup) == before
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        assert store.damage() is None


def test_reading_leaves_it_as_it_is_and_says_who_upgrades_it(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    says = f"a journal of format {OLDER}, which is upgraded when it is opened to write"
    with pytest.raises(UnusableFormat, match=says):
        SqliteJournalStore(path, read_only=True, watched=True)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_it_is_not_migrated_while_that_is_not_allowed(path: Path) -> None:
    before = contents(path)
    sums = {file: file.read_bytes() for file in path.parent.glob("journal.db-sums")}
    answers = iter([False, True])  # what holds for the first look holds for the whole opening
    with pytest.raises(OlderVersionRuns, match=f"has format {OLDER} and is in use by an older version; end it"):
        SqliteJournalStore(path, watched=True, may_migrate=lambda: next(answers))
    assert list(answers) == [True]
    assert version_of(path) == OLDER
    assert not path.with_name(f"journal.db.v{OLDER}.backup").exists()
    assert {file: file.read_bytes() for file in path.parent.glob("journal.db-sums")} == sums
    assert contents(path) == before


def test_only_an_older_journal_asks_whether_it_may_be_migrated(tmp_path: Path) -> None:
    def never() -> bool:
        raise AssertionError

    for _ in range(2):  # made, then opened again
        SqliteJournalStore(tmp_path / "new.db", watched=True, may_migrate=never).close()
    assert version_of(tmp_path / "new.db") == schema.VERSION


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
    assert version_of(path) == OLDER + 1


def test_it_has_the_declarations_of_a_new_journal(path: Path, tmp_path: Path) -> None:
    SqliteJournalStore(path).close()
    SqliteJournalStore(tmp_path / "new.db").close()

    def declared(path: Path) -> set[tuple[str, str, str]]:
        with closing(sqlite3.connect(path)) as db:
            return set(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall())

    assert declared(path) == declared(tmp_path / "new.db")


def test_code_of_the_older_format_refuses_it_afterwards(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteJournalStore(path).close()
    monkeypatch.setattr(schema, "VERSION", OLDER)
    for read_only in (False, True):
        with pytest.raises(UnsupportedFormat, match=f"format {OLDER + 1}, and this code reads up to {OLDER}"):
            SqliteJournalStore(path, read_only=read_only)


def test_a_step_that_is_missing_or_fails_leaves_it_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(path)

    def fail(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM event")
        raise RuntimeError("this step does not work")

    migrations = dict(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "VERSION", OLDER + 2)
    with pytest.raises(UnsupportedFormat, match=f"no upgrade leads from {OLDER + 1}"):
        SqliteJournalStore(path)
    monkeypatch.setattr(schema, "MIGRATIONS", {**migrations, OLDER + 1: fail})
    with pytest.raises(RuntimeError, match="does not work"):
        SqliteJournalStore(path)
    assert version_of(path) == OLDER
    assert contents(path) == before
    monkeypatch.setattr(schema, "MIGRATIONS", {**migrations, OLDER + 1: lambda _: None})
    SqliteJournalStore(path).close()
    assert version_of(path) == OLDER + 2
