"""Responses as objects of the journal: what is kept of each, and what a transcript needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.errors import NotFound
from chronicle.journal.objects import ObjectName, new_object, object_body
from coordinator.operations.errors import UnknownResponse
from coordinator.responses.items import messages_of
from coordinator.responses.transcript import GivenResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.ids import SessionId
    from chronicle.journal.objects import Repetition, StoredObject
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.objects import ObjectRecords
    from coordinator.responses.objects import ResponseObject

__all__ = [
    "KIND",
    "ResponseRecord",
    "delete_response",
    "given",
    "read_record",
    "read_response",
    "replace_record",
    "store_record",
]

KIND: Final = "response"


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """Record of a response."""

    response: ResponseObject
    """Without its input."""
    input: Sequence[JsonObject]
    """The items of the request."""
    created_ms: int
    completed_ms: int | None
    """When it ended with an output; ``None`` if it failed."""


def store_record(
    store: ObjectRecords, blobs: BlobStore, tenant: str, record: ResponseRecord, repetition: Repetition | None
) -> StoredObject:
    """Store a response, durably; return it, or the earlier one of the same repetition.

    Raises:
        IdempotencyConflict: its key was used by another request.
        NotFound: its session was deleted meanwhile.
        Unavailable: it is unknown whether it was stored.
    """
    body: JsonObject = {
        "response": cast("JsonObject", dict(record.response)),
        "input": list(record.input),
        "completed_ms": record.completed_ms,
    }
    session_id = cast("SessionId | None", record.response["session_id"])
    stored = new_object(
        blobs,
        ObjectName(KIND, record.response["id"], tenant),
        record.created_ms,
        body,
        session_id=session_id,
        repetition=repetition,
    )
    return store.put_object(stored)


def replace_record(
    store: JournalStore, blobs: BlobStore, tenant: str, record: ResponseRecord, repetition: Repetition | None
) -> StoredObject:
    """Store a response, durably, in place of the record of the same id; else as `store_record`."""
    store.delete_object(KIND, record.response["id"], tenant)
    return store_record(store, blobs, tenant, record, repetition)


def read_record(stored: StoredObject, blobs: BlobReader) -> ResponseRecord:
    """Return what an object keeps; raises as `chronicle.journal.objects.object_body`."""
    body = cast("dict[str, Any]", object_body(stored, blobs))
    return ResponseRecord(body["response"], body["input"], stored.created_ms, body["completed_ms"])


def read_response(store: ObjectRecords, blobs: BlobReader, tenant: str, response_id: str) -> ResponseRecord:
    """Return the record of a response.

    Raises:
        UnknownResponse: there is none of that id in the tenant.
    """
    try:
        return read_record(store.object(KIND, response_id, tenant), blobs)
    except NotFound:
        raise _unknown(response_id) from None


def delete_response(store: ObjectRecords, tenant: str, response_id: str) -> None:
    """Delete a response, durably.

    Raises:
        UnknownResponse: there is none of that id in the tenant.
    """
    if not store.delete_object(KIND, response_id, tenant):
        raise _unknown(response_id)


def given(record: ResponseRecord) -> GivenResponse:
    """Return what a transcript needs of a response."""
    response = record.response
    return GivenResponse(
        response["id"],
        response["branch_id"],
        response["head_event_id"],
        record.completed_ms,
        tuple(messages_of(record.input)),
        tuple(messages_of(response["output"])),
        len(str(record.input)) + len(str(response["output"])),
    )


def _unknown(response_id: str) -> UnknownResponse:
    return UnknownResponse(f"no response {response_id}")
