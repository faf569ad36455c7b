"""The keys, tokens and quotas of a home, in ``access.db``."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import NotFound
from chronicle.ids import IdSource
from coordinator.access.caller import Scope, UnknownKey
from coordinator.access.keys import KEY_PREFIX, SHOWN, TOKEN_PREFIX, Key, digest_of, home_tag, is_of_home, new_text
from coordinator.access.quotas import Quota
from coordinator.homes.sqlite.file import READ_TIMEOUT_MS, FileKind, RecordsFile, damage_of
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["KEYS", "SqliteKeyRecords", "damage_of_keys"]

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
KEYS: Final = FileKind("access.db", "keys", 0x5044_4143, 1, _TABLES)  # PDAC
_COLUMNS: Final = "key_id, name, prefix, tenant, scopes, created_ms, expires_ms, last_used_ms, agent, made_by"


class SqliteKeyRecords:
    """`coordinator.access.records.KeyRecords` in a file.

    Args:
        home: the home's directory.
        home_id: its id.
        ids: the source of keys' ids.

    Raises:
        StorageRefused: the file cannot be read or written.
        Corrupt: the file is not a database of keys, or was changed since it was closed.
        UnsupportedFormat: a newer version wrote it.
    """

    def __init__(self, home: Path, home_id: str, ids: IdSource | None = None) -> None:
        self._ids = ids if ids is not None else IdSource()
        self.tag = home_tag(home_id)
        """See `KeyRecords`."""
        self._file = RecordsFile(home, KEYS)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

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
        """See `KeyRecords`."""
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
        """See `KeyRecords`."""
        with self._file.reading() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM key WHERE agent IS NULL AND (?1 IS NULL OR tenant = ?1) "
                "ORDER BY created_ms, key_id",
                (tenant,),
            ).fetchall()
        return [_key(row) for row in rows]

    def find(self, text: str) -> Key | None:
        """See `KeyRecords`."""
        return self.find_digest(digest_of(text))

    def find_digest(self, digest: bytes) -> Key | None:
        """See `KeyRecords`."""
        with self._file.reading() as db:
            row = db.execute(f"SELECT {_COLUMNS} FROM key WHERE digest = ?", (digest,)).fetchone()
        return _key(row) if row is not None else None

    def revoke(self, key_id: str, tenant: str | None = None) -> Key:
        """See `KeyRecords`."""
        with self._writing() as db:
            key = self._existing(db, key_id, tenant)
            db.execute("DELETE FROM key WHERE key_id = ?1 OR (made_by = ?1 AND agent IS NOT NULL)", (key_id,))
        return key

    def rotate(self, key_id: str, tenant: str | None = None) -> tuple[Key, str]:
        """See `KeyRecords`."""
        text = new_text(KEY_PREFIX, self.tag)
        with self._writing() as db:
            self._existing(db, key_id, tenant)
            db.execute("DELETE FROM key WHERE made_by = ? AND agent IS NOT NULL", (key_id,))
            values = (digest_of(text), text[:SHOWN], key_id)
            db.execute("UPDATE key SET digest = ?, prefix = ?, last_used_ms = NULL WHERE key_id = ?", values)
            return self._existing(db, key_id, tenant), text

    def note_use(self, key_id: str, now_ms: int) -> None:
        """See `KeyRecords`."""
        with self._file.reading() as db:
            db.execute("PRAGMA busy_timeout = 0")
            try:
                db.execute("UPDATE key SET last_used_ms = ? WHERE key_id = ?", (now_ms, key_id))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            finally:
                db.execute(f"PRAGMA busy_timeout = {READ_TIMEOUT_MS}")

    def changes(self) -> int:
        """See `KeyRecords`."""
        return self._file.changes()

    # -- quotas ---------------------------------------------------------------------------------------------------

    def set_quotas(self, quotas: Mapping[str, Quota]) -> None:
        """See `KeyRecords`."""
        rows = [
            (tenant, quota.agents, quota.awake_agents, quota.bytes, quota.messages_per_minute)
            for tenant, quota in quotas.items()
        ]
        with self._writing() as db:
            db.execute("DELETE FROM quota")
            db.executemany("INSERT INTO quota VALUES (?, ?, ?, ?, ?)", rows)

    def quotas(self) -> dict[str, Quota]:
        """See `KeyRecords`."""
        with self._file.reading() as db:
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

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._file.writing() as db:
            yield db
        self._file.erase_deleted()


def damage_of_keys(home: Path, home_id: str) -> dict[str, str]:
    """Return the damage of a home's keys, by the name of the file, or of the id; nothing is written."""
    keys: list[Key] = []

    def read(db: sqlite3.Connection) -> None:
        keys.extend(_key(row) for row in db.execute(f"SELECT {_COLUMNS} FROM key"))

    problem = damage_of(home, KEYS, read)
    if problem is not None:
        return {KEYS.name: problem}
    if keys and not any(is_of_home(key.prefix, home_tag(home_id)) for key in keys):
        said = "no key of the home was made with it, so none is valid; put it back from a backup, or revoke these keys"
        return {"id": said}
    return {}


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
