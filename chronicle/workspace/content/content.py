"""The content of files as blobs: small ones whole, large ones in chunks; storing it and reading it.

Up to `WHOLE_BYTES` the content is one blob. Above, it is cut by `chronicle.workspace.content.chunking` and listed
(`chronicle.workspace.content.chunk_list`). Equal bytes give an equal `Content`, however they were written.

Holes of a file are not read (`chronicle.workspace.content.holes`): each is a number of equal chunks in the list. Only
the list grows with them, 13 KB for 64 MiB.
"""

from __future__ import annotations

import io
from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from chronicle.blobs.ident import blob_id
from chronicle.blobs.port import get_many
from chronicle.errors import Corrupt
from chronicle.system.raw_file import RawFile
from chronicle.workspace.content.chunk_list import (
    WHOLE_BYTES,
    Chunk,
    Content,
    chunk_list,
    chunks_in,
    encode_end,
    encode_place,
    end_offset,
)
from chronicle.workspace.content.chunking import MAX_CHUNK_BYTES, chunks
from chronicle.workspace.content.holes import SparseReader, write_sparsely
from chronicle.workspace.content.lazy_reader import Chunks, LazyFile
from chronicle.workspace.trees import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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

_BUFFERED_BYTES: Final = 64 * 1024
_TOGETHER: Final = 32
"""Chunks that are fetched at once when a range is read: 2 MiB."""
_AHEAD_BYTES: Final = 2 * 1024 * 1024
"""Fetched at once when an open file is read in order."""
_KEPT_BYTES: Final = _AHEAD_BYTES + 2 * MAX_CHUNK_BYTES
"""Cached by an open file: what is fetched ahead, and the chunks at both ends of it."""
_AROUND_BYTES: Final = 2 * MAX_CHUNK_BYTES
"""The size of one read around a change."""
_EDITS: Final = 128 * 1024
"""If more entries of a chunk list change, the list is rebuilt in order with bounded memory: these take 64 MiB."""
_ZEROS: Final = blob_id(bytes(MAX_CHUNK_BYTES))
"""The chunk of a hole."""


def store_bytes(buffer: nodes.NodeBuffer, data: bytes) -> Content:
    """Add content to the buffer and return its reference."""
    if len(data) <= WHOLE_BYTES:
        return Content(buffer.add(data), len(data), chunked=False)
    return store_file(buffer, io.BytesIO(data))


def store_file(buffer: nodes.NodeBuffer, fileobj: BinaryIO) -> Content:
    """Add the rest of a file, from its position on, to the buffer and return its reference.

    Memory is bounded if the buffer's is. A file that changes while it is read gives a mixture, consistent in itself.
    The cost is proportional to the data outside of holes, plus 2 µs for each 256 KiB of holes.
    """
    head = _read_up_to(fileobj, WHOLE_BYTES + 1)
    if len(head) <= WHOLE_BYTES:
        return Content(buffer.add(head), len(head), chunked=False)
    source = SparseReader(fileobj)

    def read_on(size: int) -> bytes | int:
        nonlocal head
        if head:
            part, head = head[:size], head[size:]
            return part
        return source.read(size)

    end = 0

    def entries() -> Iterator[tuple[bytes, bytes]]:
        nonlocal end
        for end, value in _stored(buffer, chunks(read_on), 0):
            yield encode_end(end), value

    root = nodes.build(buffer, entries())
    assert root is not None
    return Content(root, end, chunked=True)


