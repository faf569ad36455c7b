"""Out-of-line payloads: large ones are in the blob store, and their events reference them.

An event's hash covers its ``payload_ref``, so sealing decides where a payload is stored
(:func:`chronicle.journal.chain.seal` with ``out_of_line``). Order of a commit: put the large payloads into the blob
store, durably, then commit; `seal_durably` does the first half. A crash in between leaves unreferenced blobs, which gc
collects.
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
    """Seal drafts on top of a head, and put large payloads into the blob store, durably.

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
    """Return an event's payload, inline or out of line.

    Args:
        blobs: the store of out-of-line payloads; without it they are not found.

    Raises:
        NotFound: the payload was erased, or its blob is missing.
        Corrupt: the payload differs from the one that was sealed.
        Unavailable: the blob store could not be reached.
    """
    data = payload_bytes(event, blobs)
    try:
        return decode(data)
    except InvalidInput as error:  # sealed payloads are JSON; a row's digest is of the present bytes
        raise Corrupt(f"the payload of event {event.event_id} (seq {event.seq}) was changed: {error}") from error


def payload_bytes(event: Event, blobs: BlobReader | None = None) -> bytes:
    """Return the canonical bytes of an event's payload, verified; raises as `payload_of`."""
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
