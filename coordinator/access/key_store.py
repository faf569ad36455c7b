"""The keys of a home, in ``access.db``: a SQLite database of its own, readable for its owner only.

Any process of the home may use it; a change is seen by all at once. A key is durable when its text is returned.

A request reads it on the event loop of a gateway, so reading waits for no writer: the file has a write-ahead log, and a
connection of its own for what a request needs.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import Corrupt, NotFound, StorageRefused, UnsupportedFormat
from chronicle.journal.sqlite.watched_database import WatchedDatabase, damage
from coordinator.access.caller import Scope, UnknownKey
from coordinator.access.keys import KEY_PREFIX, SHOWN, TOKEN_PREFIX, Key, digest_of, home_tag, is_of_home, new_text
from coordinator.access.quotas import Quota
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from chronicle.ids import IdSource

__all__ = ["FILE", "KeyStore", "damage_of_keys"]

FILE: Final = "access.db"
_FORMAT: Final = 1
_APPLICATION_ID: Final = 0x5044_4143  # PDAC
_WRITE_TIMEOUT_MS: Final = 10_000
_READ_TIMEOUT_MS: Final = 100
"""In a write-ahead log a reader waits for its recovery only, after a process of the home was killed."""
_TABLES: Final = (
    """CREATE TABLE key (
        key_id       TEXT PRIMARY KEY,
        digest       BLOB NOT NULL UNIQUE,
        name         TEXT NOT NULL,
        prefix       TEXT NOT NULL,
        tenant       TEXT NOT NULL,
        scopes       TEXT NOT NULL,
        created_ms   INTEGER NOT NULL,
        expires_ms   INTEGER,
        last_used_ms INTEGER,
        agent        TEXT,
        made_by      TEXT
    )""",
    """CREATE TABLE quota (
        tenant              TEXT PRIMARY KEY,
        agents              INTEGER,
        awake_agents        INTEGER,
        bytes               INTEGER,
        messages_per_minute INTEGER
    )""",
)
_COLUMNS: Final = "key_id, name, prefix, tenant, scopes, created_ms, expires_ms, last_used_ms, agent, made_by"


class KeyStore:
    """The keys, tokens and quotas of a home. Safe to share between threads.

    Args:
        home: the home's directory.
        home_id: its id.
        ids: the source of keys' ids.

    Raises:
        StorageRefused: the file cannot be read or written.
        Corrupt: the file is not a database of keys, or was changed since it was closed.
        UnsupportedFormat: a newer version wrote it.
    """

    def __init__(self, home: Path, home_id: str, ids: IdSource) -> None:
        self._path = home / FILE
        self._ids = ids
        self.tag = home_tag(home_id)
        """The characters that its keys have after their prefix."""
        self._write_guard = threading.Lock()
        self._read_guard = threading.Lock()
        """Held for microseconds: the reader waits for no lock, and for the disk only with a checkpoint of the log."""
        self._watched = WatchedDatabase(self._path)
        with self._translated(), self._watched.opening(), ExitStack() as opened:
            self._writer = self._connected(_WRITE_TIMEOUT_MS)
            opened.callback(self._writer.close)
            self._set_up()
            self._reader = self._connected(_READ_TIMEOUT_MS)
            opened.callback(self._reader.close)
            self._reader.execute("PRAGMA synchronous = NORMAL")  # it writes `note_use` only
            opened.pop_all()

    def close(self) -> None:
        """Close the file."""
        with self._watched.closing():
            with self._read_guard:
                self._reader.close()
            with self._write_guard:
                self._writer.close()

    # -- keys -----------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        tenant: str,
        scopes: Iterable[Scope],
        now_ms: int,
        *,
        expires_ms: int | None = None,
        agent: Address | None = None,
        made_by: str | None = None,
    ) -> tuple[Key, str]:
        """Create a key, or with ``agent`` a token for that agent, which expires with the key that makes it.

        Returns:
            what is recorded, and the text, which cannot be had again.

        Raises:
            UnknownKey: the key ``made_by`` was revoked.
        """
        prefix, kind = (KEY_PREFIX, "key_") if agent is None else (TOKEN_PREFIX, "tok_")
        text = new_text(prefix, self.tag)
        key = Key(
            self._ids.other(kind, now_ms),
            name,
            text[:SHOWN],
            tenant,
            frozenset(scopes),
            now_ms,
            expires_ms,
            agent=agent,
            made_by=made_by,
        )
        with self._writing() as db:
            db.execute("DELETE FROM key WHERE agent IS NOT NULL AND expires_ms <= ?", (now_ms,))
            if made_by is not None:
                key = _within(key, db.execute("SELECT expires_ms FROM key WHERE key_id = ?", (made_by,)).fetchone())
            db.execute(
                f"INSERT INTO key ({_COLUMNS}, digest) VALUES ({', '.join('?' * 11)})", (*_row(key), digest_of(text))
            )
        return key, text

    def listed(self, tenant: str | None = None) -> list[Key]:
        """Return the keys, not the tokens, of a tenant, of all if ``None``, oldest first."""
        with self._reading() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM key WHERE agent IS NULL AND (?1 IS NULL OR tenant = ?1) "
                "ORDER BY created_ms, key_id",
                (tenant,),
            ).fetchall()
        return [_key(row) for row in rows]

    def find(self, text: str) -> Key | None:
        """Return the key or token with a text, expired or not; ``None`` if there is none."""
        return self.find_digest(digest_of(text))

    def find_digest(self, digest: bytes) -> Key | None:
        """Return the key or token whose text has a digest; see `find`."""
        with self._reading() as db:
            row = db.execute(f"SELECT {_COLUMNS} FROM key WHERE digest = ?", (digest,)).fetchone()
        return _key(row) if row is not None else None

    def revoke(self, key_id: str, tenant: str | None = None) -> Key:
        """Remove a key, with the tokens that it made, and return what it was.

        Args:
            tenant: only if it is of this one.

        Raises:
            NotFound: there is no such key.
        """
        with self._writing() as db:
            key = self._existing(db, key_id, tenant)
            db.execute("DELETE FROM key WHERE key_id = ?1 OR (made_by = ?1 AND agent IS NOT NULL)", (key_id,))
        return key

    def rotate(self, key_id: str, tenant: str | None = None) -> tuple[Key, str]:
        """Give a key a new text; the old one, and the tokens that it made, end at once.

        Raises:
            NotFound: there is no such key.
        """
        text = new_text(KEY_PREFIX, self.tag)
        with self._writing() as db:
            self._existing(db, key_id, tenant)
            db.execute("DELETE FROM key WHERE made_by = ? AND agent IS NOT NULL", (key_id,))
            values = (digest_of(text), text[:SHOWN], key_id)
            db.execute("UPDATE key SET digest = ?, prefix = ?, last_used_ms = NULL WHERE key_id = ?", values)
            return self._existing(db, key_id, tenant), text

    def note_use(self, key_id: str, now_ms: int) -> None:
        """Record that a key is used, not durably; not at all while another process writes."""
        with self._reading() as db:
            db.execute("PRAGMA busy_timeout = 0")
            try:
                db.execute("UPDATE key SET last_used_ms = ? WHERE key_id = ?", (now_ms, key_id))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            finally:
                db.execute(f"PRAGMA busy_timeout = {_READ_TIMEOUT_MS}")

    def changes(self) -> int:
        """Return a number that changes with the keys, in this process or another one; each request asks for it.

        Uses that this process records do not count.
        """
        with self._read_guard:
            try:
                (version,) = self._reader.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                raise StorageRefused(f"{self._path} cannot be read: {error}") from error
        return int(version)

    # -- quotas ---------------------------------------------------------------------------------------------------

    def set_quotas(self, quotas: Mapping[str, Quota]) -> None:
        """Replace the quotas of all tenants."""
        rows = [
            (tenant, quota.agents, quota.awake_agents, quota.bytes, quota.messages_per_minute)
            for tenant, quota in quotas.items()
        ]
        with self._writing() as db:
            db.execute("DELETE FROM quota")
            db.executemany("INSERT INTO quota VALUES (?, ?, ?, ?, ?)", rows)

    def quotas(self) -> dict[str, Quota]:
        """Return the quotas by tenant."""
        with self._reading() as db:
            rows = db.execute("SELECT tenant, agents, awake_agents, bytes, messages_per_minute FROM quota").fetchall()
        return {tenant: Quota(*limits) for tenant, *limits in rows}

    # -- the file -------------------------------------------------------------------------------------------------

    def _existing(self, db: sqlite3.Connection, key_id: str, tenant: str | None) -> Key:
        row = db.execute(
            f"SELECT {_COLUMNS} FROM key WHERE key_id = ?1 AND agent IS NULL AND (?2 IS NULL OR tenant = ?2)",
            (key_id, tenant),
        ).fetchone()
        if row is None:
            raise NotFound(f"there is no key {key_id!r}; podium keys list shows the ids")
        return _key(row)

    def _connected(self, timeout_ms: int) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout_ms / 1000, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA secure_delete = ON")
        return db

    def _set_up(self) -> None:
        """Create the tables unless they are there; opening a file that has them writes nothing."""
        db = self._writer
        if not _has_tables(db, self._path):
            with self._writing():
                if not _has_tables(db, self._path):  # another process may have created them meanwhile
                    for statement in _TABLES:
                        db.execute(statement)
                    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    db.execute(f"PRAGMA user_version = {_FORMAT}")
        db.execute("PRAGMA journal_mode = WAL")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._read_guard, self._translated():
            yield self._reader

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._write_guard, self._translated():
            db = self._writer
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # it erases from the file what was deleted

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
                raise Corrupt(f"{self._path} is damaged: {error}; put it back from a backup, or remove it") from error
            raise StorageRefused(f"{self._path} cannot be used: {error}") from error
        except OSError as error:
            raise StorageRefused(f"{self._path} cannot be written: {error.strerror}") from error


def damage_of_keys(home: Path, home_id: str) -> dict[str, str]:
    """Return the damage of a home's keys, by the name of the file; nothing is written.

    It is the id of the home that is damaged if none of its keys was made with it.
    """
    keys: list[Key] = []

    def read(db: sqlite3.Connection) -> None:
        if _has_tables(db, home / FILE):
            keys.extend(_key(row) for row in db.execute(f"SELECT {_COLUMNS} FROM key"))

    problem = damage(home / FILE, read)
    if problem is not None:
        return {FILE: problem}
    if keys and not any(is_of_home(key.prefix, home_tag(home_id)) for key in keys):
        said = "no key of the home was made with it, so none is valid; put it back from a backup, or revoke these keys"
        return {"id": said}
    return {}


def _has_tables(db: sqlite3.Connection, path: Path) -> bool:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != _APPLICATION_ID and (application or version or tables):
        raise Corrupt(f"{path} is not a database of keys; put it back from a backup, or remove it")
    if version > _FORMAT:
        raise UnsupportedFormat(f"{path} has format {version}, and this code reads up to {_FORMAT}")
    return bool(version)


def _within(key: Key, maker: tuple[int | None] | None) -> Key:
    """Return a new key, if it is a token with the expiry of its maker at the latest.

    Args:
        maker: the row of the key that makes it; ``None`` if it was revoked since it was authenticated.
    """
    if maker is None:
        raise UnknownKey("the key that makes this one was revoked")
    (ends_ms,) = maker
    if key.agent is None or ends_ms is None or (key.expires_ms is not None and key.expires_ms <= ends_ms):
        return key
    return replace(key, expires_ms=ends_ms)


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:  # SQLite rolls back by itself on a full disk
        db.execute("ROLLBACK")


def _row(key: Key) -> tuple[Any, ...]:
    return (
        key.key_id,
        key.name,
        key.prefix,
        key.tenant,
        " ".join(sorted(key.scopes)),
        key.created_ms,
        key.expires_ms,
        key.last_used_ms,
        None if key.agent is None else str(key.agent),
        key.made_by,
    )


def _key(row: tuple[Any, ...]) -> Key:
    key_id, name, prefix, tenant, scopes, created_ms, expires_ms, last_used_ms, agent, made_by = row
    return Key(
        key_id,
        name,
        prefix,
        tenant,
        frozenset(Scope(scope) for scope in scopes.split()),
        created_ms,
        expires_ms,
        last_used_ms,
        None if agent is None else Address.parse(agent),
        made_by,
    )
