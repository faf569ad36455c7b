"""The journal's store on SQLite: the shared SQL over one file."""

from __future__ import annotations

from pathlib import Path

from chronicle.journal.sql.store import SqlJournalStore
from chronicle.journal.sqlite.database import SqliteDatabase
from chronicle.journal.sqlite.readonly import ReadOnlyDatabase

__all__ = ["SqliteJournalStore"]


class SqliteJournalStore(SqlJournalStore):
    """A :class:`~chronicle.journal.store.JournalStore` in one file, for any number of threads and processes.

    A write is on disk when it returns: it costs one sync, which is what ``synchronous=FULL`` gives, but done after the
    writer lock was let go.

    Args:
        path: the file; made, with its tables, when it is not there.
        create: false to refuse a path where no journal is.
        read_only: nothing is written, made or locked, so nothing need be writable; there must be a journal. Methods
            that write raise `InvalidInput`.

    Raises:
        InvalidInput: the path cannot hold a journal: its directory is missing or not writable, or it is a directory.
        NotFound: there is none, and ``create`` is false or ``read_only`` true.
        Corrupt: the file is not a journal.
        UnsupportedFormat: it is a journal of a newer format; to read only, of an older one too.
        Unavailable: it was not closed in order, and cannot be read where nothing can be written.
    """

    def __init__(self, path: Path | str, *, create: bool = True, read_only: bool = False) -> None:
        path = Path(path)
        super().__init__(ReadOnlyDatabase(path) if read_only else SqliteDatabase(path, create=create))
