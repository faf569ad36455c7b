"""Objects in SQL: the part of the store that is about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.errors import Conflict, NotFound
from chronicle.journal.chain import empty_head
from chronicle.journal.objects import Repetition, StoredObject
from chronicle.journal.records import DEFAULT_NAMESPACE
from chronicle.journal.sql import branches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Session
    from chronicle.journal.sql.port import Connection, Database
    from chronicle.journal.sql.rows import Row

__all__ = ["SqlObjects"]

_COLUMNS: Final = (
    "kind, object_id, created_ms, body, body_ref, body_sha256, namespace, session_id, content, size_bytes, "
    "expires_ms, repetition_key, request_sha256"
)
_INSERT: Final = f"INSERT INTO object ({_COLUMNS}) VALUES ({', '.join('?' * 13)}) ON CONFLICT DO NOTHING RETURNING 1"
_SELECT: Final = f"SELECT {_COLUMNS} FROM object"
_BATCH: Final = 256
"""Objects per query of `all_objects`, with no read transaction open in between, and ids per one of `objects_left`."""


class SqlObjects:
    """Store, find and delete objects."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put_object(self, new: StoredObject, session: Session | None = None) -> StoredObject:
        """Store an object, durably, or return the one that the same request has stored before."""
        if (there := self._repeated(new)) is not None:  # the usual repeat writes nothing
            return there
        try:
            with self._db.writing() as db:
                return _insert(db, new, session)
        except Conflict:
            if (there := self._repeated(new)) is not None:  # another process stored it meanwhile
                return there
            raise

    def _repeated(self, new: StoredObject) -> StoredObject | None:
        if new.repetition is None or (there := self.object_of_key(new.repetition.key, new.namespace)) is None:
            return None
        if there.repetition != new.repetition:
            raise new.repetition.conflict()
        return there

    def object(self, kind: str, object_id: str, namespace: str = DEFAULT_NAMESPACE) -> StoredObject:
        """Return an object."""
        with self._db.reading() as db:
            row = db.execute(
                f"{_SELECT} WHERE namespace = ? AND kind = ? AND object_id = ?", (namespace, kind, object_id)
            ).fetchone()
        if row is None:
            raise NotFound(f"no {kind} {object_id}")
        return _object_from(row)

    def object_of_key(self, key: str, namespace: str = DEFAULT_NAMESPACE) -> StoredObject | None:
        """Return the object that was stored under a repetition key, if any."""
        with self._db.reading() as db:
            row = db.execute(f"{_SELECT} WHERE namespace = ? AND repetition_key = ?", (namespace, key)).fetchone()
        return _object_from(row) if row is not None else None

    def objects(
        self,
        kind: str,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        session_id: SessionId | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Sequence[StoredObject]:
        """Return the objects of a kind in a namespace, by id."""
        query = f"{_SELECT} WHERE namespace = ? AND kind = ? AND object_id > ?"
        values: list[str | int] = [namespace, kind, after]
        if session_id is not None:
            query += " AND session_id = ?"
            values.append(session_id)
        query += " ORDER BY object_id"
        if limit is not None:
            query += " LIMIT ?"
            values.append(limit)
        with self._db.reading() as db:
            rows = db.execute(query, values).fetchall()
        return [_object_from(row) for row in rows]

    def object_ids(self, kind: str, session_id: SessionId, namespace: str = DEFAULT_NAMESPACE) -> Sequence[str]:
        """Return the ids of the objects of a kind that belong to a session, in order; their bodies are not read."""
        query = "SELECT object_id FROM object WHERE session_id = ? AND namespace = ? AND kind = ? ORDER BY object_id"
        with self._db.reading() as db:
            return [object_id for (object_id,) in db.execute(query, (session_id, namespace, kind)).fetchall()]

    def objects_left(
        self, kind: str, object_ids: Collection[str], now_ms: int, namespace: str = DEFAULT_NAMESPACE
    ) -> frozenset[str]:
        """Return those of some ids whose objects are there, and have not expired; their bodies are not read."""
        asked, found = list(object_ids), set[str]()
        for start in range(0, len(asked), _BATCH):
            batch = asked[start : start + _BATCH]
            query = (
                "SELECT object_id FROM object WHERE namespace = ? AND kind = ? "
                f"AND object_id IN ({', '.join('?' * len(batch))}) AND (expires_ms IS NULL OR expires_ms > ?)"
            )
            with self._db.reading() as db:
                found |= {name for (name,) in db.execute(query, (namespace, kind, *batch, now_ms)).fetchall()}
        return frozenset(found)

    def all_objects(self) -> Iterator[StoredObject]:
        """Yield the objects of all kinds and namespaces, oldest first; those that are stored meanwhile, too."""
        last = 0
        while True:
            with self._db.reading() as db:
                rows = db.execute(
                    f"SELECT id, {_COLUMNS} FROM object WHERE id > ? ORDER BY id LIMIT ?", (last, _BATCH)
                ).fetchall()
            yield from (_object_from(row[1:]) for row in rows)
            if len(rows) < _BATCH:
                return
            last = rows[-1][0]

    def delete_object(self, kind: str, object_id: str, namespace: str = DEFAULT_NAMESPACE) -> bool:
        """Delete an object; return whether there was one."""
        with self._db.erasing() as db:
            values = (namespace, kind, object_id)
            return db.changed("DELETE FROM object WHERE namespace = ? AND kind = ? AND object_id = ?", values) > 0

    def object_bytes(self, namespace: str = DEFAULT_NAMESPACE) -> int:
        """Return the sum of the sizes of the blobs of a namespace's objects."""
        with self._db.reading() as db:
            (found,) = db.execute("SELECT sum(size_bytes) FROM object WHERE namespace = ?", (namespace,)).fetchone()
        return int(found or 0)


def _insert(db: Connection, new: StoredObject, session: Session | None) -> StoredObject:
    """Store an object and make a session.

    Raises:
        NotFound: its session does not exist.
        Conflict: an id or a key is taken.
    """
    if session is not None and not branches.insert_session(db, session, None, empty_head(session.main_branch_id)):
        raise Conflict(f"there is a session named {session.name!r} already")
    if new.session_id is not None:
        branches.find_session(db, new.session_id, db.for_share)
    if not db.execute(_INSERT, _row(new)).fetchall():
        raise Conflict(f"there is a {new.kind} {new.object_id} already")
    return new


def _row(new: StoredObject) -> Row:
    key, request = (None, None) if new.repetition is None else (new.repetition.key, new.repetition.request_sha256)
    return (
        new.kind,
        new.object_id,
        new.created_ms,
        new.body,
        new.body_ref,
        bytes.fromhex(new.body_sha256),
        new.namespace,
        new.session_id,
        new.content,
        new.size_bytes,
        new.expires_ms,
        key,
        None if request is None else bytes.fromhex(request),
    )


def _object_from(row: Row) -> StoredObject:
    *start, body, ref, digest, namespace, session_id, content, size_bytes, expires_ms, key, request = row
    kind, object_id, created_ms = start
    return StoredObject(
        kind,
        object_id,
        created_ms,
        None if body is None else bytes(body),
        ref,
        bytes(digest).hex(),
        namespace,
        session_id,
        content,
        size_bytes,
        expires_ms,
        None if key is None else Repetition(key, bytes(request).hex()),
    )
