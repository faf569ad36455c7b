"""The content of a file as blobs: small ones whole, large ones in chunks.

Up to `WHOLE_BYTES` the content is one blob. Above, it is cut by `chronicle.workspace.content.chunking`, and the chunks
are listed in a map of `chronicle.workspace.trees.nodes`, from the offset at which a chunk ends (8 bytes, big-endian) to
its length (4 bytes, big-endian) and raw id. So the list itself is split into blobs: a change in a file of 1 GiB
rewrites two or three list nodes and not 16,000 entries. Equal bytes give an equal `Content`, however they were written.

Holes of a file are not read (`chronicle.workspace.content.holes`): they are so many times the same chunk in the list.
Only the list grows with them, 13 KB for 64 MiB.
"""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from chronicle.blobs.ident import RAW_ID_BYTES, blob_id, from_raw, to_raw
from chronicle.blobs.port import get_many
from chronicle.errors import Corrupt
from chronicle.workspace.content.chunking import MAX_CHUNK_BYTES, chunks
from chronicle.workspace.content.holes import Pieces, write_sparsely
from chronicle.workspace.trees import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from _typeshed import WriteableBuffer

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = [
    "WHOLE_BYTES",
    "Chunk",
    "Content",
    "chunk_list",
    "chunks_in",
    "copy_to",
    "end_offset",
    "open",
    "read",
    "store_bytes",
    "store_changes",
    "store_file",
]

WHOLE_BYTES: Final = 64 * 1024
"""Content up to this size is one blob: chunking it would cost more than it could save."""
_OFFSET_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_BUFFERED_BYTES: Final = 64 * 1024
_TOGETHER: Final = 32
"""Chunks that are fetched at once when a file is read in order: 2 MiB."""
_AROUND_BYTES: Final = 2 * MAX_CHUNK_BYTES
"""How much is read at a time around a change."""
_EDITS: Final = 128 * 1024
"""Where more entries of a chunk list change, the list is made anew in order, without being held: 64 MiB of memory."""
_ZEROS: Final = blob_id(bytes(MAX_CHUNK_BYTES))
"""What the chunks of a hole are."""


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file, by reference."""

    id: BlobId
    """The blob of the bytes, or the root of the chunk list."""
    size: int
    """Bytes."""
    chunked: bool
    """Whether ``id`` is a chunk list; exactly when ``size`` is above `WHOLE_BYTES`."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a large file."""

    start: int
    """Where it begins in the file, bytes."""
    end: int
    """Where it ends, bytes."""
    id: BlobId
    """The blob of its bytes."""


def store_bytes(buffer: nodes.NodeBuffer, data: bytes) -> Content:
    """Add content to the buffer and return its reference."""
    if len(data) <= WHOLE_BYTES:
        return Content(buffer.add(data), len(data), chunked=False)
    return store_file(buffer, io.BytesIO(data))


def store_file(buffer: nodes.NodeBuffer, fileobj: BinaryIO) -> Content:
    """Add what can still be read from a file to the buffer and return its reference.

    Memory stays bounded if the buffer's is. What the file holds while it is read is what is stored: a file that
    changes meanwhile gives a mixture, consistent in itself. Costs in proportion to the data that is not in holes, and
    2 µs for each 256 KiB of holes.
    """
    head = _read_up_to(fileobj, WHOLE_BYTES + 1)
    if len(head) <= WHOLE_BYTES:
        return Content(buffer.add(head), len(head), chunked=False)
    pieces = Pieces(fileobj)

    def read_on(size: int) -> bytes | int:
        nonlocal head
        if head:
            part, head = head[:size], head[size:]
            return part
        return pieces.read(size)

    end = 0

    def entries() -> Iterator[tuple[bytes, bytes]]:
        nonlocal end
        for end, value in _stored(buffer, chunks(read_on), 0):
            yield _key(end), value

    root = nodes.build(buffer, entries())
    assert root is not None
    return Content(root, end, chunked=True)


