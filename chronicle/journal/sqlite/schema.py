"""The tables in SQLite (`chronicle.journal.sql.tables`), a view of them, and migrations of older files."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, OlderVersionRuns, UnsupportedFormat, UnusableFormat
from chronicle.journal.sql.tables import TABLES, VERSION
from chronicle.journal.sqlite.copying import copy_database
from chronicle.system.atomic_files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["APPLICATION_ID", "MIGRATIONS", "VERSION", "make_tables", "prepare", "version_of"]

APPLICATION_ID: Final = 0x4348_4A4C
"""``CHJL`` in the file's header: distinguishes a journal from other SQLite databases."""

_VIEW: Final = """CREATE VIEW events AS                                  -- for people with a SQLite shell
    SELECT branch.branch_id, event.id & 4294967295 AS seq, event.event_id, event.type, event.turn, event.ts,
           event.correlation_id, iif(event.causation_id = '', event.correlation_id, event.causation_id) AS causation_id,
           'v1:' || lower(hex(event.hash)) AS hash, CAST(event.payload AS TEXT) AS payload
    FROM event JOIN branch ON branch.key = event.id >> 32;
"""
_TABLES: Final = TABLES + _VIEW


def _index_paused(db: sqlite3.Connection) -> None:
    db.execute("CREATE INDEX inbox_paused ON inbox (session, id) WHERE status = 4")


MIGRATIONS: Final[Mapping[int, Callable[[sqlite3.Connection], None]]] = {1: _index_paused}
"""By older version: the statements that migrate to the next one, in a transaction. Version 1 is the first."""


def version_of(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of a journal file, 0 for an empty one.

    The caller holds the writer lock or is in a transaction, so that the values it reads are consistent.

    Raises:
        Corrupt: the file is another program's database, or its schema is damaged.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    try:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except UnicodeDecodeError as error:  # in the message of SQLite, which quotes the schema
        raise Corrupt(f"{path} is damaged: its schema is not text", str(path)) from error
    if application != APPLICATION_ID and (tables or application or version):
        raise Corrupt(f"{path} is a SQLite database, but not a journal; give another path")
    return int(version)


def prepare(db: sqlite3.Connection, path: Path, may_migrate: Callable[[], bool] = lambda: True) -> None:
    """Create the tables of a new file, or migrate an older one to `VERSION` after a backup beside it.

    The caller holds the writer lock. Everything is in one transaction.

    Args:
        may_migrate: returns false while a process that knows the older format only may use the file; called for an
            older file only.

    Raises:
        UnsupportedFormat: the file is newer than this code, or no migration leads from its version.
        OlderVersionRuns: the file is older, and must not be migrated now.
    """
    version = version_of(db, path)
    if version == VERSION:
        return
    if version > VERSION:
        raise UnsupportedFormat(f"{path} is a journal of format {version}, and this code reads up to {VERSION}")
    missing = [step for step in range(version, VERSION) if version and step not in MIGRATIONS]
    if missing:
        raise UnusableFormat(f"{path} is a journal of format {version}; no upgrade leads from {missing[0]}")
    if version:
        if not may_migrate():
            raise OlderVersionRuns(
                f"{path} has format {version} and is in use by an older version; end it, then try again"
            )
        _back_up(db, path.with_name(f"{path.name}.v{version}.backup"))
    db.execute("BEGIN IMMEDIATE")
    try:
        if version:
            for step in range(version, VERSION):
                MIGRATIONS[step](db)
        else:
            make_tables(db)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite rolls back by itself on a full disk
            db.execute("ROLLBACK")
        raise


def make_tables(db: sqlite3.Connection) -> None:
    """Create the tables, indexes and views, in the caller's transaction."""
    for statement in _statements(_TABLES):
        db.execute(statement)


def _statements(script: str) -> list[str]:
    """Split a script; ``executescript`` would commit the open transaction."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements


def _back_up(db: sqlite3.Connection, target: Path) -> None:
    """Copy the database to a file that gets its name once it is complete and durable."""
    (source,) = (Path(file) for _, name, file in db.execute("PRAGMA database_list") if name == "main")
    with replacing(target, target.with_name(target.name + ".partial")) as partial:
        partial.unlink(missing_ok=True)  # left by a killed process
        copy_database(db, partial)
        partial.chmod(source.stat().st_mode & 0o777)
