"""The records of a layer's local log: their codes, and the one that comes first.

A record is a MessagePack array, its code first. Times are epoch nanoseconds, paths are bytes. What each holds is in
docs/internals/workspace.md; `chronicle.workspace.layer.replay` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgpack

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.errors import Corrupt, UnsupportedFormat
from chronicle.workspace.port import TreeRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.workspace.history.oplog import Gap
    from chronicle.workspace.layer.disk.data_file import DataFile

__all__ = [
    "COPY",
    "CREATE",
    "DATA",
    "DEVICE",
    "FLOORS",
    "LINK",
    "LOST",
    "MAKE",
    "MODE",
    "PART",
    "REMOVE",
    "RENAME",
    "RESTORE",
    "REVERTED",
    "SEALED",
    "SYNCED",
    "TIMES",
    "TOGETHER",
    "TURN",
    "VERSION",
    "WRITTEN",
    "XATTR",
    "Header",
    "code_of",
    "count_complete",
    "last_sealed",
    "pack",
    "pack_data",
    "pack_floors",
    "pack_ref",
    "unpack_ref",
]

FORMAT: Final = 4
"""2 has `DEVICE`, `SYNCED` and `REVERTED` besides what 1 has; 3 has `TOGETHER`, `PART`, `WRITTEN` and `LOST`; 4 has
`Header.recovered`."""
HEADER: Final = 0
CREATE: Final = 1
MAKE: Final = 2
REMOVE: Final = 3
RENAME: Final = 4
RESTORE: Final = 16
LINK: Final = 5
MODE: Final = 6
TIMES: Final = 7
XATTR: Final = 8
DATA: Final = 9
VERSION: Final = 10
TURN: Final = 11
SEALED: Final = 12
FLOORS: Final = 13
DEVICE: Final = 14
SYNCED: Final = 15
REVERTED: Final = 17
TOGETHER: Final = 18
WRITTEN: Final = 19
LOST: Final = 20

COPY: Final = 1
"""In a `DATA` record without an undo file: the data file begins as a copy of what the blob store has."""
PART: Final = 2
"""Likewise: the data file has nothing of what the blob store has, and gets what is written."""

_FLOORS_BYTES: Final = 1024 * 1024
"""How much one `FLOORS` record has about."""
_FLOOR_BYTES: Final = 32
"""What a path has at most besides itself there."""

pack = msgpack.Packer(use_bin_type=True).pack
"""Encode a record. One packer serves the process, which has one thread that logs."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first record of a log."""

    workspace_id: str
    epoch: int
    base: TreeRef | None
    turn: int
    next_ino: int
    next_seq: int
    next_number: int
    """What the next data or undo file is called."""
    owner: tuple[int, int]
    """User and group of what has none of its own in the tree."""
    recovered: TreeRef | None = None
    """What older layers held beyond the base when this one was begun. Once a turn was begun, someone was told."""

    def encode(self) -> bytes:
        """Return the record."""
        fields = (
            HEADER,
            FORMAT,
            self.workspace_id,
            self.epoch,
            pack_ref(self.base),
            self.turn,
            self.next_ino,
            self.next_seq,
            self.next_number,
            self.owner,
            pack_ref(self.recovered),
        )
        packed: bytes = msgpack.packb(fields, use_bin_type=True)
        return packed

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Return the header that these bytes are.

        Raises:
            UnsupportedFormat: written by a newer version.
            Corrupt: not a header.
        """
        try:
            code, version, *fields = msgpack.unpackb(data, use_list=False)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise Corrupt("a layer's log does not begin with a header") from error
        if code != HEADER or not isinstance(version, int):
            raise Corrupt("a layer's log does not begin with a header")
        if version > FORMAT:
            raise UnsupportedFormat(f"a layer has format {version}; this code reads {FORMAT}: upgrade the code")
        try:
            recovered = unpack_ref(fields.pop()) if version >= 4 else None
            workspace_id, epoch, base, turn, *numbers, owner = fields
            next_ino, next_seq, next_number = numbers
            ref = unpack_ref(base)
            return cls(workspace_id, epoch, ref, turn, next_ino, next_seq, next_number, owner, recovered)
        except (IndexError, ValueError, TypeError) as error:
            raise Corrupt("a layer's log begins with a header that has other fields") from error


def pack_ref(ref: TreeRef | None) -> bytes | None:
    """Return a tree as it is in a record."""
    return to_raw(ref.tree_id) + to_raw(ref.oplog_id) if ref is not None else None


def unpack_ref(raw: bytes | None) -> TreeRef | None:
    """Return the tree that a record names."""
    return TreeRef(from_raw(raw[:32]), from_raw(raw[32:])) if raw is not None else None


def code_of(payload: bytes) -> int:
    """Return a record's code. MessagePack has what is in a short array after one byte, and small integers as such."""
    return payload[1] if len(payload) > 1 else HEADER


def count_complete(payloads: Sequence[bytes]) -> int:
    """Return how many records of a log, from its first, count: those logged to count together do if all are there."""
    at = 1
    while at < len(payloads):
        if code_of(payloads[at]) == TOGETHER:
            (_, count) = msgpack.unpackb(payloads[at])
            if at + count >= len(payloads):
                return at
            at += count
        at += 1
    return len(payloads)


def last_sealed(payloads: Sequence[bytes]) -> tuple[int, TreeRef | None]:
    """Return where the records after the last seal begin, and what was sealed; ``(1, None)`` without one."""
    for position in range(len(payloads) - 1, 0, -1):
        if code_of(payloads[position]) == SEALED:
            fields = msgpack.unpackb(payloads[position], use_list=False)
            return position + 1, unpack_ref(fields[1])
    return 1, None


def pack_floors(floors: dict[bytes, int], gaps: list[Gap]) -> list[bytes]:
    """Return `FLOORS` records, none if there is nothing to say: one may not be too long for the log."""
    packed = []
    some: dict[bytes, int] = {}
    more: list[Gap] = []
    size = 0
    for path, number in floors.items():
        some[path] = number
        size += len(path) + _FLOOR_BYTES
        if size > _FLOORS_BYTES:
            packed.append(pack((FLOORS, some, more)))
            some, size = {}, 0
    for gap in gaps:
        more.append(gap)
        size += len(gap.directory) + _FLOOR_BYTES
        if size > _FLOORS_BYTES:
            packed.append(pack((FLOORS, some, more)))
            some, more, size = {}, [], 0
    if some or more:
        packed.append(pack((FLOORS, some, more)))
    return packed


def pack_data(ts_ns: int, path: bytes | None, data: DataFile, undo: int, size: int) -> bytes:
    """Return a `DATA` record: a file is about to be changed.

    Args:
        ts_ns: when.
        path: of the file; None if it has no name any more, and only versions of it are of interest.
        data: where its bytes are from now on.
        undo: the number of the undo file of the version that ``data`` holds now; 0 if none does.
        size: that version's size; without one, `COPY` if ``data`` begins as a copy of what the blob store has, `PART`
            if it has nothing of that.
    """
    packed: bytes = pack((DATA, ts_ns, path, data.number, undo, size))
    return packed
