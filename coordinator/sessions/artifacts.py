"""Artifacts of clients: immutable contents that events and bundles name by their ids."""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput, NotFound
from chronicle.journal.objects import ObjectName, new_object, object_body
from coordinator.operations.cursors import cursor_after, place_after
from coordinator.operations.errors import UnknownSessionArtifact
from coordinator.sessions.finding import find_session, writable
from coordinator.sessions.repetition import repeated, repetition_of

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.objects import Repetition, StoredObject
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.objects import ObjectRecords
    from coordinator.sessions.objects import (
        DeletedArtifact,
        RetentionClass,
        StoredArtifactObject,
        StoredArtifactPage,
    )

__all__ = [
    "ARTIFACT",
    "NewArtifact",
    "artifact_content",
    "artifact_object",
    "artifact_page",
    "create_artifact",
    "delete_artifact",
    "drop_expired",
    "find_artifact",
    "repeated_artifact",
]

ARTIFACT: Final = "artifact"
"""The kind of the stored object."""
_TEMPORARY_MS: Final = 7 * 24 * 60 * 60 * 1000
"""Lifetime of the retention class ``temporary``."""


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """An artifact to store."""

    content: Any
    """Text, another JSON value, or Base64."""
    content_encoding: Literal["text", "json", "base64"] | None = None
    """By default ``text`` for a text, and ``json`` for another value."""
    artifact_type: str = "content"
    content_media_type: str | None = None
    retention_class: RetentionClass = "standard"
    session_id: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def encoding(self) -> Literal["text", "json", "base64"]:
        """How ``content`` holds the bytes."""
        return self.content_encoding or ("text" if isinstance(self.content, str) else "json")

    @property
    def media_type(self) -> str:
        """The media type of the bytes."""
        return self.content_media_type or _MEDIA_TYPES[self.encoding]

    def data(self) -> bytes:
        """Return the content's bytes.

        Raises:
            InvalidInput: the content is not what the encoding says.
        """
        if self.encoding == "json":
            return encode(self.content)
        if not isinstance(self.content, str):
            raise InvalidInput(f"the content must be a text for the encoding {self.encoding}")
        try:
            if self.encoding == "base64":
                return base64.b64decode(self.content, validate=True)
            return self.content.encode()
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(f"the content is not {self.encoding}: {error}") from error


_MEDIA_TYPES: Final = {"text": "text/plain", "json": "application/json", "base64": "application/octet-stream"}


def repeated_artifact(
    store: JournalStore, tenant: str, new: NewArtifact, data: bytes, key: str | None
) -> StoredObject | None:
    """Return the artifact that the same request has stored before, if any.

    Args:
        data: of `NewArtifact.data`.

    Raises:
        InvalidInput: the metadata are not JSON.
        IdempotencyConflict: the key was used with another body.
    """
    return repeated(store, tenant, _repetition(new, data, key))


def create_artifact(
    store: JournalStore,
    blobs: BlobStore,
    tenant: str,
    new: NewArtifact,
    data: bytes,
    key: str | None,
    ids: IdSource,
    now_ms: int,
) -> StoredArtifactObject:
    """Store an artifact, durably.

    Args:
        data: of `NewArtifact.data`.

    Raises:
        InvalidInput: the metadata are not JSON, or class and session do not go together.
        UnknownSession: the session of its class does not exist.
        SessionReadOnly: that is an agent's.
        IdempotencyConflict: the key was used with another body.
    """
    if (new.retention_class == "session") != (new.session_id is not None):
        raise InvalidInput("session_id goes with the retention class session, and only with it")
    session = None if new.session_id is None else writable(find_session(store, tenant, new.session_id))
    stored = store.put_object(
        new_object(
            blobs,
            ObjectName(ARTIFACT, ids.other("art_", now_ms), tenant),
            now_ms,
            _body(new, data),
            content=data,
            session_id=session.session_id if session is not None else None,
            expires_ms=now_ms + _TEMPORARY_MS if new.retention_class == "temporary" else None,
            repetition=_repetition(new, data, key),
        )
    )
    return artifact_object(stored, blobs, with_content=True)


