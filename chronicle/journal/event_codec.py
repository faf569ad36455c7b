"""Events as JSON objects: with the payload's stored bytes for archives and object stores, decoded for users.

The keys are the names of the fields of `chronicle.journal.records.Event`. The caller's format decides where the objects
are written and how they are encoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronicle.ids import BlobId, BranchId, EventId
from chronicle.journal.payloads import payload_of
from chronicle.journal.records import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.blobs.port import BlobReader

__all__ = ["event_from_object", "event_object", "event_view"]

_SEALED: Final = (
    "branch_id",
    "seq",
    "event_id",
    "type",
    "turn",
    "ts",
    "payload_ref",
    "payload_sha256",
    "correlation_id",
    "causation_id",
    "prev_hash",
    "hash",
)
"""The fields that are JSON values without conversion and that the hash covers, and the hash itself."""
_VIEWED: Final = (
    *("branch_id", "seq", "event_id", "type", "turn", "ts", "payload"),
    *("payload_ref", "correlation_id", "causation_id", "prev_hash", "hash"),
)


def event_object(event: Event, *, erased: bool) -> dict[str, Any]:
    """Return an event as the object that `event_from_object` reads; the payload is a string, or null if not inline.

    Args:
        event: the event.
        erased: whether to add the key ``erased``, which no hash covers.
    """
    described = {name: getattr(event, name) for name in _SEALED}
    if erased:
        described["erased"] = event.erased
    described["payload"] = event.payload.decode() if event.payload is not None else None
    return described


def event_from_object(described: Mapping[str, Any], *, erased: bool) -> Event:
    """Return the event of an `event_object`; the caller verifies its hash and its place (`chronicle.journal.chain`).

    Args:
        described: the object.
        erased: whether the object has the key ``erased``.

    Raises:
        ValueError: a field is missing, or the payload is no string.
    """
    try:
        values = {name: described[name] for name in _SEALED}
        payload = described["payload"]
        values["payload"] = payload.encode() if payload is not None else None
        values["branch_id"], values["event_id"] = BranchId(values["branch_id"]), EventId(values["event_id"])
        values["payload_ref"] = BlobId(values["payload_ref"]) if values["payload_ref"] is not None else None
        return Event(**values, erased=described["erased"] if erased else False)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from error


def event_view(event: Event, blobs: BlobReader) -> dict[str, Any]:
    """Return an event for users, with its payload decoded, inline or out of line; null if it was erased.

    Raises:
        NotFound, Corrupt, Unavailable: the payload is out of line and its blob could not be read.
    """
    payload = None if event.erased else payload_of(event, blobs)
    return {name: payload if name == "payload" else getattr(event, name) for name in _VIEWED}