def store_changes(
    buffer: nodes.NodeBuffer, old: Content, fileobj: BinaryIO, dirty: Iterable[tuple[int, int]]
) -> Content:
    """Return what `store_file` would for the whole file, reading it only around the changes since ``old``.

    The cost is proportional to the changes, a chunk or two for each range, and not to the file's size: a cut depends
    only on the bytes since the cut before it, so once a new cut falls on an old one behind a change, the rest is
    unchanged. If a large part of a very long list changes, it falls back to `store_file`.

    Args:
        buffer: can read the chunk list of ``old``.
        old: the content before.
        fileobj: the whole file as it is now, seekable.
        dirty: ranges ``(start, end)`` in bytes outside of which the file is unchanged; bytes beyond the shorter of the
            two sizes need not be included.

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
    source = SparseReader(fileobj)
    while pending:
        start, until = pending.popleft()
        before = chunk_list(buffer, old, start)
        first = next(before, None)
        if first is None:
            raise Corrupt(f"the chunk list {old.id} has nothing for offset {start} of {old.size}")
        removed[encode_end(first.end)] = None
        at, old_end = first.start, first.end
        source.seek(at)
        for at, value in _stored(buffer, chunks(source.read, _AROUND_BYTES), first.start):
            added[encode_end(at)] = value
            while pending and pending[0][0] < at:
                until = max(until, pending.popleft()[1])
            while old_end < at:
                following = next(before, None)
                if following is None:
                    break
                removed[encode_end(following.end)] = None
                old_end = following.end
            if at >= until and at == old_end:
                break
            if len(added) + len(removed) > _EDITS:
                fileobj.seek(0)
                return store_file(buffer, fileobj)
        if at >= size:
            removed.update((encode_end(rest.end), None) for rest in before)
    root = nodes.update(buffer, old.id, {**removed, **added})
    assert root is not None
    return Content(root, size, chunked=True)


def read(reader: BlobReader, content: Content, offset: int = 0, size: int | None = None) -> bytes:
    """Return the bytes from an offset on, at most ``size`` of them (all the rest if ``None``).

    Raises:
        NotFound: a blob is missing.
        Corrupt: a blob, or the chunk list, is damaged.
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
    rest = takewhile(lambda chunk: chunk.start < end, chunk_list(reader, content, offset))
    while batch := list(islice(rest, _TOGETHER)):
        found = _get_chunks(reader, content, batch)
        for chunk in batch:
            if chunk.start > at:
                raise _gap(content, at)
            parts.append(found[chunk.id][at - chunk.start : end - chunk.start])
            at = chunk.end
    if at < end:
        raise _gap(content, at)
    return b"".join(parts)


def copy_to(
    reader: BlobReader, content: Content, file: BinaryIO, report: Callable[[int], None] = lambda _size: None
) -> None:
    """Write content into an empty file, with holes for the blocks of zeros that a chunk begins or ends with.

    Args:
        reader: reads the chunks outside of holes, several at once.
        content: the content to write.
        file: open for writing, at 0, and seekable.
        report: called with the number of bytes written since its last call.

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
        raise _gap(content, at)
    file.truncate(content.size)


def open(reader: BlobReader, content: Content) -> BinaryIO:  # noqa: A001 - read as content.open
    """Return the content as a seekable file, read-only; blobs are fetched as they are read, ahead if in order."""
    return cast("BinaryIO", io.BufferedReader(_ContentFile(reader, content), _BUFFERED_BYTES))


class _ContentFile(RawFile):
    """The raw file behind `open`: a `LazyFile` with a position and chunks of its own."""

    def __init__(self, reader: BlobReader, content: Content) -> None:
        super().__init__()
        self._reader = reader
        self._content = content
        chunks = Chunks(reader, _KEPT_BYTES, _AHEAD_BYTES, reads_ahead=False)
        self._file = LazyFile(reader, chunks, content)

    def _size(self) -> int:
        return self._content.size

    def _read(self, size: int) -> bytes:
        return self._file.read(self._at, min(size, _AHEAD_BYTES))  # a large read is several: memory is bounded

    def readall(self) -> bytes:
        data = read(self._reader, self._content, self._at)
        self._at += len(data)
        return data


def _gap(content: Content, offset: int) -> Corrupt:
    return Corrupt(f"the chunk list {content.id} has nothing for offset {offset} of {content.size}")


def _get_chunks(reader: BlobReader, content: Content, chunks: list[Chunk]) -> Mapping[BlobId, bytes]:
    """Return the bytes of chunks by id, each fetched once; checks their lengths against the list."""
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
    """Add chunks to the buffer and yield the end of each and its value in the list; see `chunks`."""
    zeros = b""
    for chunk in found:
        if isinstance(chunk, int):
            if not zeros:
                zeros = encode_place(MAX_CHUNK_BYTES, buffer.add(bytes(MAX_CHUNK_BYTES)))
            for _ in range(chunk):
                start += MAX_CHUNK_BYTES
                yield start, zeros
        else:
            start += len(chunk)
            yield start, encode_place(len(chunk), buffer.add(chunk))


def _read_up_to(fileobj: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0:
        part = fileobj.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