def _body(new: NewArtifact, data: bytes) -> dict[str, Any]:
    return {
        "artifact_type": new.artifact_type,
        "content_media_type": new.media_type,
        "content_encoding": new.encoding,
        "retention_class": new.retention_class,
        "metadata": new.metadata or {},
        "size": len(data),
    }


def _repetition(new: NewArtifact, data: bytes, key: str | None) -> Repetition | None:
    asked = {**_body(new, data), "content": new.content, "session_id": new.session_id}
    return repetition_of("POST /v2/artifacts", key, asked)


def find_artifact(
    store: ObjectRecords, tenant: str, artifact_id: str, now_ms: int, param: str | None = None
) -> StoredObject:
    """Return a tenant's artifact.

    Args:
        param: the field of the request that names it.

    Raises:
        UnknownSessionArtifact: it has none of that id, or it has expired.
    """
    with suppress(NotFound):
        found = store.object(ARTIFACT, artifact_id, tenant)
        if found.expires_ms is None or found.expires_ms > now_ms:
            return found
    raise UnknownSessionArtifact(f"no artifact {artifact_id}", param)


def artifact_content(found: StoredObject, blobs: BlobReader) -> bytes:
    """Return an artifact's bytes.

    Raises:
        NotFound, Corrupt: its blob is damaged.
    """
    assert found.content is not None
    return blobs.get(found.content)


def artifact_object(found: StoredObject, blobs: BlobReader, *, with_content: bool) -> StoredArtifactObject:
    """Return an artifact as a JSON object."""
    body = cast("dict[str, Any]", object_body(found, blobs))
    content: Any = None
    if with_content:
        data = artifact_content(found, blobs)
        match body["content_encoding"]:
            case "json":
                content = decode(data)
            case "text":
                content = data.decode()
            case _:
                content = base64.b64encode(data).decode()
    return {
        "id": found.object_id,
        "object": "artifact",
        "artifact_type": body["artifact_type"],
        "content_media_type": body["content_media_type"],
        "content_encoding": body["content_encoding"],
        "content": content,
        "size": body["size"],
        "hash": found.content or "",
        "retention_class": body["retention_class"],
        "session_id": found.session_id,
        "metadata": body["metadata"],
        "created_at": found.created_ms,
        "expires_at": found.expires_ms,
    }


def artifact_page(
    store: ObjectRecords, blobs: BlobReader, tenant: str, limit: int, cursor: str | None, now_ms: int
) -> StoredArtifactPage:
    """Return a page of a tenant's artifacts, oldest first, without their contents.

    Raises:
        InvalidCursor: it is of another list.
    """
    after = place_after(cursor, "stored artifacts", [tenant], "")
    found = store.objects(ARTIFACT, tenant, after=after, limit=limit + 1)
    page = found[:limit]
    return {
        "items": [
            artifact_object(each, blobs, with_content=False)
            for each in page
            if each.expires_ms is None or each.expires_ms > now_ms
        ],
        "next_cursor": cursor_after("stored artifacts", [tenant], page[-1].object_id) if len(found) > limit else None,
    }


def delete_artifact(store: JournalStore, tenant: str, artifact_id: str, now_ms: int) -> DeletedArtifact:
    """Delete an artifact; events go on naming it, and bundles keep their copies of it.

    Raises:
        UnknownSessionArtifact: the tenant has none of that id.
    """
    found = find_artifact(store, tenant, artifact_id, now_ms)
    store.delete_object(ARTIFACT, found.object_id, tenant)
    return {"id": found.object_id, "object": "artifact", "deleted": True}


def drop_expired(store: ObjectRecords, now_ms: int) -> int:
    """Delete the objects of all tenants that have expired; return their number."""
    expired = [each for each in store.all_objects() if each.expires_ms is not None and each.expires_ms <= now_ms]
    return sum(store.delete_object(each.kind, each.object_id, each.namespace) for each in expired)
