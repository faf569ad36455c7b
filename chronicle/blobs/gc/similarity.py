"""Detection of similar blobs: versions of a file, of a directory's node, of a history.

Compressed side by side, the second of two versions costs little more than their difference. Similarity is estimated by
sketches (MinHash): the smallest checksums among a blob's pieces, which are its lines, or the items of a tree node. Two
blobs that share most pieces share most of their sketches. A wrong estimate only costs bytes.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final
from zlib import crc32

from chronicle.blobs.buffer import NODE_START

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["runs_of_similar", "sketch"]

_MINIMA: Final = 4
_CHECKSUM_BYTES: Final = 4
_SHARED: Final = 2
"""Two blobs with at least this many checksums in common are similar."""
_PIECE_BYTES: Final = 16
"""Shorter pieces are left out: an empty line, ``return None`` and a brace are in every source file."""
_ITEM: Final = b"\xc4"
"""The first byte of each key and value of a node: MessagePack's byte string of up to 255 bytes."""


def sketch(data: bytes) -> bytes:
    """Return a blob's sketch: up to `_MINIMA` checksums, 4 bytes each, ascending."""
    pieces = data.split(_ITEM if data.startswith(NODE_START) else b"\n")
    minima = nsmallest(_MINIMA, {crc32(piece) for piece in pieces if len(piece) >= _PIECE_BYTES})
    return b"".join(minimum.to_bytes(_CHECKSUM_BYTES, "big") for minimum in minima)


def runs_of_similar(
    found: list[tuple[bytes, int, bytes]], most_bytes: int, most: int
) -> Iterator[tuple[list[bytes], int]]:
    """Yield runs of the names of similar blobs, with the bytes of each run.

    Args:
        found: the sketch, size in bytes and name of each blob; sorted in place.
        most_bytes: the limit of a run of more than one blob.
        most: the most blobs of a run.
    """
    found.sort(key=_sketch_and_size)
    run: list[bytes] = []
    before: set[bytes] = set()
    total = 0
    for sketched, size, item in found:
        minima = [sketched[at : at + _CHECKSUM_BYTES] for at in range(0, len(sketched), _CHECKSUM_BYTES)]
        alike = len(before.intersection(minima)) >= min(_SHARED, len(minima))
        if run and not (alike and minima and total + size <= most_bytes and len(run) < most):
            yield run, total
            run, total = [], 0
        run.append(item)
        total += size
        before = set(minima)
    if run:
        yield run, total


def _sketch_and_size(one: tuple[bytes, int, bytes]) -> tuple[bytes, int]:
    return one[:2]
