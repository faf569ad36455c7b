"""The stored form of snapshots: retention, and how bodies share structure. Pure.

A body is cut into content-defined chunks. Chunks of the branch's newest snapshot are referenced; new chunks are
compressed together into new *packs*. A body is then a list of runs ``(pack, offset, length)``, so a body that grew a
little costs little, and reading it reads few rows. A pack that no kept snapshot references is dropped. New snapshots do
not reference a pack of which the newest snapshot uses less than half, so such a pack is dropped in time.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import zstandard
from blake3 import blake3

from chronicle.errors import Corrupt, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Kept", "Manifest", "Pack", "Plan", "Run", "kept_seqs", "open_pack", "plan"]

_MIN_CHUNK: Final = 1 << 10
_MEAN_CHUNK: Final = 4 << 10
_MAX_CHUNK: Final = 16 << 10
_MAX_PACK: Final = 4 << 20
"""A pack is always read whole, even for one chunk."""
_MAX_BODY: Final = 1 << 30
_ZSTD_LEVEL: Final = 3
_RAW: Final = b"\0"
_ZSTD: Final = b"\1"
_RUN: Final = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` bytes from ``offset`` of a pack."""

    pack: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The runs that make up a body."""

    runs: tuple[Run, ...]

    def to_bytes(self) -> bytes:
        """Return the stored form: pack, offset and length of each run, 32 bits each, little-endian."""
        return b"".join(_RUN.pack(run.pack, run.offset, run.length) for run in self.runs)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read the stored form.

        Raises:
            Corrupt: it is not one.
        """
        if len(data) % _RUN.size:
            raise Corrupt("a snapshot's manifest was cut off")
        return cls(tuple(Run(*numbers) for numbers in _RUN.iter_unpack(data)))

    def packs(self) -> set[int]:
        """Return the numbers of the packs that the runs reference."""
        return {run.pack for run in self.runs}

    def body(self, load: Callable[[int], bytes]) -> bytes:
        """Return the body.

        Args:
            load: returns a pack's content by its number.
        """
        content = {pack: load(pack) for pack in self.packs()}
        return b"".join(content[run.pack][run.offset : run.offset + run.length] for run in self.runs)


@dataclass(frozen=True, slots=True)
class Pack:
    """New chunks, to be stored under a number."""

    number: int
    size: int
    """Length of its content."""
    data: bytes
    """The content, compressed if that makes it smaller; `open_pack` returns it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The branch's newest snapshot, whose chunks a new one may reference."""

    body: bytes
    manifest: Manifest
    pack_sizes: Mapping[int, int]
    """The size of each pack in the manifest."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Stored form of a body."""

    manifest: Manifest
    packs: tuple[Pack, ...]


def plan(body: bytes, kept: Kept | None, first_pack: int) -> Plan:
    """Plan how to store a body.

    Args:
        kept: the newest snapshot of the branch, if it has one.
        first_pack: the first free pack number of the branch; new packs are numbered from there.

    Raises:
        InvalidInput: the body is larger than 1 GiB.
    """
    if len(body) > _MAX_BODY:
        raise InvalidInput(f"a snapshot of {len(body)} bytes is over the limit of {_MAX_BODY}")
    known = _known_chunks(kept) if kept is not None else {}
    runs: list[Run] = []
    packs: list[Pack] = []
    fresh: list[bytes] = []
    number, size = first_pack, 0
    for digest, offset, length in _chunks(body):
        run = known.get(digest)
        if run is None:
            if size + length > _MAX_PACK:
                packs.append(_make_pack(number, fresh))
                number, size, fresh = number + 1, 0, []
            run = known[digest] = Run(number, size, length)
            fresh.append(body[offset : offset + length])
            size += length
        last = runs[-1] if runs else None
        if last is not None and last.pack == run.pack and last.offset + last.length == run.offset:
            runs[-1] = Run(run.pack, last.offset, last.length + length)
        else:
            runs.append(run)
    if fresh:
        packs.append(_make_pack(number, fresh))
    return Plan(Manifest(tuple(runs)), tuple(packs))


def open_pack(data: bytes) -> bytes:
    """Return a stored pack's content.

    Raises:
        Corrupt: it cannot be decompressed.
    """
    codec, content = data[:1], data[1:]
    if codec == _RAW:
        return content
    try:
        if codec == _ZSTD:
            return zstandard.ZstdDecompressor().decompress(content, max_output_size=_MAX_PACK)
    except zstandard.ZstdError as error:
        raise Corrupt(f"a pack of a snapshot cannot be decompressed: {error}") from error
    raise Corrupt("a pack of a snapshot has an unknown codec")


def kept_seqs(seqs: Iterable[int]) -> set[int]:
    """Return the snapshots of a branch to retain.

    These are the newest, the oldest, and between them a number that grows with the logarithm of the branch's length.
    One is dropped if the gap that it leaves is not longer than the distance from there to the newest. So opening any
    seq replays at most as many events as came after it, and the age at least doubles over three retained snapshots.
    """
    ordered = sorted(set(seqs))
    if not ordered:
        return set()
    newest = ordered[-1]
    kept = ordered[:1]
    for seq, following in pairwise(ordered[1:]):
        if following - kept[-1] > newest - following:
            kept.append(seq)
    return {*kept, newest}


def _chunks(body: bytes) -> Iterable[tuple[bytes, int, int]]:
    """Yield digest, offset and length of each chunk."""
    from fastcdc import fastcdc  # noqa: PLC0415  it brings a command-line library along; readers need neither

    for chunk in fastcdc(body, _MIN_CHUNK, _MEAN_CHUNK, _MAX_CHUNK):
        offset, length = chunk.offset, chunk.length
        yield blake3(body[offset : offset + length]).digest(length=16), offset, length


def _known_chunks(kept: Kept) -> dict[bytes, Run]:
    """Return the places of a body's chunks, except those in mostly unused packs."""
    live: Counter[int] = Counter()
    for run in kept.manifest.runs:
        live[run.pack] += run.length
    known: dict[bytes, Run] = {}
    runs = list(kept.manifest.runs)
    at, start = 0, 0
    for digest, offset, length in _chunks(kept.body):
        while start + runs[at].length <= offset:
            start += runs[at].length
            at += 1
        run, inside = runs[at], offset - start
        # A chunk lies in one run, unless it was cut with other parameters than today's.
        if inside + length <= run.length and 2 * live[run.pack] >= kept.pack_sizes[run.pack]:
            known[digest] = Run(run.pack, run.offset + inside, length)
    return known


def _make_pack(number: int, chunks: list[bytes]) -> Pack:
    content = b"".join(chunks)
    compressed = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(content)
    data = _ZSTD + compressed if len(compressed) < len(content) else _RAW + content
    return Pack(number, len(content), data)
