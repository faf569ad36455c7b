"""The histories of paths: every version of each path, as a persistent map in the blob store.

The map's keys are full paths; a value is a `PathHistory`: the newest records inline, older ones in *blocks* of
`BLOCK_RECORDS`, each linked to the block before it and to one further back, chosen so that any block is reached in a
logarithmic number of steps (E. Myers, "An applicative random-access stack", 1983). So adding a version writes one map
value, finding version n of ten thousand reads about twenty blobs, and only the end of a history is ever rewritten.

Histories belong to paths, not to files, and renaming a directory writes nothing for the paths under it. Their versions
are derived on demand from the directory's own records; see `chronicle.workspace.history.view`.

The encoding is MessagePack, described in docs/internals/workspace.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgpack

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.errors import Corrupt, UnsupportedFormat
from chronicle.workspace.content.content import WHOLE_BYTES, Content
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.layer.disk.data_file import LocalContent

__all__ = [
    "DIRECTORY",
    "OPS",
    "OTHER",
    "PathHistory",
    "Record",
    "all_records",
    "append",
    "contents_in",
    "decode_history",
    "find",
    "kinds_in",
    "kinds_of",
    "last_before",
    "last_numbers",
    "newest_first",
    "oldest_first",
    "path_history",
    "update",
]

FORMAT: Final = 1
"""The first element of every value and block."""
INLINE_RECORDS: Final = 16
"""Records that stay in the map's value. A record has about 75 bytes, a map node 3 KB."""
BLOCK_RECORDS: Final = INLINE_RECORDS
"""Records in one block."""

OPS: Final = ("create", "write", "rename", "delete", "mode", "link", "xattr", "symlink", "restore", "mkdir")
"""The operations that make a version. The position in this tuple is the stored code: only ever append."""
_OP_CODES: Final = {op: code for code, op in enumerate(OPS)}
DIRECTORY: Final = 1
"""Bit of `PathHistory.kinds`: some version is a directory."""
OTHER: Final = 2
"""Bit of `PathHistory.kinds`: some version is not a directory."""
_KINDS: Final = (Kind.FILE, Kind.DIR, Kind.SYMLINK, Kind.FIFO, Kind.SOCKET, Kind.CHAR, Kind.BLOCK)
_KIND_CODES: Final = {kind: code for code, kind in enumerate(_KINDS)}
_BODY: Final = 6
"""Index of the content in a stored record."""


@dataclass(frozen=True, slots=True)
class Record:
    """One version of one path."""

    number: int
    """The iteration: from 1, growing."""
    seq: int
    """The operation's sequence number among all operations of the workspace."""
    timestamp_ms: int
    """Epoch milliseconds."""
    op: str
    """One of `OPS`."""
    turn: int
    """The turn whose commit it is part of."""
    kind: Kind
    """The kind of the version; for a deletion, of the deleted entry."""
    content: Content | None = None
    """Of a file."""
    target: bytes | None = None
    """Of a symlink."""
    source: bytes | None = None
    """For ``rename`` and ``link``, the path it came from."""
    held: LocalContent | None = None
    """Locates the content on disk while ``content`` is not known. Never stored."""
    mode: int | None = None
    """Permission bits; ``None`` for a deletion."""

    def finalised(self, number: int, content: Content | None) -> Record:
        """Return the record with its final number and content, without ``held``.

        `dataclasses.replace` takes four times as long.
        """
        return Record(
            number,
            self.seq,
            self.timestamp_ms,
            self.op,
            self.turn,
            self.kind,
            content,
            self.target,
            self.source,
            None,
            self.mode,
        )

    @property
    def deleted(self) -> bool:
        """Whether it is a deletion."""
        return self.op == "delete"

    @property
    def size(self) -> int:
        """Bytes of content; 0 without content."""
        if self.content is not None:
            return self.content.size
        if self.held is not None:
            return self.held.size
        return len(self.target) if self.target is not None else 0


@dataclass(frozen=True, slots=True)
class PathHistory:
    """A path's versions: the value in the map."""

    last: int
    """The last number given out, possibly to a version that was rolled back."""
    head: BlobId | None = None
    """The newest block."""
    tail: tuple[Record, ...] = ()
    """The records after it, oldest first."""
    kinds: int = 0
    """`DIRECTORY` and `OTHER`, of all records."""


@dataclass(frozen=True, slots=True)
class _Block:
    index: int
    """0 for the oldest block of a path."""
    records: tuple[Record, ...]
    previous: BlobId | None
    jump: BlobId | None
    """A block further back, or the previous one."""
    jump_index: int
    jump_last: int
    """The number of the last record of the jump block."""
    jump_seq: int
    """Its seq."""


