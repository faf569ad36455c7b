"""Catalogs map blobs to their places: the part that is common to all media.

A catalog is derived from the packs, the only source of truth: it may be lost or outdated, and is then rebuilt. It
has *segments* (`chronicle.blobs.packs.segments`), which cover many packs, and *fresh* entries of packs that no segment
covers yet. `chronicle.blobs.packs.local_catalog` and `chronicle.blobs.packs.linked_catalog` implement it. Not safe to
share between threads: the store locks it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.blobs.packs import pack_format
from chronicle.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from chronicle.blobs.media.objects import Objects
    from chronicle.blobs.packs.pack_format import Links, PackEntry, PackIndex
    from chronicle.blobs.packs.segments import Segment

__all__ = [
    "INDEX_FOLDER",
    "KEY_MARK",
    "PACK_FOLDER",
    "TAIL_BYTES",
    "Catalog",
    "PackEnd",
    "Places",
    "check_pack",
    "index_from",
    "pack_object",
    "read_pack_index",
    "read_pack_indexes",
]

PACK_FOLDER: Final = "packs"
INDEX_FOLDER: Final = "index"
SEGMENT_SUFFIX: Final = ".idx"
KEY_MARK: Final = "Z"
"""The first letter of packs that are named by their key blob; no id that encodes a time begins with it."""
_SHARD_DIGITS: Final = 5
"""Packs are in folders by the first digits of their names, which encode a time: one folder for nine hours."""
_KEY_SHARD_DIGITS: Final = 2
TAIL_BYTES: Final = 64 * 1024
"""The first read of a pack's end: it includes the whole index of up to 1,300 blobs."""


@dataclass(frozen=True, slots=True)
class PackEnd:
    """What the end of a pack was found to have."""

    name: str
    index: PackIndex | None
    """``None`` if it is damaged."""
    blobs: dict[bytes, bytes]
    """The blobs that are whole in it, by raw id, checked."""
    damage: str = ""
    is_cached: bool = False
    """Whether it was read from this node: the pack may be gone."""


