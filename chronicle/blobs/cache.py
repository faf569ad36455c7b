"""The cache of a node for blobs of far stores: files in a directory, bounded in bytes, least recently read evicted.

Any number of processes may share it, and each may be killed at any moment. Each read checks the entry against its hash;
a damaged one is dropped and fetched again. It holds only copies, so it may be removed at any time, and a cache that
cannot be written is not used.

    blobs/<2>/<62>    a blob, by its id, not compressed: the name is the BLAKE3 of the bytes
    parts/<2>/<62>    derived bytes of a named object, such as a pack's index: BLAKE3 of the rest, 32 bytes ‖ the rest
    tmp/              entries being written: <process>.<random>.<bytes taken>
    used              how many bytes are taken, 8 bytes big-endian; its lock is held to change it
    claims            byte n is locked while the blob whose id begins with n is fetched

``used`` is never less than the size of the files: bytes are added before a file is created, both under its lock, and
subtracted after the file is removed. A process that is killed in between leaves it too large, until the next eviction
recounts. So does an entry that is renamed into place during a recount: ``tmp`` is read first, and no file is created
there meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.system.atomic_files import replacing
from chronicle.system.locks import lock, try_lock_byte, unlock, unlock_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chronicle.settings import Settings

__all__ = ["BlobCache", "cache_from"]

log = logging.getLogger(__name__)

_BLOCK_BYTES: Final = 4096
"""The disk usage of a file is a multiple of this."""
_FREE: Final = 8
"""An eviction frees an eighth of the limit, which amortises its scan of all entries."""
_STALE_TMP_S: Final = 3600
_CLAIM_WAIT_S: Final = 30.0
_CLAIM_POLL_S: Final = 0.002
_CLAIM_POLL_MOST_S: Final = 0.05
_HASH_BYTES: Final = 32


def cache_from(settings: Settings) -> BlobCache | None:
    """Return the node's cache; ``None`` if it is switched off."""
    if settings.cache_dir is None or settings.cache_bytes == 0:
        return None
    return BlobCache(settings.cache_dir, settings.cache_bytes)


