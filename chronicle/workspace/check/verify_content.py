"""Whether the contents of files are there, of their size, and cut into the very chunks that their bytes call for.

Where a chunk ends depends on its own bytes, so each is looked at once, whatever lists it is in: a file of a thousand
versions costs what is stored of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chronicle.errors import Corrupt
from chronicle.workspace.check.verify_maps import MapChecker
from chronicle.workspace.content.chunking import first_cut
from chronicle.workspace.content.content import chunks_in, end_offset

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Chunk, Content
    from chronicle.workspace.trees.nodes import Node

__all__ = ["ContentChecker"]


class ContentChecker:
    """Checks contents, each blob once. After it raised, drop it.

    Args:
        reader: must check what it returns, as a blob store does.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._lists = MapChecker(reader)
        self._spans: dict[BlobId, _Span] = {}
        """Of the nodes of chunk lists."""
        self._sizes: dict[BlobId, int] = {}
        """Of contents of one blob."""
        self._closed: dict[BlobId, tuple[int, bool]] = {}
        """Of chunks, their size and whether others may follow them."""

    def check(self, content: Content) -> None:
        """Read what a content consists of and was not read before.

        Raises:
            NotFound, Corrupt, Unavailable, UnsupportedFormat: as reading a blob does.
            Corrupt: it is not of its size, or not cut as its bytes call for.
        """
        if not content.chunked:
            size = self._sizes.get(content.id)
            if size is None:
                size = self._sizes[content.id] = len(self._reader.get(content.id))
            if size != content.size:
                raise Corrupt(f"blob {content.id} has {size} bytes and should have {content.size}")
            return
        for identifier, node in self._lists.check(content.id):
            self._spans[identifier] = self._joined(identifier, node) if node.level else self._leaf(node)
        end = end_offset(self._lists.last_key(content.id))
        if self._spans[content.id].start or end != content.size:
            raise Corrupt(f"its list of chunks {content.id} is not one of {content.size} bytes")

    def _leaf(self, node: Node) -> _Span:
        found = chunks_in(node)
        closed = [self._check_chunk(chunk) for chunk in found]
        for index in range(1, len(found)):
            if found[index].start != found[index - 1].end or not closed[index - 1]:
                raise Corrupt(f"chunk {found[index].id} does not begin where the one before it ends")
        return _Span(found[0].start, closed[-1])

    def _joined(self, identifier: BlobId, node: Node) -> _Span:
        spans = [self._spans[node.child(index)] for index in range(len(node.keys))]
        for index in range(1, len(spans)):
            if spans[index].start != end_offset(node.keys[index - 1]) or not spans[index - 1].closed:
                raise Corrupt(f"below node {identifier} a chunk does not begin where the one before it ends")
        return _Span(spans[0].start, spans[-1].closed)

    def _check_chunk(self, chunk: Chunk) -> bool:
        """Read a chunk and return whether others may follow it."""
        known = self._closed.get(chunk.id)
        if known is None:
            data = self._reader.get(chunk.id)
            cut = first_cut(data)
            if not data or (cut is not None and cut != len(data)):
                raise Corrupt(f"chunk {chunk.id} is not cut as its bytes call for")
            known = self._closed[chunk.id] = (len(data), cut is not None)
        size, closed = known
        if size != chunk.end - chunk.start:
            raise Corrupt(f"chunk {chunk.id} has {size} bytes and should have {chunk.end - chunk.start}")
        return closed


class _Span(NamedTuple):
    """What the node of a chunk list says of the file."""

    start: int
    """Where its first chunk begins, bytes."""
    closed: bool
    """Whether its last chunk ends where its bytes say, and not because the file does."""
