"""The records of a journal as MessagePack, for a process that has no connection to its database.

A record travels as its class's number and its fields in order; both ends are of one installation. What arrives makes
records and errors of `chronicle.error_wire` and nothing else, whatever it says.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, Final

import msgpack

from chronicle.error_wire import error_from_wire, error_to_wire
from chronicle.errors import InvalidInput, Unavailable
from chronicle.journal import objects, records

__all__ = ["dumps", "loads"]

_RECORDS: Final[tuple[type, ...]] = (
    records.Backlog,
    records.Branch,
    records.CatalogueEntry,
    records.Commit,
    records.DropReminder,
    records.Event,
    records.Head,
    records.InboxMessage,
    records.InboxWrite,
    records.Lease,
    records.NewMessage,
    records.OutboxEnvelope,
    records.OutboxMessage,
    records.PauseEnd,
    records.PausedMessage,
    records.Receipt,
    records.RecordUsage,
    records.Reminder,
    records.Session,
    records.SessionFilter,
    records.SessionSummary,
    records.SetReminder,
    records.Settlement,
    records.Snapshot,
    records.StepWrite,
    records.StoredStep,
    records.Tombstone,
    objects.Repetition,
    objects.StoredObject,
)
_ENUMS: Final = (records.BranchChange, records.MessageStatus, records.Outcome)
_TUPLE, _SET, _ERROR, _FIRST_ENUM = 100, 101, 102, 110
"""Numbers of what is no record: exact types arrive, as callers compare lists, and use tuples as keys."""
_TYPES: Final[dict[type, tuple[Any, ...]]] = {
    records.OutboxMessage: (str, str, bytes, int, str | None, str, dict | None),
    records.SetReminder: (str, int, bytes),
}
"""Of the fields of what is stored for others to read: a database takes other values, and one would stop all."""
_MAX_MS: Final = 1 << 62
_MAX_DEPTH: Final = 32
"""Records and tuples in one another. Some hundreds would take the stack of a thread: MessagePack's own is large."""
_VALUES: Final = {cls: attrgetter(*(field.name for field in fields(cls))) for cls in _RECORDS}
_NUMBERS: Final = {cls: number for number, cls in enumerate(_RECORDS)}


def dumps(value: object) -> bytes:
    """Return a record, or sequences and maps of records and plain values, as bytes."""
    data: bytes = msgpack.packb(value, default=_encode, unicode_errors="surrogateescape", strict_types=True)
    return data


def loads(data: bytes) -> Any:
    """Return the value of `dumps`.

    Raises:
        InvalidInput: records and tuples are nested deeper than any are, or fields that others read are of other types.
        Exception: it is none of `dumps`.
    """
    return _loads(data, 0)


def _loads(data: bytes, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"records are nested more than {_MAX_DEPTH} deep")
    hook = partial(_decode, depth + 1)
    return msgpack.unpackb(data, ext_hook=hook, unicode_errors="surrogateescape", strict_map_key=False)


def _encode(value: object) -> object:
    number = _NUMBERS.get(type(value))
    if number is not None:
        found = _VALUES[type(value)](value)
        return msgpack.ExtType(number, dumps(list(found) if type(found) is tuple else [found]))
    match value:
        case tuple():
            return msgpack.ExtType(_TUPLE, dumps(list(value)))
        case frozenset() | set():
            return msgpack.ExtType(_SET, dumps(list(value)))
        case Exception():
            return msgpack.ExtType(_ERROR, dumps(error_to_wire(value, Unavailable)))
        case StrEnum():
            return msgpack.ExtType(_FIRST_ENUM + _ENUMS.index(type(value)), str(value).encode())
        case _:
            raise TypeError(f"{type(value).__name__} is no record")


def _decode(depth: int, number: int, data: bytes) -> object:
    if number < len(_RECORDS):
        return _record(_RECORDS[number], _loads(data, depth))
    if number >= _FIRST_ENUM:
        return _ENUMS[number - _FIRST_ENUM](data.decode())
    value = _loads(data, depth)
    if number == _ERROR:
        return error_from_wire(value, Unavailable)
    return frozenset(value) if number == _SET else tuple(value)


def _record(cls: type, values: list[Any]) -> object:
    for value, expected in zip(values, _TYPES.get(cls, ()), strict=False):
        if not isinstance(value, expected) or (isinstance(value, int) and abs(value) > _MAX_MS):
            raise InvalidInput(f"a field of a {cls.__name__} is {type(value).__name__}, or too large")
    return cls(*values)
