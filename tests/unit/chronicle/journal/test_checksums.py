"""Checksums and heads beside a journal that are not of its present: no sound journal is refused."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Corrupt
from chronicle.ids import IdSource
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, Session
from chronicle.journal.sqlite import SqliteJournalStore
from tests.unit.chronicle.journal.journal_opener import NOW_MS, make_session

if TYPE_CHECKING:
    from collections.abc import Sequence


def watched(path: Path) -> SqliteJournalStore:
    return SqliteJournalStore(path, watched=True)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal that was closed in order."""
    path = tmp_path / "home" / "journal.db"
    path.parent.mkdir()
    with closing(watched(path)) as store:
        make_session(store, "first/1")
    return path


def beside(path: Path, part: str) -> Path:
    return path.with_name(path.name + part)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_journal_behind_a_symlink_is_the_one_that_it_names(journal: Path, tmp_path: Path, read_only: bool) -> None:
    link = tmp_path / "elsewhere" / "journal.db"
    link.parent.mkdir()
    link.symlink_to(journal)
    with closing(watched(link)) as service:
        make_session(service, "a/1")
        with closing(SqliteJournalStore(link, read_only=read_only, watched=True)) as command:
            assert len(command.sessions()) == 2
        assert not beside(journal, "-sums").exists()
        make_session(service, "a/2")
        with closing(SqliteJournalStore(link, read_only=read_only, watched=True)) as command:
            assert command.damage() is None
    assert beside(journal, "-sums").exists()
    assert list(link.parent.iterdir()) == [link]
    with closing(watched(link)) as service:
        assert service.damage() is None


def test_checksums_beside_a_log_are_of_another_time(journal: Path, tmp_path: Path) -> None:
    """As in a copy of a home in use over one of the home at rest."""
    copy = tmp_path / "copy"
    shutil.copytree(journal.parent, copy)
    with closing(watched(journal)) as store:
        for number in range(100):
            make_session(store, f"a/{number}")
        shutil.copytree(journal.parent, copy, dirs_exist_ok=True)
    assert beside(copy / "journal.db", "-sums").exists()
    assert beside(copy / "journal.db", "-wal").stat().st_size
    with closing(SqliteJournalStore(copy / "journal.db", read_only=True, watched=True)) as store:
        store.check(thorough=True)
    with closing(watched(copy / "journal.db")) as store:
        assert len(store.sessions()) == 101
        assert not beside(copy / "journal.db", "-sums").exists()
        store.check(thorough=True)


def test_the_error_says_how_to_restore(journal: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(journal.parent, backup)
    with closing(watched(journal)) as store:
        for number in range(100):
            make_session(store, f"a/{number}")
    for part in ("", "-heads"):
        shutil.copy(beside(backup / "journal.db", part), beside(journal, part))
    with pytest.raises(Corrupt) as refused:
        watched(journal)
    said = str(refused.value)
    assert "with its -wal, -sums and -heads, without those that the backup lacks" in said
    assert "remove journal.db-sums" in said
    beside(journal, "-sums").unlink()
    with closing(watched(journal)) as store:
        assert store.damage() is None


def put(store: SqliteJournalStore, session: Session, drafts: Sequence[Draft]) -> None:
    before = store.head(session.main_branch_id)
    store.commit(Commit(session.session_id, before, tuple(seal(before, drafts)), epoch=None))


def test_a_branch_that_came_back_under_another_session_may_be_shorter(journal: Path) -> None:
    """An agent is deleted, and an archive of it from before is imported, which keeps its branches' ids."""
    ids = IdSource()
    drafts = [Draft(ids.event(NOW_MS), "turn.done", {"number": number}, number, NOW_MS) for number in range(4)]
    with closing(watched(journal)) as store:
        session = store.ensure_session("a/1", ids.session(NOW_MS), ids.branch(NOW_MS), NOW_MS)
        put(store, session, drafts)
    heads = beside(journal, "-heads").read_bytes()
    with closing(watched(journal)) as store:
        store.delete_session(session.session_id, NOW_MS)
        again = store.ensure_session("a/1", ids.session(NOW_MS), session.main_branch_id, NOW_MS)
        put(store, again, drafts[:2])
        assert store.damage() is None
    beside(journal, "-heads").write_bytes(heads)  # as if it had not been closed in order
    beside(journal, "-sums").unlink()
    with closing(watched(journal)) as store:
        store.check(thorough=True)
