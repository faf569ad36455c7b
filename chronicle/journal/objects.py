"""Objects: immutable records beside the events, such as artifacts of clients, and their bodies.

A body is canonical JSON. A large one is a blob, as a large payload of an event is: `new_object` decides where it is,
and puts it there durably, before the journal refers to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, cast

from chronicle.blobs.ident import blob_id
from chronicle.canonical import decode, encode
from chronicle.errors import Corrupt, IdempotencyConflict, InvalidInput, NotFound
from chronicle.journal.chain import MAX_INLINE
from chronicle.journal.records import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.ids import BlobId, SessionId

__all__ = ["ObjectName", "Repetition", "StoredObject", "new_object", "object_body"]


@dataclass(frozen=True, slots=True)
class Repetition:
    """Fields by which two requests for a new object are one request."""

    key: str
    """Unique in the namespace."""
    request_sha256: str
    """64 hex digits: of what was asked. A repeat that asks for something else is a conflict."""
    given_key: str | None = field(default=None, compare=False)
    """The key as its client gave it, if `key` was made from it; it is not stored."""

    def conflict(self) -> IdempotencyConflict:
        """Return the error for an earlier request with the same key that asked for something else."""
        return IdempotencyConflict(self.given_key or self.key)


class ObjectName(NamedTuple):
    """The name of an object."""

    kind: str
    object_id: str
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An immutable record that is no event. Kind, id and namespace name it."""

    kind: str
    """Such as ``artifact``, ``bundle``, ``response``."""
    object_id: str
    """Objects of a kind are listed in the order of their ids."""
    created_ms: int
    body: bytes | None
    """Canonical JSON; ``None`` if it is out of line (``body_ref``)."""
    body_ref: BlobId | None
    body_sha256: str
    """64 hex digits."""
    namespace: str = DEFAULT_NAMESPACE
    session_id: SessionId | None = None
    """The session that it is deleted with."""
    content: BlobId | None = None
    """A blob of its own."""
    size_bytes: int = 0
    """The size of that blob, and of a body out of line."""
    expires_ms: int | None = None
    """When it may be dropped; ``None``: it is kept until it is deleted. The store returns it until then."""
    repetition: Repetition | None = None


def new_object(
    blobs: BlobStore,
    name: ObjectName,
    created_ms: int,
    body: JsonObject,
    *,
    content: bytes | None = None,
    session_id: SessionId | None = None,
    expires_ms: int | None = None,
    repetition: Repetition | None = None,
) -> StoredObject:
    """Return a new object, after its content and a large body were put into the blob store, durably.

    Raises:
        InvalidInput: the body is not JSON.
        Unavailable: the blob store could not be reached.
    """
    data = encode(body)
    large = {blob_id(data): data} if len(data) > MAX_INLINE else {}
    ref = next(iter(large), None)
    content_id = None
    if content is not None:
        content_id = blob_id(content)
        large[content_id] = content
    if large:
        blobs.put(large)
    return StoredObject(
        name.kind,
        name.object_id,
        created_ms,
        data if ref is None else None,
        ref,
        sha256(data).hexdigest(),
        name.namespace,
        session_id,
        content_id,
        sum(map(len, large.values())),
        expires_ms,
        repetition,
    )


def object_body(found: StoredObject, blobs: BlobReader | None = None) -> JsonObject:
    """Return an object's body, inline or out of line, verified.

    Raises:
        NotFound: its blob is missing, or no store was given.
        Corrupt: it is not the body that was stored.
        Unavailable: the blob store could not be reached.
    """
    data = found.body
    if data is None:
        if found.body_ref is None or blobs is None:
            raise NotFound(f"the body of the {found.kind} {found.object_id} is not here")
        data = blobs.get(found.body_ref)
    if sha256(data).hexdigest() != found.body_sha256:
        raise Corrupt(f"the body of the {found.kind} {found.object_id} was changed")
    try:
        return cast("JsonObject", decode(data))
    except InvalidInput as error:
        raise Corrupt(f"the body of the {found.kind} {found.object_id} is not JSON: {error}") from error
