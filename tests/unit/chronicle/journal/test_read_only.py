"""Reading a journal where nothing can be written, and leaving no trace where something can."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Corrupt, InvalidInput, NotFound, StorageRefused, Unavailable, UnsupportedFormat
from chronicle.ids import BranchId, SessionId
from chronicle.journal.sqlite import SqliteJournalStore, readonly, schema
from chronicle.journal.sqlite.database import SqliteConnection, SqliteDatabase
from chronicle.journal.sqlite.readonly import ReadOnlyDatabase
from chronicle.journal.verify import verify_session
from tests.unit.read_only import listing, without_write_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "home %?#"  # what a URL would take for something else
    directory.mkdir()
    return directory / "journal.db"


def write(store: SqliteJournalStore, name: str) -> None:
    store.ensure_session(name, SessionId(f"ses_{name}"), BranchId(f"br_{name}"), 1)


def make(path: Path, *names: str) -> None:
    store = SqliteJournalStore(path)
    for name in names:
        write(store, name)
    store.close()
    for lock in ("-queue", "-gate"):
        path.with_name(path.name + lock).unlink()


def die_writing(path: Path, *names: str) -> None:
    """Leave a journal as a process leaves it that was killed."""
    pid = os.fork()
    if pid == 0:
        store = SqliteJournalStore(path)
        for name in names:
            write(store, name)
        os._exit(0)
    os.waitpid(pid, 0)
    assert path.with_name(path.name + "-wal").stat().st_size > 0


def names_in(path: Path) -> list[str]:
    store = SqliteJournalStore(path, read_only=True)
    try:
        for session in store.sessions():
            assert verify_session(store, session).damage is None
        return [session.name for session in store.sessions()]
    finally:
        store.close()


def test_a_journal_at_rest_is_read_without_a_trace(path: Path) -> None:
    make(path, "a", "b")
    before = listing(path.parent)
    assert names_in(path) == ["a", "b"]
    assert listing(path.parent) == before

    def read() -> None:
        assert names_in(path) == ["a", "b"]

    without_write_access(path.parent, read)
    assert listing(path.parent) == before


def test_a_journal_in_use_is_read_as_it_is(path: Path) -> None:
    make(path, "a")
    writer = SqliteJournalStore(path)
    write(writer, "b")

    def read() -> None:
        assert names_in(path) == ["a", "b"]

    without_write_access(path.parent, read)
    reader = SqliteJournalStore(path, read_only=True)
    assert len(reader.sessions()) == 2
    write(writer, "c")
    assert len(reader.sessions()) == 3
    writer.close()
    assert len(reader.sessions()) == 3
    reader.close()
    make(path, "d")
    assert names_in(path) == ["a", "b", "c", "d"]


def test_what_a_crash_left_is_read(path: Path) -> None:
    die_writing(path, "a", "b")
    before = set(listing(path.parent))

    def read() -> None:
        assert names_in(path) == ["a", "b"]

    without_write_access(path.parent, read)
    assert names_in(path) == ["a", "b"]
    assert set(listing(path.parent)) == before


def test_a_log_without_its_index_needs_a_place_that_can_be_written(path: Path) -> None:
    die_writing(path, "a")
    path.with_name(path.name + "-shm").unlink()

    def refuse() -> None:
        with pytest.raises(Unavailable, match="make its directory writable, or copy it and journal.db-wal"):
            names_in(path)

    without_write_access(path.parent, refuse)
    assert names_in(path) == ["a"]


def test_a_writer_that_comes_while_a_journal_at_rest_is_read(path: Path) -> None:
    make(path, "a")
    reader = SqliteJournalStore(path, read_only=True)
    session = reader.session("a")
    writer = SqliteJournalStore(path)
    with reader.audit(session.session_id):
        write(writer, "b")  # into the log: what is being read stays as it is
    assert [found.name for found in reader.sessions()] == ["a", "b"]
    reader.close()
    writer.close()

    reader = SqliteJournalStore(path, read_only=True)
    with pytest.raises(Unavailable, match="written to while it was read"), reader.audit(session.session_id):
        make(path, "c")  # and folded into the file
    assert [found.name for found in reader.sessions()] == ["a", "b", "c"]
    reader.close()


def test_damage_seen_while_a_writer_came_is_not_reported_as_damage(path: Path) -> None:
    make(path, "a")
    database = ReadOnlyDatabase(path)

    def write_and_find_damage() -> None:
        make(path, "b")
        raise Corrupt("pages of two commits")

    with pytest.raises(Unavailable, match="read it again"), database.reading():
        write_and_find_damage()
    with pytest.raises(Corrupt, match="really"), database.reading():
        raise Corrupt("really")
    database.close()


def test_what_writes_is_refused(path: Path) -> None:
    make(path, "a")
    store = SqliteJournalStore(path, read_only=True)
    session = store.session("a")
    with pytest.raises(InvalidInput, match="opened for reading only"):
        write(store, "b")
    with pytest.raises(InvalidInput, match="opened for reading only"):
        store.delete_session(session.session_id, 1)
    store.close()
    with pytest.raises(Unavailable, match="was closed"):
        store.sessions()


def test_what_is_no_journal(path: Path) -> None:
    with pytest.raises(NotFound, match="no journal"):
        names_in(path)
    assert not listing(path.parent).keys() - {"."}
    with pytest.raises(InvalidInput, match="is a directory"):
        names_in(path.parent)
    path.touch()
    with pytest.raises(NotFound, match="yet"):
        names_in(path)
    path.write_bytes(b"something else" * 1000)
    with pytest.raises(Corrupt):
        names_in(path)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(Corrupt, match="not a journal"):
        names_in(path)


def interrupt(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object], times: int = 1) -> None:
    """Let something happen after a reader that opens a journal has read the first two of three values."""
    left = [None] * times
    execute = SqliteConnection.execute

    def interrupted(db: SqliteConnection, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        rows = execute(db, sql, values)
        if sql == "PRAGMA application_id" and left:
            left.pop()  # first: what happens meanwhile may open a journal as well
            meanwhile()
        return rows

    monkeypatch.setattr(SqliteConnection, "execute", interrupted)


def test_a_journal_in_use_that_gets_its_tables_while_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = sqlite3.connect(path)
    maker.execute("PRAGMA journal_mode = WAL")
    maker.execute("SELECT * FROM sqlite_master").fetchall()
    assert path.with_name(path.name + "-shm").stat().st_size > 0
    writers: list[SqliteJournalStore] = []
    interrupt(monkeypatch, lambda: writers.append(SqliteJournalStore(path)))
    with pytest.raises(NotFound, match="yet"):
        names_in(path)
    write(writers[0], "a")
    assert names_in(path) == ["a"]
    writers[0].close()
    maker.close()


def test_a_journal_that_is_made_while_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    interrupt(monkeypatch, lambda: make(path, "a"))
    assert names_in(path) == ["a"]


def test_opening_does_not_go_on_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, "a")
    monkeypatch.setattr(readonly, "_OPENING_S", 0.05)
    interrupt(monkeypatch, lambda: os.utime(path, ns=(0, path.stat().st_mtime_ns + 1)), 100_000)
    with pytest.raises(Unavailable, match="written to while it was read"):
        names_in(path)


def test_a_writer_that_ends_while_a_journal_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    with writer_elsewhere(path, "a") as end_writer:

        def connect_late(*args: object, **options: object) -> object:
            end_writer()
            return connect(*args, **options)  # type: ignore[call-overload]

        def read() -> None:
            monkeypatch.setattr(sqlite3, "connect", connect_late)
            assert names_in(path) == ["a"]

        without_write_access(path.parent, read)


@contextmanager
def writer_elsewhere(path: Path, name: str) -> Iterator[Callable[[], None]]:
    """Have a process write a session and keep the journal open; yield what makes it end, and waits until it has."""
    (ready, is_ready), (wanted, want), (ended, is_ended) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(want)
            store = SqliteJournalStore(path)
            write(store, name)
            os.write(is_ready, b"x")
            os.read(wanted, 1)
            store.close()
        finally:
            os._exit(0)
    for fd in (is_ready, is_ended):
        os.close(fd)
    assert os.read(ready, 1)

    def end() -> None:
        os.write(want, b"x")
        assert os.read(ended, 1) == b""  # its end of the pipe is closed when it has ended

    try:
        yield end
    finally:
        for fd in (ready, wanted, want, ended):
            os.close(fd)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_disk_that_fails_is_told_as_such(path: Path, read_only: bool) -> None:
    make(path, "a")
    database = ReadOnlyDatabase(path) if read_only else SqliteDatabase(path, lambda _db, _data: False, create=False)

    def fail(db: SqliteConnection) -> None:
        db.execute("ROLLBACK")  # as SQLite does by itself then
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_READ"
        raise error

    with (
        pytest.raises(StorageRefused, match="cannot be read or written: disk I/O error"),
        database.reading_one_moment() as db,
    ):
        fail(db)
    database.close()


def test_a_newer_format(path: Path) -> None:
    make(path, "a")
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    db.close()
    with pytest.raises(UnsupportedFormat, match="this code reads up to"):
        names_in(path)


def test_a_file_that_may_not_be_read(path: Path, tmp_path: Path) -> None:
    make(path, "a")
    shutil.copy(path, tmp_path / "secret.db")

    def refuse() -> None:
        with pytest.raises(StorageRefused, match="mend its permissions"):
            names_in(tmp_path / "secret.db")

    def run() -> None:
        (tmp_path / "secret.db").chmod(0)
        refuse()

    if os.geteuid() != 0:
        run()
        return
    (tmp_path / "secret.db").chmod(0o600)
    without_write_access(path.parent, refuse)


def test_a_fork_must_open_it_again(path: Path) -> None:
    make(path, "a")
    store = SqliteJournalStore(path, read_only=True)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(Unavailable, match="before a fork"):
                store.sessions()
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(store.sessions()) == 1
    store.close()
