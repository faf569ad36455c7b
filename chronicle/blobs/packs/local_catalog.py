"""The catalog of a store on a local disk: mapped segments, and a log through which processes announce new packs.

``index/log`` has a record for each pack that no segment covers; a writer appends one after its pack is in place. So a
check for new packs costs one ``stat``, and a new pack costs a read of its record. When the log reaches `_LOG_BYTES`, a
writer merges it into a segment and begins a new log. ``index/lock`` is held exclusively to append or replace, and
shared to read, so a reader sees a partial record only after a crash; packs are written without the lock.

All of this is derived data and is not synced: after a power loss a record may be missing or torn and a segment
truncated. Their checksums reveal this, and `LocalCatalog.scan` reads the packs themselves.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.catalog import INDEX_FOLDER, PACK_FOLDER, SEGMENT_SUFFIX, Catalog, pack_object
from chronicle.blobs.packs.pack_format import NAME_BYTES
from chronicle.blobs.packs.segments import Segment, build_segment
from chronicle.errors import Corrupt, NotFound, StorageRefused
from chronicle.system.atomic_files import replacing, sync_directory
from chronicle.system.locks import lock, unlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from chronicle.blobs.media.objects import LocalObjects
    from chronicle.blobs.packs.pack_format import PackEntry, PackIndex

__all__ = ["LocalCatalog"]

_LOG_BYTES: Final = 256 * 1024
"""About 5,000 blobs: the part of the index that is in private memory, and is read to open a store, stays below 2 MB."""
_TIER: Final = 4
"""A segment is merged with newer ones once they have a quarter of its size: each entry is rewritten only a few times,
and few segments are searched."""
_RECORD: Final = struct.Struct(">4sI8s")
_RECORD_MAGIC: Final = b"CHRL"
_HEADER_MAGIC: Final = b"CHRLOG\x01"
_HEADER_BYTES: Final = len(_HEADER_MAGIC) + NAME_BYTES


class LocalCatalog(Catalog):
    """The places of the blobs of a local store.

    Args:
        objects: the store's files.
        new_name: returns new names for segments.
    """

    def __init__(self, objects: LocalObjects, new_name: Callable[[], str]) -> None:
        super().__init__(objects, new_name)
        self._folder = objects.root / INDEX_FOLDER
        self._log = self._folder / "log"
        self._header = b""
        """The header of the log that was read; another header means another log."""
        self._read_to = 0
        """The offset up to which the log was read."""
        self._stamp: tuple[int, int, int] | None = None
        """Inode, size and change time of the log at the last read: if they are equal, nothing is new."""
        self._logged: set[str] = set()

    def refresh(self) -> None:
        """Read the records appended to the log since the last read; the whole index if it was replaced."""
        try:
            now = _stamp(self._log.stat())
        except FileNotFoundError:
            self.scan()  # no store yet, or its index was lost
            return
        if now == self._stamp:
            return
        with self._locked(shared=True):
            sound = self._catch_up()
        if not sound:
            with suppress(OSError):  # read-only: the sound records and the packs themselves suffice
                self._mend()

    def look_for(self, raw_ids: Sequence[bytes]) -> None:  # noqa: ARG002 - the log has all of them
        """Read what was appended to the log."""
        self.refresh()

    def renew(self) -> None:
        """List the packs."""
        self.scan()

    def scan(self) -> None:
        """List the packs and log the uncovered ones, from their own indexes."""
        if self._log.exists():
            self.refresh()
        else:
            segments = self._segments()
            self._forget_all()
            self._places.segments = segments
        listed = {name.rpartition("/")[2] for name in self._objects.names(PACK_FOLDER)}
        covered = set(self._logged)
        for segment in self._places.segments:
            covered.update(segment.pack_names())
        self._places.gone |= covered - listed
        for name in sorted(listed - covered):
            entries = self._places.read(self._objects, name)
            if entries is not None:
                self._append(name, entries)

    def note(self, name: str, index: PackIndex, raw_key: bytes) -> None:  # noqa: ARG002 - readers have the log
        """Add a pack that was just written, and log it for other processes."""
        self._places.add(name, index.entries)
        self._append(name, index.entries)

    def replace(
        self,
        places: Iterable[tuple[str, PackEntry]],
        dropped: AbstractSet[str],
        listed_ms: int,  # noqa: ARG002 - the log has what came since
    ) -> None:
        """Write one segment of these places, and another of the other known ones, without places in dropped packs.

        The dropped packs are removed under the same lock: a process that listed one of them before, and wants to log
        it, gets the lock afterwards and finds the pack missing.

        Raises:
            Unavailable: the index could not be written, or a pack not be removed.
        """
        covered: set[str] = set()

        def kept() -> Iterator[tuple[str, PackEntry]]:
            for place in places:
                if place[0] not in dropped:
                    covered.add(place[0])
                    yield place

        data = build_segment(kept())  # outside of the lock: a million blobs take seconds, and others would wait
        try:
            with self._locked(shared=False):
                if self._log.exists():  # without a log readers list the packs
                    self._rebuild(data, covered | dropped)
                for name in dropped:
                    self._objects.delete(pack_object(name))
        except OSError as error:
            raise StorageRefused(f"{self._folder} could not be written: {error.strerror}") from error

    def _rebuild(self, data: bytes, covered: AbstractSet[str]) -> None:
        """Replace the index, under the lock, by a segment and the known entries of packs that it does not cover.

        Entries of packs that do not exist are dropped.
        """
        self._load()
        segments = self._places.segments
        others = {name.rpartition("/")[2] for name in self._objects.names(PACK_FOLDER)} - covered
        rest = [place for place in self._places.fresh.values() if place[0] in others]
        for segment in segments:
            if not others.isdisjoint(segment.pack_names()):
                rest.extend(place for place in segment.entries() if place[0] in others)
        for made in (data, build_segment(rest)) if rest else (data,):
            self._replace(self._folder / f"{self._new_name()}{SEGMENT_SUFFIX}", made)
        self._replace(self._log, self._new_header())
        for segment in segments:
            (self._folder / segment.name).unlink(missing_ok=True)
        self._load()
        # Otherwise a power loss could undo this, but not the removal of the packs.
        sync_directory(self._folder)

    def _append(self, name: str, entries: list[PackEntry]) -> None:
        """Log a pack. A put succeeds even if the log cannot be written: packs are the source of truth."""
        body = name.encode() + pack_format.pack_entries(entries)
        record = _RECORD.pack(_RECORD_MAGIC, len(body), blake3(body).digest(length=8)) + body
        self._logged.add(name)
        with suppress(OSError):
            with self._locked(shared=False):
                if not self._is_there(name):  # gc removed it after it was listed: no reader may take it for present
                    self.forget(name)
                    return
                descriptor = os.open(self._log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    before = os.fstat(descriptor)
                    if before.st_size == 0:
                        record = self._new_header() + record
                    os.write(descriptor, record)
                    after = os.fstat(descriptor)
                finally:
                    os.close(descriptor)
            size = after.st_size
            if (
                _stamp(before) == self._stamp
                and before.st_size == self._read_to
                and size == self._read_to + len(record)
            ):
                self._read_to, self._stamp = (
                    size,
                    _stamp(after),
                )  # only the own record was appended, and need not be read
            if size > _LOG_BYTES:
                self._fold()

    def _fold(self) -> None:
        """Merge the log, and segments that are not much larger, into one segment; begin a new log."""
        with self._locked(shared=False):
            if self._log.stat().st_size <= _LOG_BYTES:
                return  # another process has done it
            self._load()
            found = list(self._places.fresh.values())
            size = len(found) * pack_format.ENTRY_BYTES
            merged = []
            for segment in sorted(self._places.segments, key=lambda segment: segment.size_bytes):
                if segment.size_bytes > _TIER * size:
                    break
                found.extend(segment.entries())
                size += segment.size_bytes
                merged.append(segment)
            self._replace(self._folder / f"{self._new_name()}{SEGMENT_SUFFIX}", build_segment(found))
            self._replace(self._log, self._new_header())
            for segment in merged:
                (self._folder / segment.name).unlink(missing_ok=True)
            self._load()

    def _mend(self) -> None:
        """Rewrite the log with the records before a torn one; `scan` finds the packs of the lost records."""
        with self._locked(shared=False):
            if not self._load():
                sound = self._log.read_bytes()[_HEADER_BYTES : self._read_to]
                self._replace(self._log, self._new_header() + sound)
                self._load()

    def _forget_all(self) -> None:
        """Drop everything that was read: the index may have been replaced."""
        self._header, self._read_to, self._stamp = b"", 0, None
        self._places.segments = []
        self._places.fresh = {}
        self._logged = set()

    def _load(self) -> bool:
        """Read the index from the start, under the lock. Returns whether the log is undamaged."""
        self._header = b""
        return self._catch_up()

    def _catch_up(self) -> bool:
        """Continue to read the log, under the lock. Returns whether it holds only whole records.

        If the log was replaced, the whole index is read again. The header shows that; inode numbers are soon reused.
        """
        descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._stamp = _stamp(os.fstat(descriptor))
            header = os.pread(descriptor, _HEADER_BYTES, 0)
            if header != self._header or not header:
                segments = self._segments()
                self._forget_all()
                self._stamp = _stamp(os.fstat(descriptor))
                self._places.segments = segments
                if len(header) < _HEADER_BYTES or not header.startswith(_HEADER_MAGIC):
                    return False
                self._header, self._read_to = header, _HEADER_BYTES
            data = os.pread(descriptor, self._stamp[1] - self._read_to, self._read_to)
        finally:
            os.close(descriptor)
        at = 0
        while at + _RECORD.size <= len(data):
            magic, length, checksum = _RECORD.unpack_from(data, at)
            body = data[at + _RECORD.size : at + _RECORD.size + length]
            if magic != _RECORD_MAGIC or len(body) < length or blake3(body).digest(length=8) != checksum:
                break
            name = body[:NAME_BYTES].decode()
            self._logged.add(name)
            self._places.add(name, pack_format.unpack_entries(body[NAME_BYTES:]))
            at += _RECORD.size + length
        self._read_to += at
        return at == len(data)

    def _segments(self) -> list[Segment]:
        """Return the existing segments; known ones are not read again."""
        loaded = {segment.name: segment for segment in self._places.segments}
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - a glob costs each mount server private memory
        except FileNotFoundError:
            return []
        found = []
        for name in sorted(names):
            if name.endswith(SEGMENT_SUFFIX):
                segment = loaded.get(name) or _mapped(self._folder / name)
                if segment is not None:
                    found.append(segment)
        return found

    def _new_header(self) -> bytes:
        return _HEADER_MAGIC + self._new_name().encode()

    @contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        # A reader must not create files: the medium may be read-only.
        flags = os.O_CLOEXEC | (os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT)
        try:
            descriptor = os.open(self._folder / "lock", flags, 0o644)
        except FileNotFoundError:
            if shared:  # removed by hand: checksums reveal a partly written record
                yield
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "lock", flags, 0o644)
        try:
            lock(descriptor, shared=shared)
            yield
        finally:
            unlock(descriptor)  # without it a child forked meanwhile keeps the lock
            os.close(descriptor)

    def _is_there(self, name: str) -> bool:
        try:
            self._objects.size(pack_object(name))
        except NotFound:
            return False
        return True

    def _replace(self, path: Path, data: bytes) -> None:
        with replacing(path, path.with_name(f"{path.name}.{os.getpid()}.tmp")) as temporary:
            temporary.write_bytes(data)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _mapped(path: Path) -> Segment | None:
    try:
        with path.open("rb") as file:
            return Segment(path.name, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, ValueError, Corrupt):
        return None  # merged, empty or truncated: its packs are read themselves