class BlobCache:
    """A cache directory. Safe to share between threads and processes.

    Args:
        directory: the cache directory; created by the first put.
        limit_bytes: the most bytes on disk.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self._limit_bytes = limit_bytes
        self._broken = False

    # -- blobs ----------------------------------------------------------------------------------------------------

    def get(self, raw_id: bytes) -> bytes | None:
        """Return a blob, checked against its id; ``None`` if it is not cached."""
        path = self._path("blobs", raw_id)
        data = _read(path)
        if data is not None and blake3(data).digest() != raw_id:
            self._drop(path)
            return None
        return data

    def put(self, raw_id: bytes, data: bytes) -> None:
        """Cache a blob. Never fails."""
        self._put("blobs", raw_id, data)

    # -- parts of objects -----------------------------------------------------------------------------------------

    def get_part(self, name: str) -> bytes | None:
        """Return the bytes cached under a name; ``None`` if they are not cached, or damaged."""
        path = self._path("parts", blake3(name.encode()).digest())
        data = _read(path)
        if data is not None and blake3(data[_HASH_BYTES:]).digest() != data[:_HASH_BYTES]:
            self._drop(path)
            return None
        return data[_HASH_BYTES:] if data is not None else None

    def has_part(self, name: str) -> bool:
        """Whether there are bytes cached under a name, maybe damaged ones."""
        return self._path("parts", blake3(name.encode()).digest()).exists()

    def put_part(self, name: str, data: bytes) -> None:
        """Cache bytes under a name that never stands for other bytes. Never fails."""
        self._put("parts", blake3(name.encode()).digest(), blake3(data).digest() + data)

    # -- fetching once --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def claim(self, raw_ids: Iterable[bytes]) -> Iterator[None]:
        """Lock blobs for fetching: another thread or process that wants one of them waits, then finds it in the cache.

        The kernel releases the lock when its holder dies. A caller that has waited for half a minute proceeds without
        it.
        """
        try:
            self._make()
            descriptor = os.open(self.directory / "claims", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._give_up(error)
            yield
            return
        try:
            deadline_s = time.monotonic() + _CLAIM_WAIT_S
            for start in sorted({int.from_bytes(raw_id[:7], "big") for raw_id in raw_ids}):  # in order: no deadlock
                _lock_byte(descriptor, start, deadline_s)
            yield
        finally:
            unlock_bytes(descriptor)
            os.close(descriptor)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _path(self, folder: str, key: bytes) -> Path:
        name = key.hex()
        return self.directory / folder / name[:2] / name[2:]

    def _make(self) -> None:
        """Create the directory, for this user only, as it holds contents of files."""
        if not self.directory.is_dir():
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)

    def _put(self, folder: str, key: bytes, data: bytes) -> None:
        taken = -(-len(data) // _BLOCK_BYTES) * _BLOCK_BYTES or _BLOCK_BYTES
        if self._broken or taken > self._limit_bytes // _FREE:
            return
        path = self._path(folder, key)
        temporary = self.directory / "tmp" / f"{os.getpid()}.{secrets.token_hex(6)}.{taken}"
        try:
            descriptor = self._take(taken, temporary)
            if descriptor is None:
                return
            with replacing(path, temporary):
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                path.parent.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            pass  # the cache is being removed
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Stop writing to the cache: the disk is full, or the directory not writable."""
        if not self._broken:
            self._broken = True
            log.warning("the cache %s cannot be written, nothing is kept: %s", self.directory, error.strerror)

    def _take(self, taken: int, temporary: Path) -> int | None:
        """Reserve space for a write, evicting entries if needed, and create the temporary file.

        Returns:
            a descriptor of the file; ``None`` if there is no space.
        """
        self._make()
        temporary.parent.mkdir(exist_ok=True)
        descriptor = os.open(self.directory / "used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock(descriptor)
            used = int.from_bytes(os.pread(descriptor, 8, 0), "big")
            if used + taken > self._limit_bytes:
                used = self._evict(self._limit_bytes - max(taken, self._limit_bytes // _FREE))
            fits = used + taken <= self._limit_bytes
            os.pwrite(descriptor, (used + taken * fits).to_bytes(8, "big"), 0)
            return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600) if fits else None
        finally:
            unlock(descriptor)  # closing leaves it to a child that was forked meanwhile
            os.close(descriptor)

    def _evict(self, target: int) -> int:
        """Remove the least recently read entries until at most ``target`` bytes are taken; return the bytes taken."""
        entries = []
        used = 0
        oldest_s = time.time() - _STALE_TMP_S
        for path, status in _files(self.directory / "tmp"):
            if status.st_mtime < oldest_s:  # left by a killed process
                _unlink(path)
            else:
                used += int(path.rpartition(".")[2])
        for folder in ("blobs", "parts"):
            for path, status in _files(self.directory / folder):
                taken = -(-status.st_size // _BLOCK_BYTES) * _BLOCK_BYTES or _BLOCK_BYTES
                entries.append((status.st_mtime_ns, taken, path))
                used += taken
        entries.sort()
        for _, taken, path in entries:
            if used <= target:
                break
            _unlink(path)
            used -= taken
        return used

    def _drop(self, path: Path) -> None:
        log.info("a damaged entry of the cache is dropped: %s", path)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    """Return a file's bytes and set its times, by which eviction orders entries."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, size, 0)
        with contextlib.suppress(OSError):  # another user's cache, read-only
            os.utime(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a folder, except those removed meanwhile."""
    try:
        listing = os.scandir(folder)
    except FileNotFoundError:
        return
    with listing:
        for item in listing:
            if item.is_dir(follow_symlinks=False):
                yield from _files(folder / item.name)
            else:
                with contextlib.suppress(FileNotFoundError):
                    yield item.path, item.stat(follow_symlinks=False)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - a path of scandir


def _lock_byte(descriptor: int, start: int, deadline_s: float) -> None:
    """Lock a byte for this open file description; it also excludes threads that open the file separately."""
    pause_s = _CLAIM_POLL_S
    while not try_lock_byte(descriptor, start) and time.monotonic() <= deadline_s:
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _CLAIM_POLL_MOST_S)