def path_history(reader: BlobReader, root: BlobId | None, path: bytes) -> PathHistory | None:
    """Return a path's stored history; ``None`` if it has none."""
    value = nodes.lookup(reader, root, path)
    return decode_history(value) if value is not None else None


def last_numbers(reader: BlobReader, root: BlobId | None) -> dict[bytes, int]:
    """Return the last number of each path of a map."""
    return {path: decode_history(value).last for path, value in nodes.items(reader, root)}


def update(buffer: nodes.NodeBuffer, root: BlobId | None, changed: Mapping[bytes, PathHistory]) -> BlobId | None:
    """Return the root of the map with histories put."""
    return nodes.update(buffer, root, {path: _encode_history(history) for path, history in changed.items()})


def append(buffer: nodes.NodeBuffer, history: PathHistory | None, added: Sequence[Record]) -> PathHistory:
    """Return a history with records appended; full blocks are added to the buffer."""
    result = history if history is not None else PathHistory(0)
    tail = [*result.tail, *added]
    head = result.head
    while len(tail) > INLINE_RECORDS:
        head = _push(buffer, head, tuple(tail[:BLOCK_RECORDS]))
        del tail[:BLOCK_RECORDS]
    last = max(result.last, tail[-1].number if tail else 0)
    kinds = result.kinds | kinds_of(added)
    return PathHistory(last, head, tuple(tail), kinds)


def kinds_of(added: Iterable[Record]) -> int:
    """Return the kinds of records as bits: `DIRECTORY`, `OTHER`."""
    kinds = 0
    for record in added:
        kinds |= DIRECTORY if record.kind is Kind.DIR else OTHER
    return kinds


def newest_first(reader: BlobReader, history: PathHistory) -> Iterator[Record]:
    """Yield the records from the newest to the oldest; blocks are read as they are reached."""
    yield from reversed(history.tail)
    at = history.head
    while at is not None:
        block = _read_block(reader, at)
        yield from reversed(block.records)
        at = block.previous


def oldest_first(reader: BlobReader, history: PathHistory) -> Iterator[Record]:
    """Yield the records from the oldest to the newest.

    Each block is read once, when it is reached or as a step towards an older one, and a logarithmic number of them is
    in memory: a long history can be iterated over piecemeal.
    """
    pending = [(_read_block(reader, history.head), -1)] if history.head is not None else []
    while pending:
        block, until = pending.pop()
        if block.index - 1 == until:
            yield from block.records
        elif block.jump is not None and until < block.jump_index < block.index - 1:
            assert block.previous is not None
            pending.append((block, block.index - 1))
            pending.append((_read_block(reader, block.previous), block.jump_index))
            pending.append((_read_block(reader, block.jump), until))
        else:
            assert block.previous is not None
            pending.append((block, block.index - 1))
            pending.append((_read_block(reader, block.previous), until))
    yield from history.tail


def all_records(reader: BlobReader, history: PathHistory) -> list[Record]:
    """Return all records, oldest first."""
    return list(newest_first(reader, history))[::-1]


def find(reader: BlobReader, history: PathHistory, number: int) -> Record | None:
    """Return the version of that number; reads a logarithmic number of blocks."""
    for record in history.tail:
        if record.number == number:
            return record
    at = history.head
    while at is not None:
        block = _read_block(reader, at, at_most=1)
        if block.records[0].number <= number:
            block = _read_block(reader, at)
            return next((record for record in block.records if record.number == number), None)
        at = block.jump if number <= block.jump_last else block.previous
    return None


def last_before(reader: BlobReader, history: PathHistory, seq: int) -> Record | None:
    """Return the last version whose `Record.seq` is smaller; reads a logarithmic number of blocks."""
    if history.tail and history.tail[0].seq < seq:
        return next(record for record in reversed(history.tail) if record.seq < seq)
    at = history.head
    while at is not None:
        block = _read_block(reader, at, at_most=1)
        if block.records[0].seq < seq:
            block = _read_block(reader, at)
            return next(record for record in reversed(block.records) if record.seq < seq)
        # The jump block may be taken only if the record is not between it and this block.
        at = block.jump if seq <= block.jump_seq else block.previous
    return None


def _push(buffer: nodes.NodeBuffer, head: BlobId | None, content: tuple[Record, ...]) -> BlobId:
    """Add a block in front of ``head`` and return its id."""
    if head is None:
        return _add_block(buffer, _Block(0, content, None, None, 0, 0, 0))
    previous = _read_block(buffer, head)
    jump, jump_index, last = head, previous.index, previous.records[-1]
    if previous.jump is not None:
        far = _read_block(buffer, previous.jump)
        if far.jump is not None and previous.index - previous.jump_index == far.index - far.jump_index:
            # Two spans of equal length behind us: jump over both.
            jump, jump_index, last = far.jump, far.jump_index, _read_block(buffer, far.jump).records[-1]
    block = _Block(previous.index + 1, content, head, jump, jump_index, last.number, last.seq)
    return _add_block(buffer, block)


