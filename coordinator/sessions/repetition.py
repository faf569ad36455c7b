"""Repeated requests: what makes two requests one, and the ids that follow from it.

A request for a new object keeps its `Repetition` beside the object. The id of an appended event follows from the key,
so the journal itself finds the repeat, and an append is one transaction with a key as without.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from chronicle.canonical import encode
from chronicle.ids import EventId
from chronicle.journal.objects import Repetition

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from chronicle.ids import BranchId, IdSource
    from chronicle.journal.objects import StoredObject
    from chronicle.journal.ports.objects import ObjectRecords

__all__ = ["event_id_of", "repeated", "repetition_of"]

_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME: Final = slice(-26, -16)
"""The digits of an id that hold its time."""


def repetition_of(route: str, key: str | None, request: JsonObject) -> Repetition | None:
    """Return what makes a request a repeat; ``None`` without a key.

    Args:
        route: method and path; a key serves one route.
        key: the client's idempotency key.
        request: the body.
    """
    if key is None:
        return None
    return Repetition(sha256(encode([route, key])).hexdigest(), sha256(encode(request)).hexdigest(), key)


def repeated(store: ObjectRecords, tenant: str, repetition: Repetition | None) -> StoredObject | None:
    """Return the object that an earlier request has made under the same key, if any.

    Raises:
        IdempotencyConflict: that request asked for something else.
    """
    if repetition is None or (there := store.object_of_key(repetition.key, tenant)) is None:
        return None
    if there.repetition != repetition:
        raise repetition.conflict()
    return there


def event_id_of(branch_id: BranchId, key: str | None, ids: IdSource, now_ms: int) -> EventId:
    """Return the id of an event to append: a new one, or the one of the key, which has the time of its branch."""
    if key is None:
        return ids.event(now_ms)
    number = int.from_bytes(sha256(encode([branch_id, key])).digest()[:10])
    tail = "".join(_DIGITS[number >> shift & 31] for shift in range(75, -1, -5))
    return EventId(f"evt_{branch_id[_TIME]}{tail}")
