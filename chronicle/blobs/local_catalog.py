"""The catalog of a store on a local disk: mapped segments, and a log that tells processes of each other's packs.

``index/log`` has a record for each pack that no segment covers; a writer appends one after its pack is in place. So
looking for new packs costs one ``stat``, and learning of one costs reading its record. When the log has grown to
`_LOG_BYTES`, a writer turns it into a segment and begins a new log. ``index/lock`` is held exclusively to append or
replace, and shared to read, so no reader sees half a record unless a crash has torn it; packs are written without it.

All of this is derived. Nothing of it is synced: after a power loss a record may be missing or torn and a segment may
be cut short, which their checksums tell, and `LocalCatalog.scan` reads the packs themselves.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.blobs import packs
from chronicle.blobs.catalog import INDEX_FOLDER, PACK_FOLDER, SEGMENT_SUFFIX, Places
from chronicle.blobs.segments import NAME_BYTES, Segment, build_segment
from chronicle.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from chronicle.blobs.objects import LocalObjects
    from chronicle.blobs.packs import PackEntry

__all__ = ["LocalCatalog"]

_LOG_BYTES: Final = 256 * 1024
"""About 5,000 blobs: what of the index is held in private memory, and read to open a store, stays below 2 MB."""
_TIER: Final = 4
"""A segment is merged with newer ones once they have a quarter of its size: each entry is rewritten a few times only,
and there are few segments to search."""
_RECORD: Final = struct.Struct(">4sI8s")
_RECORD_MAGIC: Final = b"CHRL"


class LocalCatalog:
    """Where the blobs of a local store lie.

    Args:
        objects: the store's files.
        new_name: makes names for segments.
    """

    def __init__(self, objects: LocalObjects, new_name: Callable[[], str]) -> None:
        self._objects = objects
        self._new_name = new_name
        self._folder = objects.root / INDEX_FOLDER
        self._log = self._folder / "log"
        self._places = Places()
        self._inode = 0
        self._read_to = 0
        self._logged: set[str] = set()

    def find(self, raw_id: bytes) -> tuple[str, PackEntry] | None:
        """Return the place of a blob, from what is known now."""
        return self._places.find(raw_id)

    def refresh(self) -> None:
        """Read what was appended to the log since the last time; all of the index if it was replaced."""
        try:
            now = self._log.stat()
        except FileNotFoundError:
            if self._inode == 0:
                self.scan()  # no store yet, or one whose index was lost
            return
        if now.st_ino == self._inode and now.st_size == self._read_to:
            return
        with self._locked(fcntl.LOCK_SH):
            sound = self._catch_up()
        if not sound:
            self._mend()

    def scan(self) -> None:
        """List the packs and log those that nothing covers, from their own indexes."""
        if self._log.exists():
            self.refresh()
        listed = {name.rpartition("/")[2] for name in self._objects.names(PACK_FOLDER)}
        covered = set(self._logged)
        for segment in self._places.segments:
            covered.update(segment.pack_names())
        self._places.gone |= covered - listed
        for name in sorted(listed - covered):
            entries = self._places.read(self._objects, name)
            if entries is not None:
                self._append(name, entries)

    def note(self, name: str, entries: list[PackEntry]) -> None:
        """Take in a pack that was just written and log it for others."""
        self._places.add(name, entries)
        self._append(name, entries)

    def forget(self, name: str) -> None:
        """Take a pack to be gone."""
        self._places.gone.add(name)

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield what is known, each id once."""
        return self._places.entries()

    @property
    def damaged(self) -> Mapping[str, str]:
        """The packs whose own index could not be read."""
        return self._places.damaged

    def _append(self, name: str, entries: list[PackEntry]) -> None:
        """Log a pack. That the log cannot be written is no failure of the put: packs are the truth."""
        body = name.encode() + packs.pack_entries(entries)
        record = _RECORD.pack(_RECORD_MAGIC, len(body), blake3(body).digest(length=8)) + body
        self._logged.add(name)
        with suppress(OSError):
            with self._locked(fcntl.LOCK_EX):
                descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    before = os.fstat(descriptor)
                    written = os.write(descriptor, record)
                finally:
                    os.close(descriptor)
            size = before.st_size + written
            if before.st_ino == self._inode and before.st_size == self._read_to and written == len(record):
                self._read_to = size  # nobody else's record is in between: no need to read one's own
            if size > _LOG_BYTES:
                self._fold()

    def _fold(self) -> None:
        """Turn the log, and segments that are not much larger, into one segment; begin a new log."""
        with self._locked(fcntl.LOCK_EX):
            if self._log.stat().st_size <= _LOG_BYTES:
                return  # another process was first
            self._load()
            found = list(self._places.fresh.values())
            size = len(found) * packs.ENTRY_BYTES
            merged = []
            for segment in sorted(self._places.segments, key=lambda segment: segment.size_bytes):
                if segment.size_bytes > _TIER * size:
                    break
                found.extend(segment.entries())
                size += segment.size_bytes
                merged.append(segment)
            self._replace(self._folder / f"{self._new_name()}{SEGMENT_SUFFIX}", build_segment(found))
            self._replace(self._log, b"")
            for segment in merged:
                (self._folder / segment.name).unlink(missing_ok=True)
            self._load()

    def _mend(self) -> None:
        """Begin the log anew with the records before a torn one; `scan` finds the packs of the others."""
        with self._locked(fcntl.LOCK_EX):
            if not self._load():
                self._replace(self._log, self._log.read_bytes()[: self._read_to])
                self._load()

    def _load(self) -> bool:
        """Read the index from the start, under the lock. Returns whether the log is sound."""
        loaded = {segment.name: segment for segment in self._places.segments}
        segments = []
        for item in sorted(self._folder.glob(f"*{SEGMENT_SUFFIX}")):
            segment = loaded.get(item.name) or _mapped(item)
            if segment is not None:
                segments.append(segment)
        self._places.segments = segments
        self._places.fresh = {}
        self._logged = set()
        self._inode, self._read_to = self._log.stat().st_ino, 0
        return self._catch_up()

    def _catch_up(self) -> bool:
        """Read the log from where reading stopped, under the lock. Returns whether all that is in it is records."""
        descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            now = os.fstat(descriptor)
            if now.st_ino != self._inode:
                return self._load()
            data = os.pread(descriptor, now.st_size - self._read_to, self._read_to)
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
            self._places.add(name, packs.unpack_entries(body[NAME_BYTES:]))
            at += _RECORD.size + length
        self._read_to += at
        return at == len(data)

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self._folder / "lock", flags, 0o644)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "lock", flags, 0o644)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def _replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(data)
        temporary.rename(path)


def _mapped(path: Path) -> Segment | None:
    try:
        with path.open("rb") as file:
            return Segment(path.name, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, ValueError, Corrupt):
        return None  # merged away, empty or cut short: what it covered is read from the packs
