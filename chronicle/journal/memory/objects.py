"""Objects in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import Conflict, NotFound
from chronicle.journal.chain import empty_head
from chronicle.journal.memory.tables import Tables
from chronicle.journal.records import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.objects import StoredObject
    from chronicle.journal.records import Session

__all__ = ["Objects"]


class Objects(Tables):
    """Store, find and delete objects."""

    def put_object(self, new: StoredObject, session: Session | None = None) -> StoredObject:
        """Store an object, or return the one that the same request has stored before."""
        with self._open():
            if new.repetition is not None and (there := self.object_of_key(new.repetition.key, new.namespace)):
                if there.repetition != new.repetition:
                    raise new.repetition.conflict()
                return there
            name = (new.namespace, new.kind, new.object_id)
            if name in self._objects:
                raise Conflict(f"there is a {new.kind} {new.object_id} already")
            if new.session_id is not None and (session is None or session.session_id != new.session_id):
                self._session(new.session_id)
            if session is not None:
                if (session.name, session.namespace) in self._names:
                    raise Conflict(f"there is a session named {session.name!r} already")
                self._make_session(session, None, empty_head(session.main_branch_id))
            self._objects[name] = new
            return new

    def object(self, kind: str, object_id: str, namespace: str = DEFAULT_NAMESPACE) -> StoredObject:
        """Return an object."""
        with self._open():
            found = self._objects.get((namespace, kind, object_id))
        if found is None:
            raise NotFound(f"no {kind} {object_id}")
        return found

    def object_of_key(self, key: str, namespace: str = DEFAULT_NAMESPACE) -> StoredObject | None:
        """Return the object that was stored under a repetition key, if any."""
        with self._open():
            return next(
                (
                    each
                    for each in self._objects.values()
                    if each.namespace == namespace and each.repetition is not None and each.repetition.key == key
                ),
                None,
            )

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
        with self._open():
            named = [self._objects[name] for name in sorted(self._objects) if name[:2] == (namespace, kind)]
        return [
            each for each in named if each.object_id > after and (session_id is None or each.session_id == session_id)
        ][:limit]

    def object_ids(self, kind: str, session_id: SessionId, namespace: str = DEFAULT_NAMESPACE) -> Sequence[str]:
        """Return the ids of the objects of a kind that belong to a session, in order; their bodies are not read."""
        return [each.object_id for each in self.objects(kind, namespace, session_id=session_id)]

    def objects_left(
        self, kind: str, object_ids: Collection[str], now_ms: int, namespace: str = DEFAULT_NAMESPACE
    ) -> frozenset[str]:
        """Return those of some ids whose objects are there, and have not expired; their bodies are not read."""
        with self._open():
            named = [self._objects.get((namespace, kind, object_id)) for object_id in object_ids]
        there = [each for each in named if each is not None]
        return frozenset(each.object_id for each in there if each.expires_ms is None or each.expires_ms > now_ms)

    def all_objects(self) -> Iterator[StoredObject]:
        """Yield the objects of all kinds and namespaces, oldest first."""
        with self._open():
            found = list(self._objects.values())
        return iter(found)

    def delete_object(self, kind: str, object_id: str, namespace: str = DEFAULT_NAMESPACE) -> bool:
        """Delete an object; return whether there was one."""
        with self._open():
            return self._objects.pop((namespace, kind, object_id), None) is not None

    def object_bytes(self, namespace: str = DEFAULT_NAMESPACE) -> int:
        """Return the sum of the sizes of the blobs of a namespace's objects."""
        with self._open():
            return sum(each.size_bytes for each in self._objects.values() if each.namespace == namespace)
