"""The records of a layer's local log: their codes, and the header.

A record is a MessagePack array, its code first. Times are epoch nanoseconds, paths are bytes. The fields of each are in
docs/internals/workspace.md; `chronicle.workspace.layer.replay` applies them.
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

FORMAT: Final = 1
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
"""In a `DATA` record without an undo file: the data file begins as a copy of stored content."""
PART: Final = 2
"""Likewise: the data file is partial; it has no stored content, and gets what is written."""

_FLOORS_BYTES: Final = 1024 * 1024
"""Approximate size of one `FLOORS` record."""
_FLOOR_BYTES: Final = 32
"""Upper bound of an entry's size in it besides the path."""

pack = msgpack.Packer(use_bin_type=True).pack
"""Encode a record. One packer per process: one thread logs."""


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
    """The number of the next data or undo file."""
    owner: tuple[int, int]
    """User and group of entries that store none."""
    recovered: TreeRef | None = None
    """Content that older layers held beyond the base when this one was begun. Reported until a turn is begun."""

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
        """Decode a header.

        Raises:
            UnsupportedFormat: written by a newer version.
            Corrupt: it is not a header.
        """
        try:
            code, version, *fields = msgpack.unpackb(data, use_list=False)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise Corrupt("a layer's log does not begin with a header") from error
        if code != HEADER or not isinstance(version, int):
            raise Corrupt("a layer's log does not begin with a header")
        if version > FORMAT:
            raise UnsupportedFormat(f"a layer has format {version}; this code reads {FORMAT}")
        try:
            workspace_id, epoch, base, turn, *numbers, owner, recovered = fields
            next_ino, next_seq, next_number = numbers
            refs = unpack_ref(base), unpack_ref(recovered)
            return cls(workspace_id, epoch, refs[0], turn, next_ino, next_seq, next_number, owner, refs[1])
        except (IndexError, ValueError, TypeError) as error:
            raise Corrupt("a layer's log begins with a header that has other fields") from error


def pack_ref(ref: TreeRef | None) -> bytes | None:
    """Encode a tree for a record."""
    return to_raw(ref.tree_id) + to_raw(ref.oplog_id) if ref is not None else None


def unpack_ref(raw: bytes | None) -> TreeRef | None:
    """Decode a tree of a record."""
    return TreeRef(from_raw(raw[:32]), from_raw(raw[32:])) if raw is not None else None


def code_of(payload: bytes) -> int:
    """Return a record's code: in MessagePack, the byte after that of a short array's length."""
    return payload[1] if len(payload) > 1 else HEADER


def count_complete(payloads: Sequence[bytes]) -> int:
    """Return how many records of a log count, from the first: a group that counts together must be complete."""
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
    """Return the index of the first record after the last seal, and the sealed tree; ``(1, None)`` without one."""
    for position in range(len(payloads) - 1, 0, -1):
        if code_of(payloads[position]) == SEALED:
            fields = msgpack.unpackb(payloads[position], use_list=False)
            return position + 1, unpack_ref(fields[1])
    return 1, None


def pack_floors(floors: dict[bytes, int], gaps: list[Gap]) -> list[bytes]:
    """Return `FLOORS` records, split so that none exceeds the log's limit; none if there are no floors and gaps."""
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
    """Return a `DATA` record, which precedes the first change of a file since its last version.

    Args:
        ts_ns: when.
        path: of the file; None if it has no name any more, and only its versions matter.
        data: its data file from now on.
        undo: the number of the undo file of the version that ``data`` holds now; 0 without such a version.
        size: that version's size; without one, `COPY` if ``data`` begins as a copy of stored content, `PART` if it is
            partial, else 0.
    """
    packed: bytes = pack((DATA, ts_ns, path, data.number, undo, size))
    return packed