def _add_block(buffer: nodes.NodeBuffer, block: _Block) -> BlobId:
    fields = (
        FORMAT,
        block.index,
        _raw(block.previous),
        _raw(block.jump),
        block.jump_index,
        block.jump_last,
        block.jump_seq,
        [_encode_record(record) for record in block.records],
    )
    return buffer.add(msgpack.packb(fields, use_bin_type=True))


def _read_block(reader: BlobReader, identifier: BlobId, at_most: int | None = None) -> _Block:
    """Return a block, with at most so many of its records: decoding the first alone is much faster."""
    try:
        version, index, previous, jump, *rest, encoded = msgpack.unpackb(reader.get(identifier), use_list=False)
        _check_format(version)
        jump_index, jump_last, jump_seq = rest
        decoded = tuple(_decode_record(fields) for fields in encoded[:at_most])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt(f"blob {identifier} is not a block of a path's history") from error
    return _Block(index, decoded, _id(previous), _id(jump), jump_index, jump_last, jump_seq)


def _encode_history(history: PathHistory) -> bytes:
    tail = [_encode_record(record) for record in history.tail]
    fields = (FORMAT, history.last, history.kinds, _raw(history.head), tail)
    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return packed


def decode_history(data: bytes) -> PathHistory:
    """Decode a value of the map.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: they are none.
    """
    try:
        last, kinds, head, tail = _fields(data)
        return PathHistory(last, _id(head), tuple(_decode_record(fields) for fields in tail), kinds)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt(f"not a path's history: {data[:16].hex()}") from error


def _fields(data: bytes) -> tuple[Any, ...]:
    version, *fields = msgpack.unpackb(data, use_list=False)
    _check_format(version)
    return tuple(fields)


def contents_in(data: bytes) -> tuple[list[Content], BlobId | None]:
    """Return the contents that a value of the map refers to directly, and its newest block.

    For iterating over all histories: records are not decoded, which would take most of the time.

    Raises:
        UnsupportedFormat, Corrupt: as of `decode_history`.
    """
    try:
        _, _, head, tail = _fields(data)
        bodies = (fields[_BODY] for fields in tail)
        return [_decode_content(body) for body in bodies if isinstance(body, tuple)], _id(head)
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise Corrupt(f"not a path's history: {data[:16].hex()}") from error


def _decode_content(body: tuple[int, bytes]) -> Content:
    size, raw = body
    return Content(from_raw(raw), size, chunked=size > WHOLE_BYTES)


def kinds_in(data: bytes) -> int:
    """Return the kinds of a value of the map, as in `PathHistory.kinds`; records are not decoded.

    0 for a value without versions: it only records which numbers were given out.

    Raises:
        UnsupportedFormat, Corrupt: as of `decode_history`.
    """
    try:
        _, kinds, _, _ = _fields(data)
        return int(kinds)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt(f"not a path's history: {data[:16].hex()}") from error


def _encode_record(record: Record) -> tuple[object, ...]:
    body: object = None
    if record.content is not None:
        body = (record.content.size, to_raw(record.content.id))
    elif record.target is not None:
        body = record.target
    return (
        record.number,
        record.seq,
        record.timestamp_ms,
        _OP_CODES[record.op],
        record.turn,
        _KIND_CODES[record.kind],
        body,
        record.source,
        record.mode,
    )


def _decode_record(fields: tuple[Any, ...]) -> Record:
    number, seq, timestamp_ms, op, turn, kind, body, source, mode = fields
    content = target = None
    if isinstance(body, tuple):
        content = _decode_content(body)
    elif isinstance(body, bytes):
        target = body
    try:
        return Record(number, seq, timestamp_ms, OPS[op], turn, _KINDS[kind], content, target, source, None, mode)
    except IndexError as error:
        message = f"a path's history has an operation {op} or kind {kind} of a newer version"
        raise UnsupportedFormat(message) from error


def _check_format(version: object) -> None:
    if isinstance(version, int) and version > FORMAT:
        raise UnsupportedFormat(f"a path's history has format {version}; this code reads {FORMAT}")
    if version != FORMAT:
        raise ValueError(version)


def _raw(identifier: BlobId | None) -> bytes | None:
    return to_raw(identifier) if identifier is not None else None


def _id(raw: bytes | None) -> BlobId | None:
    return from_raw(raw) if raw is not None else None