def store_changes(
    buffer: nodes.NodeBuffer, old: Content, fileobj: BinaryIO, dirty: Iterable[tuple[int, int]]
) -> Content:
    """Return what `store_file` would for the whole file, reading it only around what changed since ``old``.

    Costs in proportion to what changed, a chunk or two for each range, and not to the file's size: a cut depends only
    on the bytes since the cut before, so once a new cut falls on an old one behind a change, what follows is as it was.
    Where that changes a large part of a very long list, it is `store_file`.

    Args:
        buffer: has, or finds, the chunk list of ``old``.
        old: the content before.
        fileobj: the whole file as it is now, seekable.
        dirty: ranges ``(start, end)`` in bytes outside which the file is as before; what lies beyond the shorter of
            the two sizes need not be named.

    Raises:
        NotFound, Corrupt, Unavailable: the chunk list of ``old`` could not be read.
    """
    size = fileobj.seek(0, io.SEEK_END)
    if not old.chunked or size <= WHOLE_BYTES:
        fileobj.seek(0)
        return store_file(buffer, fileobj)
    ranges = [(start, min(end, size)) for start, end in dirty if start < min(end, size)]
    if size > old.size:
        ranges.append((old.size - 1, size))  # the old last chunk ended because the file did
    elif size < old.size:
        ranges.append((size - 1, size))
    pending = deque(sorted((min(start, old.size - 1), end) for start, end in ranges))
    removed: dict[bytes, bytes | None] = {}
    added: dict[bytes, bytes | None] = {}
    pieces = Pieces(fileobj)
    while pending:
        start, until = pending.popleft()
        before = chunk_list(buffer, old, start)
        first = next(before, None)
        if first is None:
            raise Corrupt(f"the chunk list {old.id} has nothing for offset {start} of {old.size}")
        removed[_key(first.end)] = None
        at, old_end = first.start, first.end
        pieces.seek(at)
        for at, value in _stored(buffer, chunks(pieces.read, _AROUND_BYTES), first.start):
            added[_key(at)] = value
            while pending and pending[0][0] < at:
                until = max(until, pending.popleft()[1])
            while old_end < at:
                following = next(before, None)
                if following is None:
                    break
                removed[_key(following.end)] = None
                old_end = following.end
            if at >= until and at == old_end:
                break
            if len(added) + len(removed) > _EDITS:
                fileobj.seek(0)
                return store_file(buffer, fileobj)
        if at >= size:
            removed.update((_key(rest.end), None) for rest in before)
    root = nodes.update(buffer, old.id, {**removed, **added})
    assert root is not None
    return Content(root, size, chunked=True)


def chunk_list(reader: BlobReader, content: Content, offset: int = 0) -> Iterator[Chunk]:
    """Yield the chunks of chunked content, from the one that holds ``offset`` on. Reads list nodes as it goes."""
    for key, value in nodes.items(reader, content.id, after=_key(offset)):
        yield _chunk(key, value)


def chunks_in(node: nodes.Node) -> list[Chunk]:
    """Return the chunks that a node of level 0 of a chunk list names.

    Raises:
        Corrupt: it is no such node.
    """
    return [_chunk(key, value) for key, value in zip(node.keys, node.values, strict=True)]


def end_offset(key: bytes) -> int:
    """Return the offset, in bytes, that a key of a chunk list stands for."""
    return int.from_bytes(key, "big")


def read(reader: BlobReader, content: Content, offset: int = 0, size: int | None = None) -> bytes:
    """Return the bytes from an offset on, at most ``size`` of them (all that follow if ``None``).

    Raises:
        NotFound: a blob is missing.
        Corrupt: a blob, or the chunk list, is not what it was.
        Unavailable: the store could not be reached.
    """
    end = content.size if size is None else min(content.size, offset + size)
    if offset >= end:
        return b""
    if not content.chunked:
        data = reader.get(content.id)
        if len(data) != content.size:
            raise Corrupt(f"blob {content.id} has {len(data)} bytes, its entry says {content.size}")
        return data[offset:end]
    parts = []
    at = offset
    for chunk in chunk_list(reader, content, offset):
        if chunk.start > at:
            break
        data = reader.get(chunk.id)
        if len(data) != chunk.end - chunk.start:
            raise Corrupt(
                f"chunk {chunk.id} of {content.id} has {len(data)} bytes, its list says {chunk.end - chunk.start}"
            )
        parts.append(data[at - chunk.start : end - chunk.start])
        at = chunk.end
        if at >= end:
            return b"".join(parts)
    raise Corrupt(f"the chunk list {content.id} has nothing for offset {at} of {content.size}")


def copy_to(
    reader: BlobReader, content: Content, file: BinaryIO, report: Callable[[int], None] = lambda _size: None
) -> None:
    """Write content into an empty file, with holes for the blocks of zeros that a chunk begins or ends with.

    Args:
        reader: what is not in holes is read from it, several chunks at once.
        content: what is written.
        file: open for writing, at 0, and seekable.
        report: called with a number of bytes whenever so much more was written.

    Raises:
        NotFound, Corrupt, Unavailable: as `read`.
        OSError: it could not be written.
    """
    if not content.chunked:
        file.write(read(reader, content))
        report(content.size)
        return
    rest = chunk_list(reader, content)
    at = 0
    while batch := list(islice(rest, _TOGETHER)):
        found = _get_chunks(reader, content, [chunk for chunk in batch if chunk.id != _ZEROS])
        for chunk in batch:
            if chunk.start != at:
                break
            if chunk.id == _ZEROS:
                file.seek(chunk.end)
            else:
                write_sparsely(file, found[chunk.id])
            at = chunk.end
        report(at - batch[0].start)
    if at != content.size:
        raise Corrupt(f"the chunk list {content.id} has nothing for offset {at} of {content.size}")
    file.truncate(content.size)


