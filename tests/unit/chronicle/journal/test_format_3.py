"""Journals of format 3, without objects: read as they are, migrated when opened to write."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import NotFound, UnsupportedFormat
from chronicle.journal.sqlite import SqliteJournalStore, schema
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract.objects import new_artifact
from chronicle.testing.journal_contract.writer import NOW_MS
from tests.golden.homes import extract

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal that an earlier version wrote, with the files beside it."""
    home = extract("histories-4", tmp_path / "golden") / "home"
    for file in home.glob("journal.db*"):
        shutil.copy2(file, tmp_path)
    shutil.rmtree(tmp_path / "golden")
    return tmp_path / "journal.db"


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_reading_leaves_it_as_it_is(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        assert store.damage() is None
        assert all(verify_session(store, session).ok for session in store.sessions())
        assert [session.name for session in store.sessions()] == ["filer/ann", "filer/ben"]
        assert list(store.all_objects()) == []
        assert list(store.objects("artifact")) == []
        assert store.object_of_key("key") is None
        assert store.object_bytes() == 0
        with pytest.raises(NotFound):
            store.object("artifact", "art_1")
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_opening_to_write_migrates_it(path: Path) -> None:
    with closing(SqliteJournalStore(path, read_only=True)) as store:
        before = [list(store.events(session.main_branch_id)) for session in store.sessions()]
    with closing(SqliteJournalStore(path, watched=True)) as store:
        assert [list(store.events(session.main_branch_id)) for session in store.sessions()] == before
        made = store.put_object(new_artifact(session_id=store.session("filer/ben").session_id))
        assert store.object("artifact", made.object_id) == made
        store.delete_session(store.session("filer/ben").session_id, NOW_MS * 2)
        assert list(store.all_objects()) == []
    assert version_of(path) == schema.VERSION
    assert version_of(path.with_name("journal.db.v3.backup")) == 3
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


def test_code_of_format_3_refuses_it(path: Path) -> None:
    SqliteJournalStore(path).close()
    says = f"format {schema.VERSION}, .* reads up to 3"
    with closing(sqlite3.connect(path)) as db, pytest.raises(UnsupportedFormat, match=says):
        schema.prepare(db, path, target=3)
