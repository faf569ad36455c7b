"""Payloads out of line: the large ones lie in the blob store, and their events name them.

An event's hash covers its ``payload_ref``, so where a payload lies is decided when the event is sealed
(:func:`chronicle.journal.chain.seal` with a place for large payloads). Order of a commit: put the large payloads into
the blob store, durably, then commit; `seal_durably` does the first half. A crash between leaves blobs that nothing
refers to, for the collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.canonical import decode
from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.journal.chain import payload_digest, seal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.canonical import Json
    from chronicle.ids import BlobId
    from chronicle.journal.records import Draft, Event, Head

__all__ = ["payload_bytes", "payload_of", "seal_durably"]


def seal_durably(blobs: BlobStore, expected: Head, drafts: Sequence[Draft]) -> tuple[Event, ...]:
    """Seal drafts on top of a head, with large payloads in the blob store, durable on return.

    Raises:
        InvalidInput: as :func:`chronicle.journal.chain.seal`.
        Unavailable: the blob store could not be reached.
    """
    large: dict[BlobId, bytes] = {}
    events = seal(expected, drafts, large)
    if large:
        blobs.put(large)
    return events


def payload_of(event: Event, blobs: BlobReader | None = None) -> Json:
    """Return an event's payload, wherever it lies.

    Args:
        blobs: where payloads out of line are; without it, one that is out of line is not found.

    Raises:
        NotFound: the payload was erased, or its blob is not there.
        Corrupt: the payload is not the one that the event was sealed with.
        Unavailable: the blob store could not be reached.
    """
    data = payload_bytes(event, blobs)
    try:
        return decode(data)
    except InvalidInput as error:  # what was sealed was JSON; a row's digest is that of what is there now
        raise Corrupt(f"the payload of event {event.event_id} (seq {event.seq}) was changed: {error}") from error


def payload_bytes(event: Event, blobs: BlobReader | None = None) -> bytes:
    """Return the canonical bytes of an event's payload, checked; raises as `payload_of`."""
    data = event.payload
    if data is None:
        if event.erased:
            raise NotFound(f"the payload of event {event.event_id} (seq {event.seq}) was erased")
        if event.payload_ref is None or blobs is None:
            raise NotFound(f"the payload of event {event.event_id} (seq {event.seq}) is not here")
        data = blobs.get(event.payload_ref)
    if payload_digest(data) != event.payload_sha256:
        raise Corrupt(f"the payload of event {event.event_id} (seq {event.seq}) was changed")
    return data
