"""Named immutable objects, the storage of packs, and their implementation on a local disk.

`Objects` is the port that a pack store needs of a medium. `LocalObjects` implements it for ``file://`` with system
calls, because file system libraries lack durability (fsync of file and directory).

An object is written beside the others (``tmp/``), synced, renamed to its name, and the directory synced: after a crash
at any point it exists with all its bytes or not at all.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from typing import TYPE_CHECKING, Final, Protocol

from chronicle.errors import NotFound, StorageRefused
from chronicle.system.atomic_files import replacing, sync_directory, write_all
from chronicle.system.permissions import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["STAMP_S", "CreatingObjects", "LocalObjects", "Objects", "shown_url"]

STAMP_S: Final = 60
"""The longest time for which `Objects.stamp` may miss the replacement of a remote object."""
_WRITE_BYTES: Final = 1024 * 1024
"""Parts are joined into writes of about this size."""


_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_USERINFO: Final = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY: Final = re.compile(r"\?\S*")


def shown_url(url: str) -> str:
    """Return a URL, or a text with URLs, without their possibly secret parts: user, password and query."""
    return _QUERY.sub("", _USERINFO.sub("", url)).rstrip("/")


class Objects(Protocol):
    """A medium for immutable objects. Names have ``/`` between components."""

    @property
    def is_far(self) -> bool:
        """Whether a request crosses a network: reads are then cached on this node, and read-ahead pays."""

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        """Store an object, durable on return, visible with all its bytes or not at all.

        Raises:
            Unavailable: the medium could not store it; nothing is visible.
        """

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes of an object, fewer where it ends; a negative offset counts from the end.

        Raises:
            NotFound: no such object.
            Unavailable: the medium could not be reached.
        """

    def read_many(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes | NotFound]:
        """Return ranges of objects, each given as name, offset and size, in order, as fast as the medium allows.

        For a missing object the result is the error.

        Raises:
            Unavailable: the medium could not be reached.
        """

    def size(self, name: str) -> int:
        """Return an object's size in bytes.

        Raises:
            NotFound: no such object.
            Unavailable: the medium could not be reached.
        """

    def names(self, folder: str) -> list[str]:
        """Return the names of all objects below a folder, unordered; none if the folder does not exist.

        Raises:
            Unavailable: the medium could not be reached.
        """

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of all objects below a folder, with their sizes in bytes.

        Raises:
            Unavailable: the medium could not be reached.
        """

    def delete(self, name: str) -> None:
        """Remove an object, if it exists.

        Raises:
            Unavailable: the medium could not be reached.
        """

    def stamp(self, name: str) -> object:
        """Return a cheap value that changes when an object is created or replaced; ``None`` if it does not exist.

        A medium that needs a request for this may return an outdated value for `STAMP_S` seconds.

        Raises:
            Unavailable: the medium could not be reached.
        """


class CreatingObjects(Objects, Protocol):
    """A medium that refuses to store a second object of a name."""

    before_change: Callable[[], None]
    """Called before each attempt to store or to remove an object; what it raises is raised, and nothing is done."""

    def create(self, name: str, data: bytes) -> None:
        """Store an object unless the name is taken; of several concurrent callers one succeeds.

        Raises:
            Conflict: the object exists, with other bytes.
            Unavailable: the medium could not store it, or it is unknown whether it did.
        """


class LocalObjects:
    """Objects as files below a directory, which is created with the first object.

    Args:
        root: the directory.
    """

    is_far = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self._synced: set[Path] = set()
        """Folders that this process has synced: one that exists may have been created a moment ago, and not be
        durable."""

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        """Store an object: file synced, renamed into place, directory synced."""
        target = self.root / name
        temporary = self.root / "tmp" / f"{target.name}.{secrets.token_hex(8)}"
        try:
            self._make_durable(temporary.parent)
            self._make_durable(target.parent)
            with replacing(target, temporary):
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                try:
                    for block in _gathered(parts):
                        write_all(descriptor, block)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            sync_directory(target.parent)
        except OSError as error:
            self._synced.clear()  # a folder may have been removed by hand: check again the next time
            advice = "; make space by removing or moving what else is on that disk" if error.errno in _FULL else ""
            raise StorageRefused(f"{target} could not be written: {error.strerror}{advice}") from error

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes of an object."""
        path = self.root / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if offset < 0 or size is None:
                    length = os.fstat(descriptor).st_size
                    offset = max(0, length + offset) if offset < 0 else offset
                    size = length - offset if size is None else size
                return _read_all(descriptor, offset, size)
            finally:
                os.close(descriptor)
        except FileNotFoundError as error:
            raise NotFound(f"no object {path}") from error
        except OSError as error:
            raise StorageRefused(f"{path} could not be read: {error.strerror}") from error

    def size(self, name: str) -> int:
        """Return an object's size in bytes."""
        path = self.root / name
        try:
            return path.stat().st_size
        except FileNotFoundError as error:
            raise NotFound(f"no object {path}") from error
        except OSError as error:
            raise StorageRefused(f"{path} could not be read: {error.strerror}") from error

    def names(self, folder: str) -> list[str]:
        """Return the names of all objects below a folder."""
        top = self.root / folder
        try:
            return list(_files_below(str(top), folder))
        except OSError as error:
            raise StorageRefused(f"{top} could not be listed: {error.strerror}") from error

    def read_many(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes | NotFound]:
        """Return ranges of objects."""
        found: list[bytes | NotFound] = []
        for name, offset, size in wanted:
            try:
                found.append(self.read(name, offset, size))
            except NotFound as error:
                found.append(error)
        return found

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of all objects below a folder, with their sizes."""
        found = {}
        for name in self.names(folder):
            try:
                found[name] = self.size(name)
            except NotFound:  # removed by another process
                continue
        return found

    def delete(self, name: str) -> None:
        """Remove an object. A power loss may undo the removal."""
        path = self.root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageRefused(f"{path} could not be removed: {error.strerror}") from error

    def stamp(self, name: str) -> object:
        """Return an object's inode, size and change time; ``None`` if it does not exist."""
        path = self.root / name
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageRefused(f"{path} could not be read: {error.strerror}") from error
        return status.st_ino, status.st_size, status.st_ctime_ns

    def _make_durable(self, folder: Path) -> None:
        """Create a folder below the root and its parents, durably."""
        if folder in self._synced:
            return
        if folder == self.root:
            make_private(folder)
        else:
            self._make_durable(folder.parent)
            folder.mkdir(exist_ok=True)
        sync_directory(folder.parent)
        self._synced.add(folder)


def _gathered(parts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the parts, with small ones joined."""
    small: list[bytes] = []
    size = 0
    for part in parts:
        small.append(part)
        size += len(part)
        if size >= _WRITE_BYTES:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


def _read_all(descriptor: int, offset: int, size: int) -> bytes:
    data = os.pread(descriptor, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]  # a read may be short at 2 GiB or a signal; only an empty one is the end
    while data:
        offset += len(data)
        size -= len(data)
        data = os.pread(descriptor, size, offset)
        parts.append(data)
    return b"".join(parts)


def _files_below(path: str, name: str) -> Iterator[str]:
    try:
        listing = os.scandir(path)
    except FileNotFoundError:
        return
    with listing:
        for item in listing:
            if item.is_dir(follow_symlinks=False):
                yield from _files_below(item.path, f"{name}/{item.name}")
            else:
                yield f"{name}/{item.name}"
