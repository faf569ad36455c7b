"""The tables of a journal, and their format version, as SQLite has them. The column types are those of SQLite.

Branches and sessions have internal integer keys. A row that belongs to one of them has the 64-bit primary key ``key <<
32 | number``: rows of one branch are adjacent, and no second index is needed. There are few indexes, because a commit
writes a page of each that it touches, and an empty index takes a page, too. Tables are plain rowid tables: ``WITHOUT
ROWID`` took 3.3 times the disk for rows of 1.25 KB. The exception are steps, which are few and soon dropped: without a
rowid, storing one writes one page.

The text of a declaration is stored with the table, comments included, and is compared by checks: it does not change
with a format that leaves the table as it is. Status 4 of a message is *paused*, since format 2.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TABLES", "VERSION"]

VERSION: Final = 2

TABLES: Final = """
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
CREATE INDEX inbox_paused ON inbox (session, id) WHERE status = 4;
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
"""
