"""The records of a journal as MessagePack, for a process that has no connection to its database.

A record travels as its class's number and its fields in order; both ends are of one installation. What arrives makes
records and errors of `chronicle.error_wire` and nothing else, whatever it says.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

import msgpack

from chronicle.error_wire import error_from_wire, error_to_wire
from chronicle.errors import Unavailable
from chronicle.journal import objects, records

__all__ = ["dumps", "loads"]

_RECORDS: Final[tuple[type, ...]] = (
    records.Backlog,
    records.Branch,
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
    records.Receipt,
    records.Reminder,
    records.Session,
    records.SessionFilter,
    records.SessionSummary,
    records.SetReminder,
    records.Settlement,
    records.Snapshot,
    records.StepWrite,
    records.StoredStep,
    objects.Repetition,
    objects.StoredObject,
)
_ENUMS: Final = {"MessageStatus": records.MessageStatus, "Outcome": records.Outcome}
_ERROR: Final = 100
"""The number of errors, which lists of outcomes hold."""
_NAMES: Final = {cls: tuple(field.name for field in fields(cls)) for cls in _RECORDS}
_VALUES: Final = {cls: attrgetter(*names) for cls, names in _NAMES.items()}
_NUMBERS: Final = {cls: number for number, cls in enumerate(_RECORDS)}
_OF_ENUMS: Final = {
    cls: [(place, _ENUMS[str(field.type)]) for place, field in enumerate(fields(cls)) if str(field.type) in _ENUMS]
    for cls in _RECORDS
}


def dumps(value: object) -> bytes:
    """Return a record, or sequences and maps of records and plain values, as bytes."""
    data: bytes = msgpack.packb(value, default=_encode, unicode_errors="surrogateescape")
    return data


def loads(data: bytes) -> Any:
    """Return the value of `dumps`; its sequences are tuples."""
    return msgpack.unpackb(data, ext_hook=_decode, use_list=False, unicode_errors="surrogateescape")


def _encode(value: object) -> object:
    number = _NUMBERS.get(type(value))
    if number is not None:
        found = _VALUES[type(value)](value)
        return msgpack.ExtType(number, dumps(found if len(_NAMES[type(value)]) > 1 else (found,)))
    if isinstance(value, Exception):
        return msgpack.ExtType(_ERROR, dumps(error_to_wire(value, Unavailable)))
    if isinstance(value, frozenset | set):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no record")


def _decode(number: int, data: bytes) -> object:
    if number == _ERROR:
        return error_from_wire(loads(data), Unavailable)
    cls = _RECORDS[number]
    values = loads(data)
    for place, enum in _OF_ENUMS[cls]:
        values = (*values[:place], enum(values[place]), *values[place + 1 :])
    return cls(*values)
