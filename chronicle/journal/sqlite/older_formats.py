"""Journals of older formats: their tables, migrating them, and reading them as they are.

Format 1 had no namespaces of session names: all names belong to the default one. Format 2 had neither headers of
messages, nor steps, nor reminders. Format 3 had no objects. A journal that is opened for reading only stays as it is:
temporary views, which hide the tables of the same names, add what it lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

__all__ = ["ADDED", "REMADE", "remake_tables", "show_as_newest"]

REMADE: Final[Mapping[int, Mapping[str, str]]] = {
    1: {
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
    },
    2: {
        "inbox": """
CREATE TABLE inbox (
    id              INTEGER PRIMARY KEY,               -- session key << 32 | position
    session         INTEGER NOT NULL,
    message_id      TEXT NOT NULL UNIQUE,
    idempotency_key TEXT,
    sender          TEXT,
    body_sha256     BLOB,                              -- only with an idempotency key, to know a repeat
    admitted_ms     INTEGER NOT NULL,
    attempts        INTEGER NOT NULL,
    status          INTEGER NOT NULL,                  -- 0 pending, 1 consumed, 2 cancelled, 3 parked
    body            BLOB                               -- NULL once consumed or cancelled
);
""",
        "outbox": """
CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    target     TEXT NOT NULL,
    body       BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    sender     TEXT,
    namespace  TEXT NOT NULL DEFAULT 'default'         -- of sender and target
);
""",
    },
    3: {},
}
"""By version: the declarations of the tables that the next version declares in another way, by name."""

ADDED: Final[Mapping[int, tuple[str, ...]]] = {
    2: ("inbox_parked", "step", "reminder", "reminder_by_due"),
    3: ("object", "object_by_key", "object_of_session"),
}
"""By version: the tables and indexes that it lacks and the next version has, in the order of creation."""

_VIEWS: Final[Mapping[int, Mapping[str, str]]] = {
    1: {
        "session": "SELECT *, 'default' AS namespace FROM main.session",
        "outbox": "SELECT *, 'default' AS namespace, NULL AS headers FROM main.outbox",
        "tombstone": "SELECT *, 'default' AS namespace FROM main.tombstone",
    },
    2: {
        "inbox": "SELECT *, NULL AS headers FROM main.inbox",
        "outbox": "SELECT *, NULL AS headers FROM main.outbox",
        "step": "SELECT 0 AS message, 1 AS number, '' AS key, x'' AS body WHERE 0",
        "reminder": "SELECT 1 AS id, 0 AS session, '' AS name, 0 AS due_ms, x'' AS body WHERE 0",
    },
    3: {
        "object": (
            "SELECT 0 AS id, '' AS namespace, '' AS kind, '' AS object_id, NULL AS session_id, 0 AS created_ms, "
            "NULL AS expires_ms, NULL AS repetition_key, NULL AS request_sha256, NULL AS content, 0 AS size_bytes, "
            "NULL AS body_ref, x'' AS body_sha256, NULL AS body WHERE 0"
        ),
    },
}
"""By version: what stands for the tables of the newest format."""


def show_as_newest(db: sqlite3.Connection, version: int) -> None:
    """Let a connection that reads a journal of an older format see the tables and columns that it lacks."""
    views: dict[str, str] = {}
    for each in sorted(_VIEWS, reverse=True):
        if each >= version:
            views |= _VIEWS[each]
    if views:
        db.execute("PRAGMA temp_store = MEMORY")
    for name, query in views.items():
        db.execute(f"CREATE TEMP VIEW {name} AS {query}")


def remake_tables(db: sqlite3.Connection, declared: Mapping[str, str]) -> None:
    """Create tables anew with their rows, in the caller's transaction; indexes with names of their own are dropped.

    SQLite cannot drop a ``UNIQUE``, and writes an added column into the declaration in a way of its own, where
    `chronicle.journal.sqlite.health` compares the texts of declarations.

    Args:
        declared: by table, its new declaration, which has all the columns of the old one.
    """
    for name, declaration in declared.items():
        columns = ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({name})"))
        db.execute(f"ALTER TABLE {name} RENAME TO older_{name}")
        db.execute(declaration)
        db.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM older_{name} ORDER BY rowid")
        db.execute(f"DROP TABLE older_{name}")
