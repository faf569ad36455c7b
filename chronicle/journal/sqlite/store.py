"""The journal's store on SQLite: the shared SQL over one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.errors import ChronicleError, Unavailable
from chronicle.journal.sql import commits
from chronicle.journal.sql.store import SqlJournalStore
from chronicle.journal.sqlite import handover
from chronicle.journal.sqlite.database import SqliteDatabase
from chronicle.journal.sqlite.readonly import ReadOnlyDatabase

if TYPE_CHECKING:
    from chronicle.journal.sql.commits import Ready
    from chronicle.journal.sqlite.database import SqliteConnection

__all__ = ["SqliteJournalStore"]


class SqliteJournalStore(SqlJournalStore):
    """A :class:`~chronicle.journal.store.JournalStore` in one file, for any number of threads and processes.

    A write is on disk when it returns. Commits that wait for the writer lock share one sync, of all processes.

    Args:
        path: the file; made, with its tables, when it is not there.
        create: false to refuse a path where no journal is.
        read_only: nothing is written, made or locked, so nothing need be writable; there must be a journal. Methods
            that write raise `InvalidInput`.

    Raises:
        InvalidInput: the path cannot hold a journal: its directory is missing, or it is a directory.
        StorageRefused: it or its directory cannot be written, or the disk is full.
        NotFound: there is none, and ``create`` is false or ``read_only`` true; to read only, one that is only being
            made, and has no tables yet, is none.
        Corrupt: the file is not a journal.
        UnsupportedFormat: it is a journal of a newer format; to read only, of an older one too.
        Unavailable: it was not closed in order, and cannot be read where nothing can be written.
    """

    def __init__(self, path: Path | str, *, create: bool = True, read_only: bool = False) -> None:
        path = Path(path)
        self._shared = None if read_only else SqliteDatabase(path, self._serve, create=create)
        super().__init__(self._shared or ReadOnlyDatabase(path))

    def _write(self, ready: Ready) -> None:
        """Do a commit, alone or along with those of other processes."""
        if self._shared is None:
            super()._write(ready)
            return

        def work(db: SqliteConnection, maybe_done: bool) -> None:
            if not (maybe_done and commits.is_there(db, ready)):
                commits.apply(db, ready)

        self._shared.write(work, lambda: handover.to_bytes(ready))

    def _serve(self, db: SqliteConnection, data: bytes) -> bool:
        """Do another process's commit, unless it is refused: that process shall see for itself why."""
        ready = handover.from_bytes(data)
        if ready is None:
            return False
        try:
            with self._db.savepoint(db):
                commits.apply(db, ready)
        except Unavailable:
            raise
        except ChronicleError:
            return False
        return True
