"""The tables, their format version, and migrations of older files.

Branches and sessions have internal integer keys. A row that belongs to one of them has the 64-bit primary key ``key <<
32 | number``: rows of one branch are adjacent, and no second index is needed. There are few indexes, because a commit
writes a page of each that it touches, and an empty index takes a page, too. Tables are plain rowid tables: ``WITHOUT
ROWID`` took 3.3 times the disk for rows of 1.25 KB. The exception are steps, which are few and soon dropped: without a
rowid, storing one writes one page.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, OlderVersionRuns, UnsupportedFormat, UnusableFormat
from chronicle.journal.sqlite.copying import copy_database
from chronicle.system.atomic_files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["APPLICATION_ID", "MIGRATIONS", "VERSION", "make_tables", "prepare", "version_of"]

APPLICATION_ID: Final = 0x4348_4A4C
"""``CHJL`` in the file's header: distinguishes a journal from other SQLite databases."""
VERSION: Final = 1

_TABLES: Final = """
CREATE TABLE session (
    key            INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL UNIQUE,
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    main_branch_id TEXT NOT NULL,
    created_ms     INTEGER NOT NULL,
    last_position  INTEGER NOT NULL DEFAULT 0,
    pending_from   INTEGER NOT NULL DEFAULT 1,         -- nothing waits at lower positions
    epoch          INTEGER NOT NULL DEFAULT 0,         -- the last one given; 0: never
    holder         TEXT,                               -- NULL: released
    expires_ms     INTEGER NOT NULL DEFAULT 0,
    catalogue_size INTEGER NOT NULL DEFAULT 0,
    catalogue_hash BLOB,
    UNIQUE (namespace, name)
);
CREATE TABLE branch (
    key              INTEGER PRIMARY KEY,
    branch_id        TEXT NOT NULL UNIQUE,
    session          INTEGER NOT NULL,
    parent_branch_id TEXT,
    parent_seq       INTEGER NOT NULL,
    created_ms       INTEGER NOT NULL,
    folded_seq       INTEGER NOT NULL DEFAULT 0,
    base_hash        BLOB NOT NULL,                    -- of the event before the first one here
    seq              INTEGER NOT NULL,
    turn             INTEGER NOT NULL,
    event_id         TEXT,
    hash             BLOB NOT NULL
);
CREATE INDEX branch_of_session ON branch (session);
CREATE TABLE event (
    id             INTEGER PRIMARY KEY,                -- branch key << 32 | seq
    event_id       TEXT NOT NULL,
    type           TEXT NOT NULL,
    turn           INTEGER NOT NULL,
    ts             INTEGER NOT NULL,
    correlation_id TEXT,
    causation_id   TEXT,                               -- '' when equal to correlation_id
    payload_ref    TEXT,
    payload_sha256 BLOB,                               -- NULL while the payload is here
    erased         INTEGER,                            -- 1 or NULL
    hash           BLOB NOT NULL,                      -- prev_hash is the row's before; the chain covers it
    payload        BLOB
);
CREATE UNIQUE INDEX event_by_id ON event (event_id);
CREATE TABLE catalogue (
    id               INTEGER PRIMARY KEY,              -- session key << 32 | number
    change           TEXT NOT NULL,
    branch_id        TEXT NOT NULL,
    parent_branch_id TEXT,
    seq              INTEGER NOT NULL,
    branch_hash      BLOB NOT NULL,
    ts               INTEGER NOT NULL,
    hash             BLOB NOT NULL
);
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
    body            BLOB,                              -- NULL once consumed or cancelled
    headers         BLOB                               -- a JSON object
);
CREATE UNIQUE INDEX inbox_by_key ON inbox (session, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX inbox_parked ON inbox (session) WHERE status = 3;
CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    target     TEXT NOT NULL,
    body       BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    sender     TEXT,
    namespace  TEXT NOT NULL,                          -- of sender and target
    headers    BLOB
);
CREATE TABLE step (
    message INTEGER NOT NULL,                          -- inbox.id of a message that is pending or parked
    number  INTEGER NOT NULL,
    key     TEXT NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (message, number)
) WITHOUT ROWID;
CREATE TABLE reminder (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    name    TEXT NOT NULL,
    due_ms  INTEGER NOT NULL,
    body    BLOB NOT NULL,
    UNIQUE (session, name)
);
CREATE INDEX reminder_by_due ON reminder (due_ms);
CREATE TABLE snapshot (
    id       INTEGER PRIMARY KEY,                      -- branch key << 32 | seq
    sha256   BLOB NOT NULL,
    manifest BLOB NOT NULL
);
CREATE TABLE snapshot_pack (
    id   INTEGER PRIMARY KEY,                          -- branch key << 32 | number
    size INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE tombstone (
    id             INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL,
    name           TEXT NOT NULL,
    deleted_ms     INTEGER NOT NULL,
    events         INTEGER NOT NULL,
    catalogue_hash BLOB NOT NULL,
    namespace      TEXT NOT NULL
);
CREATE TABLE object (
    id             INTEGER PRIMARY KEY,
    namespace      TEXT NOT NULL,
    kind           TEXT NOT NULL,
    object_id      TEXT NOT NULL,
    session_id     TEXT,                               -- it is deleted with this session
    created_ms     INTEGER NOT NULL,
    expires_ms     INTEGER,
    repetition_key TEXT,
    request_sha256 BLOB,                               -- only with a key, to know a repeat
    content        TEXT,                               -- a blob
    size_bytes     INTEGER NOT NULL,                   -- of its blobs
    body_ref       TEXT,                               -- a blob, if the body is not here
    body_sha256    BLOB NOT NULL,
    body           BLOB,
    UNIQUE (namespace, kind, object_id)
);
CREATE UNIQUE INDEX object_by_key ON object (namespace, repetition_key) WHERE repetition_key IS NOT NULL;
CREATE INDEX object_of_session ON object (session_id) WHERE session_id IS NOT NULL;
CREATE VIEW events AS                                  -- for people with a SQLite shell
    SELECT branch.branch_id, event.id & 4294967295 AS seq, event.event_id, event.type, event.turn, event.ts,
           event.correlation_id, iif(event.causation_id = '', event.correlation_id, event.causation_id) AS causation_id,
           'v1:' || lower(hex(event.hash)) AS hash, CAST(event.payload AS TEXT) AS payload
    FROM event JOIN branch ON branch.key = event.id >> 32;
"""


MIGRATIONS: Final[Mapping[int, Callable[[sqlite3.Connection], None]]] = {}
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
