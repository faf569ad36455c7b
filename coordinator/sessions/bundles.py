"""Bundles: texts in an order, such as retrieved documents, that sessions pin before their transcripts.

A bundle is compiled once, when it is made: the same items give the same bytes, so that what a model has cached of them
serves all sessions that pin it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from xml.sax.saxutils import quoteattr

from chronicle.errors import InvalidInput, NotFound
from chronicle.journal.objects import ObjectName, new_object, object_body
from coordinator.operations.cursors import cursor_after, place_after
from coordinator.operations.errors import BundleTooLarge, UnknownBundle
from coordinator.sessions.artifacts import artifact_content, find_artifact
from coordinator.sessions.repetition import repeated, repetition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.objects import Repetition, StoredObject
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.objects import ObjectRecords
    from coordinator.sessions.objects import BundleObject, BundlePage

__all__ = [
    "BUNDLE",
    "MAX_BYTES",
    "BundleItem",
    "CompiledBundle",
    "bundle_object",
    "bundle_page",
    "compile_bundle",
    "create_bundle",
    "find_bundle",
    "prepare_bundle",
]

BUNDLE: Final = "bundle"
"""The kind of the stored object."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of the texts of a bundle: a short request can name a large artifact many times."""


@dataclass(frozen=True, slots=True)
class BundleItem:
    """An item of a bundle to make: a text, or the artifact that has it."""

    text: str | None = None
    artifact_id: str | None = None
    title: str | None = None


def compile_bundle(items: Sequence[tuple[str | None, str]]) -> bytes:
    """Return the bytes of a bundle. They depend on its items alone.

    Args:
        items: title and text of each.
    """
    parts: list[str] = []
    for number, (title, text) in enumerate(items, start=1):
        named = f" title={quoteattr(title)}" if title is not None else ""
        inside = text.replace("</document", "&lt;/document")  # only the end of an item ends it
        parts.append(f'<document index="{number}"{named}>\n{inside}\n</document>\n')
    return "".join(parts).encode()


@dataclass(frozen=True, slots=True)
class CompiledBundle:
    """A bundle that is not stored yet."""

    compiled: bytes
    body: dict[str, Any]
    repetition: Repetition | None


def prepare_bundle(
    store: JournalStore,
    blobs: BlobReader,
    tenant: str,
    items: Sequence[BundleItem],
    metadata: dict[str, Any],
    key: str | None,
    now_ms: int,
) -> CompiledBundle | StoredObject:
    """Compile a bundle, or return the one that the same request has made before, whatever became of its artifacts.

    Raises:
        UnknownSessionArtifact: the tenant does not have an artifact that an item names.
        InvalidInput: an item has no text, or two, or an artifact that is not text.
        BundleTooLarge: it would have more than `MAX_BYTES`.
        IdempotencyConflict: the key was used with another body.
    """
    asked: dict[str, Any] = {"items": [asdict(item) for item in items], "metadata": metadata}
    repetition = repetition_of("POST /v2/bundles", key, asked)
    if (there := repeated(store, tenant, repetition)) is not None:
        return there
    texts: list[str] = []
    described: list[dict[str, Any]] = []
    total = 0
    for number, item in enumerate(items):
        text = _text_of(store, blobs, tenant, item, number, now_ms)
        size = len(text.encode())
        total += size
        if total > MAX_BYTES:
            raise BundleTooLarge(
                f"up to item {number} the texts have more than {MAX_BYTES} bytes, which is the most of a bundle; make "
                "several, and pin them in order",
                "items",
            )
        texts.append(text)
        described.append({"title": item.title, "artifact_id": item.artifact_id, "size": size})
    compiled = compile_bundle([(item.title, text) for item, text in zip(items, texts, strict=True)])
    return CompiledBundle(compiled, {"items": described, "size": len(compiled), "metadata": metadata}, repetition)


def create_bundle(
    store: ObjectRecords, blobs: BlobStore, tenant: str, new: CompiledBundle, ids: IdSource, now_ms: int
) -> BundleObject:
    """Store a bundle, durably.

    Raises:
        InvalidInput: the metadata are not JSON.
        IdempotencyConflict: the key was used with another body.
    """
    stored = store.put_object(
        new_object(
            blobs,
            ObjectName(BUNDLE, ids.other("bnd_", now_ms), tenant),
            now_ms,
            new.body,
            content=new.compiled,
            repetition=new.repetition,
        )
    )
    return bundle_object(stored, blobs, with_content=False)


def _text_of(store: JournalStore, blobs: BlobReader, tenant: str, item: BundleItem, number: int, now_ms: int) -> str:
    if (item.text is None) == (item.artifact_id is None):
        raise InvalidInput(f"item {number} needs text or artifact_id, and only one of them")
    try:
        if item.artifact_id is None:
            text = item.text or ""
            text.encode()
            return text
        found = find_artifact(store, tenant, item.artifact_id, now_ms, f"items.{number}.artifact_id")
        return artifact_content(found, blobs).decode()
    except UnicodeError as error:
        raise InvalidInput(f"item {number} is not text in UTF-8") from error


def find_bundle(store: ObjectRecords, tenant: str, bundle_id: str, param: str | None = None) -> StoredObject:
    """Return a tenant's bundle.

    Args:
        param: the field of the request that names it.

    Raises:
        UnknownBundle: it has none of that id.
    """
    with suppress(NotFound):
        return store.object(BUNDLE, bundle_id, tenant)
    raise UnknownBundle(f"no bundle {bundle_id}", param)


def bundle_object(found: StoredObject, blobs: BlobReader, *, with_content: bool) -> BundleObject:
    """Return a bundle as a JSON object."""
    body = cast("dict[str, Any]", object_body(found, blobs))
    assert found.content is not None
    return {
        "id": found.object_id,
        "object": "bundle",
        "items": body["items"],
        "size": body["size"],
        "hash": found.content,
        "content": blobs.get(found.content).decode() if with_content else None,
        "metadata": body["metadata"],
        "created_at": found.created_ms,
    }


def bundle_page(store: ObjectRecords, blobs: BlobReader, tenant: str, limit: int, cursor: str | None) -> BundlePage:
    """Return a page of a tenant's bundles, oldest first, without their contents.

    Raises:
        InvalidCursor: it is of another list.
    """
    after = place_after(cursor, "bundles", [tenant], "")
    found = store.objects(BUNDLE, tenant, after=after, limit=limit + 1)
    page = found[:limit]
    return {
        "items": [bundle_object(each, blobs, with_content=False) for each in page],
        "next_cursor": cursor_after("bundles", [tenant], page[-1].object_id) if len(found) > limit else None,
    }
