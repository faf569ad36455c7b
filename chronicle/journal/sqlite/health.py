"""Integrity checks of a journal's file, for everything that the chains do not cover.

The checks, cheapest first: the checksums and heads of the last close (`chronicle.journal.sqlite.checksums`), SQLite's
own check of its pages and indexes, the tables' declarations, and the types of their values.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from chronicle.journal.sqlite import checksums, schema

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["damage"]

_KINDS: Final = {"INTEGER": "integer", "TEXT": "text", "BLOB": "blob"}


def damage(db: sqlite3.Connection, path: Path) -> str | None:
    """Read the whole file and return its damage; ``None`` if there is none.

    Args:
        db: a connection in a read transaction.
        path: the journal's file.

    Raises:
        sqlite3.Error: the damage keeps SQLite from reading the file.
    """
    return (
        checksums.damaged_page(path) or _structure(db) or _declarations(db) or checksums.missing(db, path) or _kinds(db)
    )


def _structure(db: sqlite3.Connection) -> str | None:
    (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    return None if found == "ok" else f"SQLite finds it malformed: {' '.join(str(found).split())}"


def _declarations(db: sqlite3.Connection) -> str | None:
    with closing(sqlite3.connect(":memory:")) as fresh:
        schema.make_tables(fresh)
        expected = _declared(fresh)
    found = _declared(db)
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            kind, name = key
            what = "is missing" if key not in found else "is declared in another way" if key in expected else "is new"
            return f"its {kind} {name} {what}"
    return None


def _declared(db: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, str | None]]:
    rows = db.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_master WHERE name NOT LIKE 'sqlite_stat%'")
    return {(kind, name): (table, sql) for kind, name, table, sql in rows}


def _kinds(db: sqlite3.Connection) -> str | None:
    """Find a value of another type than its column's: SQLite does not enforce column types."""
    for table in _tables(db):
        columns = db.execute(f"PRAGMA main.table_info({table})").fetchall()
        wrong = [
            f"typeof({name}) <> '{_KINDS[kind]}'" + ("" if needed else f" AND {name} IS NOT NULL")
            for _, name, kind, needed, _, key in columns
            if needed or not key  # a key that is not declared as needed is the rowid
        ]
        row = db.execute(f"SELECT {columns[0][1]} FROM main.{table} WHERE {' OR '.join(wrong)} LIMIT 1").fetchone()
        if row is not None:
            return f"row {row[0]} of its table {table} holds a value of a wrong type"
    return None


def _tables(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
