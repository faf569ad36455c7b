"""SQLite's lock on a journal stays as long as it is open, whatever else this process reads of the file."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from chronicle.journal.sqlite import SqliteJournalStore, raw_reads
from tests.unit.chronicle.journal.journal_opener import make_session

ROOT: Final = Path(__file__).parents[4]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal that was closed in order, so that its checksums lie beside it."""
    path = tmp_path / "journal.db"
    with closing(SqliteJournalStore(path, watched=True)) as store:
        make_session(store, "first/1")
    assert beside(path, "-sums").exists()
    return path


def beside(path: Path, part: str) -> Path:
    return path.with_name(path.name + part)


def opener(work: str, path: Path) -> list[str]:
    return [sys.executable, "-m", "tests.unit.chronicle.journal.journal_opener", work, str(path)]


def other(work: str, path: Path) -> str:
    """Have another process do something with the journal."""
    done = subprocess.run(opener(work, path), cwd=ROOT, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def descriptors(path: Path) -> int:
    """Count the descriptors that this process has of a file."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found += fd.samefile(path)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("watched", [True, False])
def test_the_first_opener_after_an_orderly_end_has_its_lock(journal: Path, watched: bool) -> None:
    with closing(SqliteJournalStore(journal, watched=watched)) as store:
        make_session(store, "a/1")
        assert other("locked", journal) == "yes"
        assert other("look", journal) == "2"
        assert beside(journal, "-wal").exists(), "the other process took itself for the last one"
        assert not beside(journal, "-sums").exists()
        make_session(store, "a/2")
        assert other("look", journal) == "3"
    assert other("locked", journal) == "no"


def test_commits_after_another_process_came_and_went_survive_a_kill(journal: Path) -> None:
    with subprocess.Popen(
        opener("write", journal), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == "open\n"
            for number in range(20):
                writer.stdin.write(f"svc/{number}\n")
                writer.stdin.flush()
                assert writer.stdout.readline() == "written\n"
                if number == 0:
                    other("look", journal)
        finally:
            writer.kill()
    with closing(SqliteJournalStore(journal, watched=True)) as store:
        assert len(store.sessions()) == 21
        assert store.damage() is None


def test_the_lock_stays_while_the_file_is_read_past_sqlite(journal: Path) -> None:
    kept = beside(journal, "-sums").read_bytes()
    with closing(SqliteJournalStore(journal, watched=True)) as store:
        with closing(SqliteJournalStore(journal, watched=True)) as second:
            beside(journal, "-sums").write_bytes(kept)
            assert store.damage() is None
            with closing(SqliteJournalStore(journal, read_only=True, watched=True)) as reader:
                reader.check()
                assert reader.damage() is None
            beside(journal, "-sums").unlink()
            assert other("locked", journal) == "yes"
            second.sessions()
        assert other("locked", journal) == "yes"
        with raw_reads.reading(journal) as fd:
            assert os.pread(fd, 6, 0) == b"SQLite"
        assert other("locked", journal) == "yes"
        make_session(store, "a/1")
        assert other("look", journal) == "2"
        assert beside(journal, "-wal").exists()
    assert descriptors(journal) == 0, "what was kept open is closed with the last store"
    assert other("locked", journal) == "no"


def test_a_read_only_store_keeps_its_lock(journal: Path) -> None:
    """One that reads along with a writer holds a lock, too, and leaves no descriptor behind."""
    with closing(SqliteJournalStore(journal, watched=True)) as store:
        make_session(store, "a/1")
        with closing(SqliteJournalStore(journal, read_only=True, watched=True)) as reader:
            assert len(reader.sessions()) == 2
            with raw_reads.reading(journal) as fd:
                assert os.pread(fd, 6, 0) == b"SQLite"
    assert descriptors(journal) == 0


def test_a_file_is_read_by_one_descriptor_for_all_and_closed_by_the_last(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with raw_reads.reading(path) as first, raw_reads.reading(path) as second:
        assert first == second
    assert descriptors(path) == 0
    held = raw_reads.hold(path)
    with raw_reads.reading(path):
        pass
    assert descriptors(path) == 1
    held.release()
    held.release()
    assert descriptors(path) == 0
    raw_reads.hold(tmp_path / "none").release()
