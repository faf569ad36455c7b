"""Verifies the contents of files: their blobs exist, have the right size, and are chunked canonically.

The end of a chunk depends on its own bytes, so each is checked once, whatever lists it is in: a file of a thousand
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
    """Checks contents, each blob once. Discard it after it raised.

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
        """By chunk, its size and whether another may follow it."""

    def check(self, content: Content) -> None:
        """Read the blobs of a content that were not read before.

        Raises:
            NotFound, Corrupt, Unavailable, UnsupportedFormat: as reading a blob does.
            Corrupt: its size is wrong, or it is not chunked canonically.
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
        """Check a chunk and return whether another may follow it."""
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
    """The range of the file that a node of a chunk list covers."""

    start: int
    """Where its first chunk begins, bytes."""
    closed: bool
    """Whether its last chunk ends at a cut, and not only because the file does."""
