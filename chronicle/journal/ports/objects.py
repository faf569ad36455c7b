"""The part of the port of journal stores that is about objects: immutable records beside the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.journal.records import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.objects import StoredObject
    from chronicle.journal.records import Session

__all__ = ["ObjectRecords"]


class ObjectRecords(Protocol):
    """Durable objects."""

    def put_object(self, new: StoredObject, session: Session | None = None) -> StoredObject:
        """Store an object, durably, or return the one that the same request has stored before.

        Its blobs must be durable.

        Args:
            session: a session to create in the same transaction, with an empty main branch.

        Returns:
            the stored object: ``new``, or an earlier one of the same repetition key, whatever its kind and id.

        Raises:
            IdempotencyConflict: the key was used in the namespace by another request.
            NotFound: the session that it belongs to does not exist.
            Conflict: the id is taken, or the name or an id of the session is.
        """

    def object(self, kind: str, object_id: str, namespace: str = DEFAULT_NAMESPACE) -> StoredObject:
        """Return an object.

        Raises:
            NotFound: there is none of that kind and id in the namespace.
        """

    def object_of_key(self, key: str, namespace: str = DEFAULT_NAMESPACE) -> StoredObject | None:
        """Return the object that was stored under a repetition key, if any."""

    def objects(
        self,
        kind: str,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        session_id: SessionId | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Sequence[StoredObject]:
        """Return the objects of a kind in a namespace, by id.

        Args:
            session_id: only those that belong to this session.
            after: only objects with a later id.
            limit: the most objects; a page of a long list costs no more than its objects.
        """

    def object_ids(self, kind: str, session_id: SessionId, namespace: str = DEFAULT_NAMESPACE) -> Sequence[str]:
        """Return the ids of the objects of a kind that belong to a session, in order; their bodies are not read."""

    def objects_left(
        self, kind: str, object_ids: Collection[str], now_ms: int, namespace: str = DEFAULT_NAMESPACE
    ) -> frozenset[str]:
        """Return those of some ids whose objects are there, and have not expired; their bodies are not read."""

    def all_objects(self) -> Iterator[StoredObject]:
        """Yield the objects of all kinds and namespaces, oldest first; those that are stored meanwhile, too."""

    def delete_object(self, kind: str, object_id: str, namespace: str = DEFAULT_NAMESPACE) -> bool:
        """Delete an object; return whether there was one. Its bytes are removed from the store; its blobs are not."""

    def object_bytes(self, namespace: str = DEFAULT_NAMESPACE) -> int:
        """Return the sum of the sizes of the blobs of a namespace's objects."""
