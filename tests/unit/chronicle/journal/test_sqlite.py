"""What is SQLite's own: files that cannot be used, formats, processes, damage, and what a commit costs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import (
    Corrupt,
    InvalidInput,
    NotFound,
    Unavailable,
    UnsupportedFormat,
)
from chronicle.journal.records import Outcome, Settlement, Snapshot
from chronicle.journal.sqlite import SqliteJournalStore, schema
from chronicle.journal.sqlite.database import SqliteConnection, SqliteDatabase
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import Writer
from tests import syncs

if TYPE_CHECKING:
    from collections.abc import Iterator

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "journal.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteJournalStore]:
    """A new one."""
    store = SqliteJournalStore(path)
    yield store
    store.close()


def writing_connection(store: SqliteJournalStore) -> SqliteConnection:
    """The store's own, to set what cannot be set from outside."""
    database = store._db
    assert isinstance(database, SqliteDatabase)
    return database._writer


# -- paths and formats -------------------------------------------------------------------------------------------------


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist; make it first"):
        SqliteJournalStore(tmp_path / "no" / "journal.db")
    assert not list(tmp_path.iterdir())


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a directory"):
        SqliteJournalStore(tmp_path)


def test_none_there_and_none_wanted(path: Path) -> None:
    with pytest.raises(NotFound, match="there is no journal"):
        SqliteJournalStore(path, create=False)
    assert not path.exists()


