"""The keys, tokens and quotas of a home, in SQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import NotFound
from chronicle.ids import IdSource
from chronicle.journal.sql.moving import copy_rows
from coordinator.access.caller import Scope, UnknownKey, with_implied
from coordinator.access.keys import KEY_PREFIX, LINK_PREFIX, SHOWN, TOKEN_PREFIX, Key, digest_of, home_tag, new_text
from coordinator.access.quotas import Quota
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chronicle.canonical import JsonObject
    from coordinator.access.records import KeyRecords
    from coordinator.homes.sql.port import Connection, RecordsDatabase

__all__ = ["KEY_TABLES", "SqlKeyRecords", "read_keys"]

KEY_TABLES: Final = (
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
_LINK: Final = "lnk_"
_COLUMNS: Final = "key_id, name, prefix, tenant, scopes, created_ms, expires_ms, last_used_ms, agent, made_by"


class SqlKeyRecords:
    """`coordinator.access.records.KeyRecords` in a database.

    Args:
        database: has `KEY_TABLES`; closed with the records.
        home_id: the id of the home.
        ids: the source of keys' ids.
    """

    def __init__(self, database: RecordsDatabase, home_id: str, ids: IdSource | None = None) -> None:
        self._ids = ids if ids is not None else IdSource()
        self.tag = home_tag(home_id)
        """See `KeyRecords`."""
        self._database = database

    @property
    def is_far(self) -> bool:
        """See `KeyRecords`."""
        return self._database.is_far

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def receive(self, source: KeyRecords) -> None:
        """Replace all that is kept by what others have at one moment, durably."""
        assert isinstance(source, SqlKeyRecords), "all of homes are"
        database = source._database  # noqa: SLF001  of its own kind
        with database.reading_one_moment() as rows, self._database.writing() as db:
            copy_rows(rows, db, "\n".join(KEY_TABLES), lambda _: None)

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
        claims: JsonObject | None = None,
        link: bool = False,
    ) -> tuple[Key, str]:
        """See `KeyRecords`."""
        prefix, kind = (KEY_PREFIX, "key_") if agent is None else (TOKEN_PREFIX, "tok_")
        if link:
            prefix, kind = LINK_PREFIX, _LINK
        text = new_text(prefix, self.tag, claims)
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
        with self._database.writing() as db:
            db.execute("DELETE FROM key WHERE agent IS NOT NULL AND expires_ms <= ?", (now_ms,))
            if made_by is not None:
                key = _within(key, db.execute("SELECT expires_ms FROM key WHERE key_id = ?", (made_by,)).fetchone())
            db.execute(
                f"INSERT INTO key ({_COLUMNS}, digest) VALUES ({', '.join('?' * 11)})", (*_row(key), digest_of(text))
            )
        return key, text

    def listed(self, tenant: str | None = None) -> list[Key]:
        """See `KeyRecords`."""
        with self._database.reading() as db:
            of, values = _of_tenant(tenant)
            query = f"SELECT {_COLUMNS} FROM key WHERE agent IS NULL{of} ORDER BY created_ms, key_id"
            rows = db.execute(query, values).fetchall()
        return [_key(row) for row in rows]

    def find(self, text: str) -> Key | None:
        """See `KeyRecords`."""
        return self.find_digest(digest_of(text))

    def find_digest(self, digest: bytes) -> Key | None:
        """See `KeyRecords`."""
        with self._database.reading() as db:
            row = db.execute(f"SELECT {_COLUMNS} FROM key WHERE digest = ?", (digest,)).fetchone()
            found = key = _key(row) if row is not None else None
            while found is not None and key is not None and key.agent is not None and key.made_by is not None:
                maker = db.execute(f"SELECT {_COLUMNS} FROM key WHERE key_id = ?", (key.made_by,)).fetchone()
                key = _key(maker) if maker is not None else None
                found = _narrowed(found, key)
        return found

    def revoke(self, key_id: str, tenant: str | None = None) -> Key:
        """See `KeyRecords`."""
        with self._database.writing() as db:
            key = self._existing(db, key_id, tenant, or_link=True)
            db.execute("DELETE FROM key WHERE key_id = ? OR (made_by = ? AND agent IS NOT NULL)", (key_id, key_id))
        return key

    def rotate(self, key_id: str, tenant: str | None = None) -> tuple[Key, str]:
        """See `KeyRecords`."""
        text = new_text(KEY_PREFIX, self.tag)
        with self._database.writing() as db:
            self._existing(db, key_id, tenant)
            db.execute("DELETE FROM key WHERE made_by = ? AND agent IS NOT NULL", (key_id,))
            values = (digest_of(text), text[:SHOWN], key_id)
            db.execute("UPDATE key SET digest = ?, prefix = ?, last_used_ms = NULL WHERE key_id = ?", values)
            return self._existing(db, key_id, tenant), text

    def note_use(self, key_id: str, now_ms: int) -> None:
        """See `KeyRecords`."""
        self._database.note("UPDATE key SET last_used_ms = ? WHERE key_id = ?", (now_ms, key_id))

    def changes(self) -> int:
        """See `KeyRecords`."""
        return self._database.changes()

    # -- quotas ---------------------------------------------------------------------------------------------------

    def set_quotas(self, quotas: Mapping[str, Quota]) -> None:
        """See `KeyRecords`."""
        rows = [
            (tenant, quota.agents, quota.awake_agents, quota.bytes, quota.messages_per_minute)
            for tenant, quota in quotas.items()
        ]
        with self._database.writing() as db:
            db.execute("DELETE FROM quota")
            for row in rows:
                db.execute("INSERT INTO quota VALUES (?, ?, ?, ?, ?)", row)

    def quotas(self) -> dict[str, Quota]:
        """See `KeyRecords`."""
        with self._database.reading() as db:
            rows = db.execute("SELECT tenant, agents, awake_agents, bytes, messages_per_minute FROM quota").fetchall()
        return {tenant: Quota(*limits) for tenant, *limits in rows}

    def _existing(self, db: Connection, key_id: str, tenant: str | None, *, or_link: bool = False) -> Key:
        of, values = _of_tenant(tenant)
        kind = "" if or_link and key_id.startswith(_LINK) else " AND agent IS NULL"
        query = f"SELECT {_COLUMNS} FROM key WHERE key_id = ?{kind}{of}"
        row = db.execute(query, (key_id, *values)).fetchone()
        if row is None:
            raise NotFound(f"there is no key {key_id!r}; podium keys list shows the ids")
        return _key(row)


def read_keys(db: Connection) -> list[Key]:
    """Return all keys and tokens, to check that they can be read."""
    return [_key(row) for row in db.execute(f"SELECT {_COLUMNS} FROM key")]


def _of_tenant(tenant: str | None) -> tuple[str, tuple[str, ...]]:
    return ("", ()) if tenant is None else (" AND tenant = ?", (tenant,))


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


def _narrowed(token: Key, maker: Key | None) -> Key | None:
    """Return a token with those of its scopes that the key which made it still has; ``None`` without that key."""
    if maker is None:
        return None
    permitted = with_implied(maker.scopes)
    scopes = with_implied(token.scopes)
    return token if scopes <= permitted else replace(token, scopes=scopes & permitted)


def _scopes(text: str) -> frozenset[Scope]:
    return frozenset(Scope(scope) for scope in text.split())


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
        _scopes(scopes),
        created_ms,
        expires_ms,
        last_used_ms,
        None if agent is None else Address.parse(agent),
        made_by,
    )
