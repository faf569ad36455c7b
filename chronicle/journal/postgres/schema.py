"""The tables in PostgreSQL: those of SQLite, and a table with the format version.

Row keys are ``key << 32 | number`` here too, so that both databases run the same statements. Text is compared bytewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from chronicle.errors import NotFound, OlderVersionRuns, UnsupportedFormat, UnusableFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import psycopg

__all__ = ["MIGRATIONS", "VERSION", "prepare"]

VERSION: Final = 1
_LOCK: Final = 0x4348_4A4C
"""The advisory lock of the process that creates the tables."""

_TABLES: Final = """
CREATE TABLE format (version INTEGER NOT NULL);
CREATE TABLE session (
    key            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id     TEXT COLLATE "C" NOT NULL UNIQUE,
    namespace      TEXT COLLATE "C" NOT NULL,
    name           TEXT COLLATE "C" NOT NULL,
    main_branch_id TEXT COLLATE "C" NOT NULL,
    created_ms     BIGINT NOT NULL,
    last_position  BIGINT NOT NULL DEFAULT 0,
    pending_from   BIGINT NOT NULL DEFAULT 1,
    epoch          BIGINT NOT NULL DEFAULT 0,
    holder         TEXT,
    expires_ms     BIGINT NOT NULL DEFAULT 0,
    catalogue_size BIGINT NOT NULL DEFAULT 0,
    catalogue_hash BYTEA,
    UNIQUE (namespace, name)
) WITH (fillfactor = 70);
CREATE TABLE branch (
    key              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    branch_id        TEXT COLLATE "C" NOT NULL UNIQUE,
    session          BIGINT NOT NULL,
    parent_branch_id TEXT COLLATE "C",
    parent_seq       BIGINT NOT NULL,
    created_ms       BIGINT NOT NULL,
    folded_seq       BIGINT NOT NULL DEFAULT 0,
    base_hash        BYTEA NOT NULL,
    seq              BIGINT NOT NULL,
    turn             BIGINT NOT NULL,
    event_id         TEXT,
    hash             BYTEA NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX branch_of_session ON branch (session);
CREATE INDEX branch_of_parent ON branch (parent_branch_id) WHERE parent_branch_id IS NOT NULL;
CREATE TABLE event (
    id             BIGINT PRIMARY KEY,
    event_id       TEXT COLLATE "C" NOT NULL UNIQUE,
    type           TEXT NOT NULL,
    turn           BIGINT NOT NULL,
    ts             BIGINT NOT NULL,
    correlation_id TEXT,
    causation_id   TEXT,
    payload_ref    TEXT,
    payload_sha256 BYTEA,
    erased         INTEGER,
    hash           BYTEA NOT NULL,
    payload        BYTEA
);
CREATE TABLE catalogue (
    id               BIGINT PRIMARY KEY,
    change           TEXT NOT NULL,
    branch_id        TEXT NOT NULL,
    parent_branch_id TEXT,
    seq              BIGINT NOT NULL,
    branch_hash      BYTEA NOT NULL,
    ts               BIGINT NOT NULL,
    hash             BYTEA NOT NULL
);
CREATE TABLE inbox (
    id              BIGINT PRIMARY KEY,
    session         BIGINT NOT NULL,
    message_id      TEXT COLLATE "C" NOT NULL UNIQUE,
    idempotency_key TEXT COLLATE "C",
    sender          TEXT,
    body_sha256     BYTEA,
    admitted_ms     BIGINT NOT NULL,
    attempts        INTEGER NOT NULL,
    status          INTEGER NOT NULL,
    body            BYTEA,
    headers         BYTEA
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX inbox_by_key ON inbox (session, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TABLE outbox (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id TEXT COLLATE "C" NOT NULL UNIQUE,
    target     TEXT NOT NULL,
    body       BYTEA NOT NULL,
    created_ms BIGINT NOT NULL,
    sender     TEXT,
    namespace  TEXT COLLATE "C" NOT NULL,
    headers    BYTEA
);
CREATE TABLE snapshot (
    id       BIGINT PRIMARY KEY,
    sha256   BYTEA NOT NULL,
    manifest BYTEA NOT NULL
);
CREATE TABLE snapshot_pack (
    id   BIGINT PRIMARY KEY,
    size BIGINT NOT NULL,
    data BYTEA NOT NULL
);
CREATE TABLE tombstone (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id     TEXT NOT NULL,
    name           TEXT COLLATE "C" NOT NULL,
    deleted_ms     BIGINT NOT NULL,
    events         BIGINT NOT NULL,
    catalogue_hash BYTEA NOT NULL,
    namespace      TEXT COLLATE "C" NOT NULL
);
CREATE TABLE step (
    message BIGINT NOT NULL,
    number  INTEGER NOT NULL,
    key     TEXT NOT NULL,
    body    BYTEA NOT NULL,
    PRIMARY KEY (message, number)
);
CREATE TABLE reminder (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session BIGINT NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    due_ms  BIGINT NOT NULL,
    body    BYTEA NOT NULL,
    UNIQUE (session, name)
);
CREATE INDEX reminder_by_due ON reminder (due_ms);
CREATE INDEX inbox_parked ON inbox (session) WHERE status = 3;
CREATE TABLE object (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace      TEXT COLLATE "C" NOT NULL,
    kind           TEXT COLLATE "C" NOT NULL,
    object_id      TEXT COLLATE "C" NOT NULL,
    session_id     TEXT COLLATE "C",
    created_ms     BIGINT NOT NULL,
    expires_ms     BIGINT,
    repetition_key TEXT COLLATE "C",
    request_sha256 BYTEA,
    content        TEXT,
    size_bytes     BIGINT NOT NULL,
    body_ref       TEXT,
    body_sha256    BYTEA NOT NULL,
    body           BYTEA,
    UNIQUE (namespace, kind, object_id)
);
CREATE UNIQUE INDEX object_by_key ON object (namespace, repetition_key) WHERE repetition_key IS NOT NULL;
CREATE INDEX object_of_session ON object (session_id) WHERE session_id IS NOT NULL;
"""

MIGRATIONS: Final[Mapping[int, str]] = {}
"""By older version: the statements that migrate to the next one. Version 1 is the first."""


def prepare(
    connection: psycopg.Connection[tuple[Any, ...]],
    schema: str,
    *,
    create: bool = True,
    may_change: bool = True,
    may_migrate: Callable[[], bool] = lambda: True,
) -> None:
    """Create the schema and its tables if they do not exist, or migrate older ones; one process at a time.

    Everything is in one transaction. A backup beforehand is the operator's task.

    Args:
        create: false to refuse a database without these tables.
        may_change: false to check the version only.
        may_migrate: called if they are older.

    Raises:
        NotFound: there are no tables, and none are to be created.
        UnsupportedFormat: the journal is newer than this code, or older and must not be changed.
        UnusableFormat: no migration leads from its version.
        OlderVersionRuns: it is older, and must not be migrated now.
    """
    name = sql.Identifier(schema)
    with connection.transaction():
        if may_change:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(name))
        found = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".format',)).fetchone()
        if found is not None and found[0] is not None:
            version = _readable_version(connection, schema)
            if version == VERSION:
                return
            if not may_change:
                raise UnsupportedFormat(
                    f"schema {schema} holds a journal of format {version}; open it for writing, which upgrades it"
                )
            if not may_migrate():
                raise OlderVersionRuns(
                    f"schema {schema} holds a journal of format {version}, which an older version uses: end it first"
                )
            for step in range(version, VERSION):
                connection.execute(MIGRATIONS[step])
            connection.execute("UPDATE format SET version = %s", (VERSION,))
            return
        if not (create and may_change):
            raise NotFound(f"there is no journal in schema {schema}")
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        connection.execute(_TABLES)
        connection.execute("INSERT INTO format VALUES (%s)", (VERSION,))


def _readable_version(connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> int:
    """Return the version of existing tables, from which migrations lead to this one."""
    row = connection.execute("SELECT version FROM format").fetchone()
    version: int = row[0] if row is not None else 0
    if version > VERSION:
        raise UnsupportedFormat(
            f"schema {schema} holds a journal of format {version}, and this code reads up to {VERSION}"
        )
    missing = [step for step in range(version, VERSION) if step not in MIGRATIONS]
    if missing:
        raise UnusableFormat(f"schema {schema} holds a journal of format {version}; no upgrade leads from {missing[0]}")
    return version