def open(reader: BlobReader, content: Content) -> BinaryIO:  # noqa: A001 - read as content.open
    """Return the content as a seekable file, read-only; blobs are fetched as they are read."""
    return cast("BinaryIO", io.BufferedReader(_ContentFile(reader, content), _BUFFERED_BYTES))


class _ContentFile(io.RawIOBase):
    """The raw file behind `open`; keeps the last chunk, and fetches several at once when it is read in order."""

    def __init__(self, reader: BlobReader, content: Content) -> None:
        super().__init__()
        self._reader = reader
        self._content = content
        self._at = 0
        self._start = 0
        self._data = b""
        self._coming: deque[tuple[int, bytes]] = deque()
        """Chunks after the last one, and where they start."""
        self._rest: Iterator[Chunk] = iter(())
        self._together = 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._content.size}[whence]
        if base + offset < 0:
            msg = f"cannot seek to {base + offset}"
            raise OSError(22, msg)
        self._at = base + offset
        return self._at

    def readinto(self, into: WriteableBuffer) -> int:
        target = memoryview(into).cast("B")
        if self._at >= self._content.size or not target:
            return 0
        if not self._start <= self._at < self._start + len(self._data):
            self._fetch()
        part = self._data[self._at - self._start : self._at - self._start + len(target)]
        target[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _fetch(self) -> None:
        if not self._content.chunked:
            self._start, self._data = 0, read(self._reader, self._content)
            return
        if not (self._coming and self._coming[0][0] == self._at):
            if self._data and self._at == self._start + len(self._data):
                self._together = min(2 * self._together, _TOGETHER)
            else:
                self._rest = chunk_list(self._reader, self._content, self._at)
                self._together = 1
            try:
                self._coming = self._fetched()
            except BaseException:
                self._data = b""  # the list may have been read further than the chunks: the next time it is read anew
                raise
        self._start, self._data = self._coming.popleft()

    def _fetched(self) -> deque[tuple[int, bytes]]:
        """Return the next chunks and where they start."""
        chunks = list(islice(self._rest, self._together))
        if not chunks or chunks[0].start > self._at:
            raise Corrupt(
                f"the chunk list {self._content.id} has nothing for offset {self._at} of {self._content.size}"
            )
        found = _get_chunks(self._reader, self._content, chunks)
        return deque((chunk.start, found[chunk.id]) for chunk in chunks)


def _get_chunks(reader: BlobReader, content: Content, chunks: list[Chunk]) -> Mapping[BlobId, bytes]:
    """Return the bytes of chunks by id, each fetched once and as long as the list says."""
    found: Mapping[BlobId, bytes] = (
        get_many(reader, list(dict.fromkeys(chunk.id for chunk in chunks))) if chunks else {}
    )
    for chunk in chunks:
        if len(found[chunk.id]) != chunk.end - chunk.start:
            raise Corrupt(
                f"chunk {chunk.id} of {content.id} has {len(found[chunk.id])} bytes, its list says "
                f"{chunk.end - chunk.start}"
            )
    return found


def _stored(buffer: nodes.NodeBuffer, found: Iterator[bytes | int], start: int) -> Iterator[tuple[int, bytes]]:
    """Add chunks to the buffer and yield where each ends and its value in the list; see `chunks`."""
    zeros = b""
    for chunk in found:
        if isinstance(chunk, int):
            if not zeros:
                zeros = _value(MAX_CHUNK_BYTES, buffer.add(bytes(MAX_CHUNK_BYTES)))
            for _ in range(chunk):
                start += MAX_CHUNK_BYTES
                yield start, zeros
        else:
            start += len(chunk)
            yield start, _value(len(chunk), buffer.add(chunk))


def _read_up_to(fileobj: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0:
        part = fileobj.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _key(end: int) -> bytes:
    return end.to_bytes(_OFFSET_BYTES, "big")


def _value(length: int, identifier: BlobId) -> bytes:
    return length.to_bytes(_LENGTH_BYTES, "big") + to_raw(identifier)


def _chunk(key: bytes, value: bytes) -> Chunk:
    if len(key) != _OFFSET_BYTES or len(value) != _LENGTH_BYTES + RAW_ID_BYTES:
        raise Corrupt(f"a chunk list has an entry of {len(key)} and {len(value)} bytes")
    end = end_offset(key)
    return Chunk(end - int.from_bytes(value[:_LENGTH_BYTES], "big"), end, from_raw(value[_LENGTH_BYTES:]))
