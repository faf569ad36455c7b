"""Opening a journal by its URL.

A journal on another database is a room beside :mod:`chronicle.journal.sqlite` and :mod:`chronicle.journal.postgres`,
a line in `open_journal`, and its URLs in :mod:`chronicle.journal.places`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from chronicle.errors import InvalidInput
from chronicle.journal.places import NO_PSYCOPG, is_server, postgres_place
from chronicle.journal.port import JournalStore
from chronicle.journal.ports.upkeep import StoreUpkeep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["StoredJournal", "copy_journal", "open_journal"]

_SQLITE: Final = "sqlite:///"


class StoredJournal(JournalStore, StoreUpkeep, Protocol):
    """A journal on a disk or a server, with its upkeep."""


def open_journal(
    url: str,
    *,
    create: bool = True,
    read_only: bool = False,
    watched: bool = False,
    may_migrate: Callable[[], bool] = lambda: True,
) -> StoredJournal:
    """Open the journal at a URL.

    Args:
        url: a path, or ``sqlite:///PATH``, of an SQLite file; or ``postgresql://USER@HOST/DATABASE`` with libpq's
            parameters, and ``schema`` for the schema of the tables (``chronicle`` by default).
        create: create a journal that does not exist.
        read_only: write nothing; the journal must exist. Write methods raise `InvalidInput`.
        watched: detect changes and a loss between two uses, and reserve space for a full disk. A server does both.
        may_migrate: whether a journal of an older format may be migrated now; called for such a journal only, and in a
            server only if the code of the older format would not work with it any more.

    Raises:
        InvalidInput: the URL has an unknown scheme, or nothing there can hold a journal.
        NotFound: there is no journal, and none is to be created.
        Corrupt: the journal is damaged, or was watched and is missing.
        UnsupportedFormat: it has a newer format.
        OlderFormat: it has an older one, and nothing is to be written.
        OlderVersionRuns: it has an older format, and must not be migrated now.
        StorageRefused: its file cannot be used, or the disk is full.
        Unavailable: it cannot be reached.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or url.startswith(_SQLITE):
        from chronicle.journal.sqlite import SqliteJournalStore  # noqa: PLC0415  one database of several

        path = unquote(url.removeprefix(_SQLITE)) if separator else url
        return SqliteJournalStore(path, create=create, read_only=read_only, watched=watched, may_migrate=may_migrate)
    if not is_server(url):
        raise InvalidInput(
            f"{scheme}:// is no journal that is known: give a path, {_SQLITE}PATH or postgresql://USER@HOST/DATABASE"
        )
    try:
        from chronicle.journal.postgres import PostgresJournalStore  # noqa: PLC0415  psycopg is optional
    except ImportError as error:
        raise InvalidInput(NO_PSYCOPG) from error
    conninfo, schema = postgres_place(url)
    return PostgresJournalStore(conninfo, schema=schema, create=create, read_only=read_only, may_migrate=may_migrate)


def copy_journal(source: StoredJournal, target: Path, on_rows: Callable[[int], None]) -> None:
    """Copy a journal as it is at one moment into a new SQLite file, durably; writers go on.

    Args:
        source: the journal.
        target: the file.
        on_rows: called with the number of rows copied so far, if they are copied one by one.

    Raises:
        StorageRefused: the file cannot be written.
        Unavailable: the journal cannot be read now; try again.
    """
    from chronicle.journal.sqlite import SqliteJournalStore  # noqa: PLC0415  one database of several

    if isinstance(source, SqliteJournalStore):
        source.copy_to(target)  # as pages
        return
    with closing(SqliteJournalStore(target, watched=True)) as store:
        store.receive(source, on_rows)