class Catalog(ABC):
    """The places of a store's blobs.

    Args:
        objects: the medium.
        new_name: returns new names for segments.
    """

    def __init__(self, objects: Objects, new_name: Callable[[], str]) -> None:
        self._objects = objects
        self._new_name = new_name
        self._places = Places()

    def find(self, raw_id: bytes, avoiding: AbstractSet[str] = frozenset()) -> tuple[str, PackEntry] | None:
        """Return the name of a blob's pack and its entry there, without a refresh."""
        return self._places.find(raw_id, avoiding)

    @abstractmethod
    def refresh(self) -> None:
        """Find other writers' packs as far as that costs less than to store a blob twice."""

    @abstractmethod
    def look_for(self, raw_ids: Sequence[bytes]) -> None:
        """Find the packs of blobs that neither `find` nor `read_end` knows, as far as possible without `scan`."""

    def read_end(self, raw_key: bytes) -> PackEnd | None:  # noqa: ARG002 - where keys name packs
        """Read the end of the pack with a key, if there is one. May be called without the lock.

        Raises:
            Unavailable: the medium could not be reached.
        """
        return None

    def learn_end(self, raw_key: bytes, end: PackEnd) -> None:  # noqa: B027 - as above
        """Add the pack whose end was read."""

    @abstractmethod
    def renew(self) -> None:
        """Drop what may be outdated after a collection."""

    @abstractmethod
    def scan(self) -> None:
        """Find every pack of the store."""

    def links(self, key: bytes) -> Links:  # noqa: ARG002 - for media that announce packs otherwise
        """Return the links of a new pack.

        Args:
            key: the blob that a reader of the pack will look for first.
        """
        return pack_format.Links()

    def write(
        self,
        raw_key: bytes,  # noqa: ARG002 - names the pack where nothing announces it
        parts: list[bytes],
        avoiding: AbstractSet[str],  # noqa: ARG002 - a new name is in no list
    ) -> str:
        """Write a pack, durable on return.

        Args:
            raw_key: the raw id of the blob that a reader will look for first.
            parts: of the pack.
            avoiding: names that the pack must not have.

        Returns:
            its name.

        Raises:
            Unavailable: the medium could not store it.
        """
        name = self._new_name()
        self._objects.write(pack_object(name), parts)
        return name

    @abstractmethod
    def note(self, name: str, index: PackIndex, raw_key: bytes) -> None:
        """Add a pack that was just written, and announce it to other processes if that is cheap.

        Args:
            raw_key: as of `write`.
        """

    def note_read(self, raw_id: bytes) -> None:  # noqa: B027 - nothing to learn where packs have no links
        """Learn that a blob was read by itself from this node: a new pack may follow the one that it names.

        May be called without the lock.
        """

    def read_again(self, name: str, raw_id: bytes) -> bool:  # noqa: ARG002 - where a name is never given again
        """Read a pack's index again after a blob in it was found damaged; return whether an outdated one was known."""
        return False

    def forget(self, name: str) -> None:
        """Treat a pack as removed."""
        self._places.gone.add(name)

    @abstractmethod
    def replace(self, places: Iterable[tuple[str, PackEntry]], dropped: AbstractSet[str], listed_ms: int) -> None:
        """Rebuild the index from these places and from entries added since; then remove the dropped packs.

        Args:
            places: of all packs that there were at ``listed_ms``.
            dropped: the packs to remove.
            listed_ms: when the packs were listed, epoch milliseconds.

        The index omits them before the first of them is removed, so a reader that misses a pack finds the copies. They
        must not be added again, or writers would treat their blobs as present.

        Raises:
            Unavailable: it was interrupted. Another call continues.
        """

    def cover(self, places: Iterable[tuple[str, PackEntry]], packs: AbstractSet[str], listed_ms: int) -> None:  # noqa: B027 - where each pack is announced
        """Let others find the blobs of many packs without looking at each of them.

        Args:
            places: of the blobs.
            packs: the names of all packs that there were at ``listed_ms``.
            listed_ms: when the packs were listed, epoch milliseconds.

        Raises:
            Unavailable: the index could not be written.
        """

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield the known entries, each id once."""
        return self._places.entries()

    @property
    def damaged(self) -> Mapping[str, str]:
        """The packs with an unreadable index, and the reasons: their blobs are unknown."""
        return self._places.damaged


def pack_object(name: str) -> str:
    """Return the object name of a pack."""
    digits = _KEY_SHARD_DIGITS if name.startswith(KEY_MARK) else _SHARD_DIGITS
    return f"{PACK_FOLDER}/{name[:digits]}/{name}"


def read_pack_index(objects: Objects, name: str, size: int | None = None) -> PackIndex:
    """Return the index of a pack, read from the pack itself.

    Args:
        objects: the medium.
        name: the pack's.
        size: of the pack, bytes; by default the pack's end tells it.

    Raises:
        NotFound: no such pack.
        Corrupt: it is damaged.
        UnsupportedFormat: written by a newer version.
        Unavailable: the medium could not be reached.
    """
    tail = objects.read(pack_object(name), -TAIL_BYTES)
    return index_from(objects, name, size if size is not None else pack_format.pack_size(name, tail), tail)


def read_pack_indexes(
    objects: Objects, names: Sequence[str], sizes: Mapping[str, int]
) -> Iterator[tuple[str, PackIndex | NotFound | Corrupt]]:
    """Yield the indexes of packs, whose ends are read together; for a removed or damaged pack, the error.

    Args:
        objects: the medium.
        names: the packs'.
        sizes: of packs, bytes.

    Raises:
        UnsupportedFormat, Unavailable: as `read_pack_index`.
    """
    ends = [(pack_object(name), max(0, sizes[name] - TAIL_BYTES), min(sizes[name], TAIL_BYTES)) for name in names]
    for name, tail in zip(names, objects.read_many(ends), strict=True):
        try:
            yield name, tail if isinstance(tail, NotFound) else index_from(objects, name, sizes[name], tail)
        except (NotFound, Corrupt) as error:
            yield name, error


def check_pack(objects: Objects, name: str) -> None:
    """Check a pack except its blobs, which every read checks.

    Raises:
        NotFound, Corrupt, UnsupportedFormat, Unavailable: as `read_pack_index`.
    """
    at = pack_object(name)
    tail = objects.read(at, -TAIL_BYTES)
    is_whole = len(tail) < TAIL_BYTES
    size = len(tail) if is_whole else objects.size(at)
    index_from(objects, name, size, tail)
    size_head = len(pack_format.HEAD)
    pack_format.check_head(name, tail[:size_head] if is_whole else objects.read(at, 0, size_head), tail)


def index_from(objects: Objects, name: str, size: int, tail: bytes) -> PackIndex:
    """Return the index of a pack, given its last bytes; it is read if it is longer.

    Raises:
        Corrupt, UnsupportedFormat, NotFound, Unavailable: as `read_pack_index`.
    """
    at = pack_object(name)
    start = pack_format.index_start(name, size, tail)
    if size - start > len(tail):
        tail = objects.read(at, start)
    return pack_format.read_index(name, tail[len(tail) - (size - start) :])


class Places:
    """The known entries, searchable: segments and fresh entries."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.fresh: dict[bytes, tuple[str, PackEntry]] = {}
        self.gone: set[str] = set()
        self.damaged: dict[str, str] = {}
        self.renewed: dict[str, frozenset[bytes]] = {}
        """By name, the blobs of packs whose names others had before: an older index is wrong about them."""

    def counts(self, raw_id: bytes, name: str, avoiding: AbstractSet[str] = frozenset()) -> bool:
        """Whether a pack may have a blob, as an index says."""
        if name in self.gone or name in avoiding:
            return False
        return name not in self.renewed or raw_id in self.renewed[name]

    def find(self, raw_id: bytes, avoiding: AbstractSet[str] = frozenset()) -> tuple[str, PackEntry] | None:
        """Return a place of a blob outside of removed packs and those to avoid."""
        found = self.fresh.get(raw_id)
        if found is not None and self.counts(raw_id, found[0], avoiding):
            return found
        for segment in self.segments:
            found = segment.find(raw_id)
            if found is not None and self.counts(raw_id, found[0], avoiding):
                return found
        return None

    def add(self, name: str, entries: list[PackEntry]) -> None:
        """Add the entries of a pack. A later place replaces an earlier one, whose pack may be condemned."""
        for entry in entries:
            self.fresh[entry.raw_id] = (name, entry)

    def add_lacking(self, name: str, entries: list[PackEntry]) -> None:
        """Add those entries of a pack whose fresh place no longer counts."""
        for entry in entries:
            place = self.fresh.get(entry.raw_id)
            if place is None or not self.counts(entry.raw_id, place[0]):
                self.fresh[entry.raw_id] = (name, entry)

    def read(self, objects: Objects, name: str) -> list[PackEntry] | None:
        """Add a pack from its own index; ``None`` if it is removed or damaged."""
        index = self.take(name, lambda: read_pack_index(objects, name))
        return index.entries if index is not None else None

    def take(self, name: str, read: Callable[[], PackIndex]) -> PackIndex | None:
        """Add a pack from the index that ``read`` returns; ``None`` if it is removed or damaged."""
        try:
            index = read()
        except NotFound:
            return None
        except Corrupt as error:
            self.damaged[name] = str(error)
            return None
        self.damaged.pop(name, None)
        self.add(name, index.entries)
        return index

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield one place for each id."""
        for raw_id in list(self.fresh):
            found = self.find(raw_id)
            if found is not None:
                yield found
        for number, segment in enumerate(self.segments):
            for place in segment.entries():
                raw_id = place[1].raw_id
                if raw_id in self.fresh or any(earlier.find(raw_id) for earlier in self.segments[:number]):
                    continue
                if self.counts(raw_id, place[0]):
                    yield place
