"""Journals of format 1, whose session names had no namespaces: reading them as they are, and migrating them.

All their names belong to the default namespace. A journal that is opened for reading only stays as it is: temporary
views, which hide the tables of the same names, add the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

__all__ = ["TABLES", "add_namespaces", "show_namespaces"]

TABLES: Final[Mapping[str, str]] = {
    "session": """
CREATE TABLE session (
    key            INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL UNIQUE,
    name           TEXT NOT NULL UNIQUE,
    main_branch_id TEXT NOT NULL,
    created_ms     INTEGER NOT NULL,
    last_position  INTEGER NOT NULL DEFAULT 0,
    pending_from   INTEGER NOT NULL DEFAULT 1,         -- nothing waits at lower positions
    epoch          INTEGER NOT NULL DEFAULT 0,         -- the last one given; 0: never
    holder         TEXT,                               -- NULL: released
    expires_ms     INTEGER NOT NULL DEFAULT 0,
    catalogue_size INTEGER NOT NULL DEFAULT 0,
    catalogue_hash BLOB
);
""",
    "outbox": """
CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    target     TEXT NOT NULL,
    body       BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    sender     TEXT
);
""",
    "tombstone": """
CREATE TABLE tombstone (
    id             INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL,
    name           TEXT NOT NULL,
    deleted_ms     INTEGER NOT NULL,
    events         INTEGER NOT NULL,
    catalogue_hash BLOB NOT NULL
);
""",
}
"""The tables that were declared in another way, by name."""


def show_namespaces(db: sqlite3.Connection) -> None:
    """Let a connection that reads a journal of format 1 see the columns that the tables lack."""
    db.execute("PRAGMA temp_store = MEMORY")
    for name in TABLES:
        db.execute(f"CREATE TEMP VIEW {name} AS SELECT *, 'default' AS namespace FROM main.{name}")


def add_namespaces(db: sqlite3.Connection, declared: Mapping[str, str]) -> None:
    """Migrate a journal of format 1 to format 2, in the caller's transaction.

    The tables are created anew: SQLite cannot drop the old ``UNIQUE``, and `chronicle.journal.sqlite.health` compares
    the texts of declarations. They are small: a row for each session, and for each message in the outbox.

    Args:
        declared: by table, its declaration in format 2.
    """
    for name in TABLES:
        columns = ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({name})"))
        db.execute(f"ALTER TABLE {name} RENAME TO {name}_of_format_1")
        db.execute(declared[name])
        db.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {name}_of_format_1 ORDER BY rowid")
        db.execute(f"DROP TABLE {name}_of_format_1")