@pytest.mark.parametrize("mode", [0o555, 0o500])
def test_a_directory_that_is_not_writable(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    directory.chmod(mode)
    code = (
        "import sys\n"
        "from chronicle.errors import StorageRefused\n"
        "from chronicle.journal.sqlite import SqliteJournalStore\n"
        "import os\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: SqliteJournalStore(sys.argv[1])\n"
        "except StorageRefused as error: print(error)\n"
    )
    for parent in tmp_path.parents:
        if AS_ROOT and parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o755)
    tmp_path.chmod(0o755)
    said = subprocess.run(
        [sys.executable, "-c", code, directory / "journal.db"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "writ" in said.stdout or "cannot be" in said.stdout, said


def test_what_is_not_a_database(path: Path) -> None:
    path.write_bytes(b"something else entirely, and long enough to have a header of its own" * 20)
    with pytest.raises(Corrupt, match="not a SQLite database"):
        SqliteJournalStore(path)
    assert path.read_bytes().startswith(b"something else")


def test_a_database_of_something_else(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="not a journal"):
        SqliteJournalStore(path)
    assert path.read_bytes() == before


def test_a_newer_format(store: SqliteJournalStore, path: Path) -> None:
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(UnsupportedFormat, match=f"format {schema.VERSION + 1}.*this code reads up to"):
        SqliteJournalStore(path)


# -- damage and failure ------------------------------------------------------------------------------------------------


def test_a_lost_table(store: SqliteJournalStore, path: Path) -> None:
    writer = Writer.on(store)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE event")
    with pytest.raises(Corrupt, match="lacks a table"):
        writer.write()


def test_pages_overwritten(store: SqliteJournalStore, path: Path) -> None:
    writer = Writer.on(store)
    writer.turns(200)
    store.close()
    data = bytearray(path.read_bytes())
    data[3 * 16384 :] = b"\xff" * (len(data) - 3 * 16384)
    path.write_bytes(data)
    with pytest.raises(Corrupt), closing(SqliteJournalStore(path)) as damaged:
        list(damaged.events(writer.head.branch_id))


def test_a_damaged_snapshot_is_skipped(store: SqliteJournalStore, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer.on(store)
    branch_id = writer.head.branch_id
    writer.write(snapshot=Snapshot(branch_id, 1, b"one" * 5000))
    writer.write(snapshot=Snapshot(branch_id, 2, b"two" * 5000))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE snapshot_pack SET data = zeroblob(50) WHERE id & 4294967295 = 2")
    assert store.snapshot(branch_id) == Snapshot(branch_id, 1, b"one" * 5000)
    writer.write(snapshot=Snapshot(branch_id, 3, b"two" * 5000 + b"three"))
    assert store.snapshot(branch_id) == Snapshot(branch_id, 3, b"two" * 5000 + b"three")
    assert "skipped" in caplog.text


def test_a_full_disk(tmp_path: Path) -> None:
    """SQLite's own limit on pages gives the error that a full disk gives."""
    store = SqliteJournalStore(tmp_path / "journal.db")
    try:
        writer = Writer.on(store)
        events = writer.turns(1)
        writing_connection(store).execute("PRAGMA max_page_count = 20")
        big = writer.draft(payload="x" * 1_000_000)
        with pytest.raises(Unavailable, match="full"):
            writer.write(big)
        other = Writer.on(store, "hello/bob")
        with pytest.raises(Unavailable, match="full"):  # SQLite rolls all of it back
            store.commit_many([other.commit_of(), writer.commit_of(big)])
        assert store.head(other.head.branch_id) == other.head
        writing_connection(store).execute("PRAGMA max_page_count = 100000")
        assert list(store.events(writer.head.branch_id)) == events
        writer.write(big)
        assert verify_session(store, writer.session).ok
    finally:
        store.close()


def test_someone_else_holds_it_locked(store: SqliteJournalStore, path: Path) -> None:
    writer = Writer.on(store)
    writing_connection(store).execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="another program holds"):
            writer.write()
        db.execute("ROLLBACK")
    writer.write()


# -- forks and processes -----------------------------------------------------------------------------------------------


def test_a_forked_child_is_told_to_open_its_own(store: SqliteJournalStore, path: Path) -> None:
    writer = Writer.on(store)
    writer.turns(1)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: nothing but os._exit may end it
        try:
            said = []
            for use in (writer.write, lambda: store.session("hello/alice"), store.close):
                try:
                    use()
                    said.append("nothing")
                except Unavailable as error:
                    said.append("before a fork" if "before a fork" in str(error) else str(error))
            own = SqliteJournalStore(path)
            replace(writer, store=own).write()
            own.close()
            os.write(write, ",".join(said).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "before a fork,before a fork,nothing"
    os.waitpid(pid, 0)
    writer.head = store.head(writer.head.branch_id)
    assert writer.head.seq == 3
    writer.turns(1)
    assert verify_session(store, writer.session).ok


WORKER = """
import sys
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.journal_contract import Writer
store = SqliteJournalStore(sys.argv[1])
writer = Writer.on(store, sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
writer.turns(int(sys.argv[3]))
store.close()
print("done", flush=True)
"""


def test_eight_processes_write_and_none_is_refused(path: Path) -> None:
    turns = 60
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, path, f"agent/{number}", str(turns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        out, _ = worker.communicate(timeout=150)
        assert (out, worker.returncode) == ("done\n", 0)
    store = SqliteJournalStore(path)
    for session in store.sessions():
        report = verify_session(store, session)
        assert (report.ok, report.events) == (True, 2 * turns)
    store.close()


def test_two_stores_of_one_process_on_one_file(store: SqliteJournalStore, path: Path) -> None:
    other = SqliteJournalStore(path)
    writer = Writer.on(store)
    for _ in range(3):
        writer.turns(1)
        writer = replace(writer, store=other if writer.store is store else store)
    other.close()
    assert list(store.events(writer.head.branch_id))[-1].hash == writer.head.hash


# -- cost --------------------------------------------------------------------------------------------------------------


COMMITTING = """
import sys
from chronicle.journal.records import Outcome, Settlement
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.journal_contract import Writer
from tests.syncs import so_far
store = SqliteJournalStore(sys.argv[1])
writer = Writer.on(store)
messages = [writer.admit() for _ in range(21)]
def write(message):
    writer.write(writer.draft(), writer.draft(), settled=(Settlement(message, Outcome.CONSUMED),))
write(messages[0])
before = so_far()
for message in messages[1:]:
    write(message)
print(so_far() - before)
store.close()
"""


@pytest.mark.skipif(not syncs.CAN_COUNT, reason="counts system calls with a small library that gcc builds")
def test_a_commit_syncs_once(path: Path) -> None:
    assert syncs.said_by(path.parent, "-c", COMMITTING, path) == "20\n"


FAILING_SYNCS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
static int failures;
void fail_next_sync(void) { failures = 1; }
static int failing(void) { if (!failures) return 0; failures = 0; errno = EIO; return 1; }
int fsync(int fd) { return failing() ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { return failing() ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"""

COMMITTING_ON_A_BAD_DISK = """
import ctypes, sys
from chronicle.errors import Unavailable
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.journal_contract import Writer
store, other = SqliteJournalStore(sys.argv[1]), SqliteJournalStore(sys.argv[1])
writer = Writer.on(store)
writer.turns(1)
head = store.head(writer.head.branch_id)
ctypes.CDLL(None).fail_next_sync()
try:
    writer.turns(1)
except Unavailable:
    print("refused", other.head(head.branch_id) == head, store.head(head.branch_id) == head)
writer.head = head
writer.turns(2)
print(other.head(head.branch_id).seq > head.seq)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="makes a sync fail with a small library that gcc builds")
def test_a_commit_whose_sync_fails_never_happened(path: Path) -> None:
    source, library = path.with_name("failing.c"), path.with_name("failing.so")
    source.write_text(FAILING_SYNCS)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    said = subprocess.run(
        [sys.executable, "-c", COMMITTING_ON_A_BAD_DISK, path],
        env={**os.environ, "LD_PRELOAD": str(library)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout == "refused True True\nTrue\n"


def test_a_consumed_message_leaves_its_place_on_disk(store: SqliteJournalStore, path: Path) -> None:
    writer = Writer.on(store)
    for _ in range(300):
        message = writer.admit(b"x" * 2000)
        writer.write(settled=(Settlement(message, Outcome.CONSUMED),))
    store.close()
    assert path.stat().st_size < 600_000
    assert b"x" * 100 not in path.read_bytes()[100_000:500_000]


@pytest.mark.parametrize("how", ["erase", "fold", "delete branch", "delete session"])
def test_what_is_deleted_is_not_in_the_files(store: SqliteJournalStore, path: Path, how: str) -> None:
    secret = "a secret " * 30
    other = Writer.on(store, "hello/bob")
    other.turns(3)
    writer = Writer.on(store)
    writer.turns(3)
    writer.write(settled=(Settlement(writer.admit(secret.encode()), Outcome.CONSUMED),))
    target = writer.fork(6) if how == "delete branch" else writer
    (event,) = target.write(
        target.draft(payload={"text": secret}), snapshot=Snapshot(target.head.branch_id, 7, b"a secret")
    )
    target.turns(3)
    other.turns(3)
    assert b"a secret" in b"".join(file.read_bytes() for file in path.parent.iterdir())
    match how:
        case "erase":
            store.erase([event.event_id])
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("PRAGMA secure_delete = ON")
                db.execute("DELETE FROM snapshot_pack")
        case "fold":
            store.fold(target.head.branch_id, 9, 1)
        case "delete branch":
            store.delete_branch(target.head.branch_id, 1)
        case _:
            store.delete_session(writer.session.session_id, 1)
    store.close()
    assert b"a secret" not in b"".join(file.read_bytes() for file in path.parent.iterdir())
    with closing(SqliteJournalStore(path)) as again:
        assert all(verify_session(again, session).ok for session in again.sessions())
