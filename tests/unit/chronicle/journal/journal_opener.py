"""Another process that has a journal open: ``python -m tests.unit.chronicle.journal.journal_opener WORK PATH``."""

from __future__ import annotations

import fcntl
import sys
from contextlib import closing
from pathlib import Path

from chronicle.ids import IdSource
from chronicle.journal.sqlite import SqliteJournalStore

NOW_MS = 1_700_000_000_000
SHARED_FIRST, SHARED_SIZE = 0x4000_0002, 510
"""The bytes of its file that SQLite locks, shared, as long as a connection in WAL mode is open."""


def make_session(store: SqliteJournalStore, name: str) -> None:
    """Do a write, which is durable when this returns."""
    ids = IdSource()
    store.ensure_session(name, ids.session(NOW_MS), ids.branch(NOW_MS), NOW_MS)


def main() -> None:
    """Do one of the works."""
    work, path = sys.argv[1], Path(sys.argv[2])
    if work == "look":  # open it and close it
        with closing(SqliteJournalStore(path, watched=True)) as store:
            print(len(store.sessions()))
    elif work == "locked":  # whether anybody has SQLite's lock
        with path.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
            except BlockingIOError:
                print("yes")
            else:
                print("no")
    else:  # write when told to, until killed
        store = SqliteJournalStore(path, watched=True)
        print("open", flush=True)
        for line in sys.stdin:
            make_session(store, line.strip())
            print("written", flush=True)


if __name__ == "__main__":
    main()
