"""Walks a plain directory by descriptors: never outside of it, with paths of any length and unreadable entries.

Each directory is opened by its name in the one above and never through a symlink, so a replacement is detected and not
entered. An entry that its owner may not read gets the permission temporarily, and its mode back afterwards. If the
process dies in between, the next scan finds a change of mode.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "READ",
    "WRITE",
    "Descent",
    "KindChanged",
    "by_handle",
    "join",
    "names_in",
    "open_directory",
    "open_file",
    "remove",
    "split",
]

READ: Final = 0o500
"""The permissions to list a directory."""
WRITE: Final = 0o700
_OPEN: Final = 64
"""Directories of a path that are kept open; those further above are reopened on the way back."""
_ABOVE: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_HANDLE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without blocking: a pipe may have replaced the file, and may have no writer."""


class KindChanged(Exception):
    """The kind of a name has changed since it was read."""


@dataclass(slots=True)
class _Granted:
    """Permissions that were granted temporarily."""

    given: int
    before: int

    def put_back(self, fd: int) -> None:
        """Restore a directory's mode, unless it was changed meanwhile."""
        if stat.S_IMODE(os.fstat(fd).st_mode) == self.given:
            os.fchmod(fd, self.before)


@dataclass(slots=True)
class _Level:
    name: bytes
    fd: int
    """-1 if it is closed because it is far above."""
    granted: _Granted | None


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of a name in a directory; the root's is ``b""``."""
    return directory + b"/" + name if directory else name


def split(path: bytes) -> tuple[bytes, bytes]:
    """Return the directory that a path is in, and its name there."""
    directory, _, name = path.rpartition(b"/")
    return directory, name


def names_in(fd: int) -> list[bytes]:
    """Return the names in an open directory."""
    return [os.fsencode(name) for name in os.listdir(fd)]


def by_handle(handle: int) -> str:
    """Return a path to the file of a descriptor, whatever has its name now; also for one opened with ``O_PATH``."""
    return f"/proc/self/fd/{handle}"


def open_file(name: bytes, parent: int, path: bytes) -> int:
    """Open a file for reading.

    Args:
        name: in its directory.
        parent: the directory's descriptor.
        path: names it in an error.

    Raises:
        KindChanged: it is no file.
        FileNotFoundError: it is gone.
        InvalidInput: it is unreadable and cannot be made readable.
    """
    try:
        fd = os.open(name, _FILE, dir_fd=parent)
    except PermissionError:
        fd = _open_unreadable(name, parent, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.ENODEV}:  # a symlink, a socket, a device
            raise KindChanged from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise KindChanged
    return fd


def _open_unreadable(name: bytes, parent: int, path: bytes) -> int:
    handle = os.open(name, _HANDLE, dir_fd=parent)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise KindChanged
        granted = _grant(handle, status, stat.S_IRUSR, path)
        try:
            return os.open(by_handle(handle), _FILE & ~os.O_NOFOLLOW)
        except PermissionError as error:
            raise _refused(path) from error
        finally:
            os.chmod(by_handle(handle), granted.before)
    finally:
        os.close(handle)


def open_directory(name: bytes, parent: int | None, path: bytes, bits: int) -> tuple[int, _Granted | None]:
    """Open a directory with the permissions that are needed.

    Args:
        name: in the directory above, or the whole path if ``parent`` is None; that may be a symlink.
        parent: the descriptor of the one above.
        path: names it in an error.
        bits: `READ` or `WRITE`.

    Returns:
        its descriptor, and the permissions that were granted for it.

    Raises:
        FileNotFoundError: it is gone.
        NotADirectoryError: it is something else.
        InvalidInput: it cannot be entered, and its permissions cannot be changed.
    """
    above = _ABOVE if parent is None else _ABOVE | os.O_NOFOLLOW
    granted = None
    try:
        fd = _open(name, above, parent)
    except PermissionError:
        handle = _open(name, above | os.O_PATH, parent)
        try:
            granted = _grant(handle, os.fstat(handle), bits, path)
            fd = _open(os.fsencode(by_handle(handle)), _ABOVE, None)
        except PermissionError as error:
            raise _refused(path) from error
        finally:
            os.close(handle)
    try:
        wanted = os.R_OK | os.X_OK | (os.W_OK if bits == WRITE else 0)
        if granted is None and not os.access(".", wanted, dir_fd=fd, effective_ids=True):
            granted = _grant(fd, os.fstat(fd), bits, path)
    except BaseException:
        os.close(fd)
        raise
    return fd, granted


def _open(name: bytes, flags: int, parent: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name) from error
        raise


def _grant(handle: int, status: os.stat_result, bits: int, path: bytes) -> _Granted:
    before = stat.S_IMODE(status.st_mode)
    try:
        os.chmod(by_handle(handle), before | bits)
    except OSError as error:  # another user's, or a read-only file system
        raise _refused(path) from error
    return _Granted(before | bits, before)


def _refused(path: bytes) -> InvalidInput:
    return InvalidInput(
        f"{os.fsdecode(path) or 'the directory itself'} in the workspace cannot be opened by user {os.geteuid()}, "
        "and its mode cannot be changed; give that user access to it, or remove it"
    )


class Descent:
    """A position in a directory. A context manager: leaving restores all modes.

    Args:
        root: the directory.
        bits: `READ` or `WRITE`.

    Raises:
        FileNotFoundError, NotADirectoryError, InvalidInput: as `open_directory`.
    """

    def __init__(self, root: bytes, bits: int) -> None:
        self._bits = bits
        self._path = b""
        fd, granted = open_directory(root, None, b"", bits)
        self._levels = [_Level(b"", fd, granted)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(0)

    @property
    def top(self) -> int:
        """The root's descriptor."""
        return self._levels[0].fd

    def go(self, path: bytes) -> int:
        """Go to a directory and return its descriptor, which is valid until the next call.

        Raises:
            FileNotFoundError, NotADirectoryError: it or one above is gone or something else.
            InvalidInput: as `open_directory`.
        """
        if path != self._path or not path:
            names = path.split(b"/") if path else []
            common = 0
            for level, name in zip(self._levels[1:], names, strict=False):
                if level.name != name:
                    break
                common += 1
            self._leave(common + 1)
            self._path = b"/".join(names[:common])
            for name in names[common:]:
                at = join(self._path, name)
                fd, granted = open_directory(name, self._fd(len(self._levels) - 1), at, self._bits)
                self._levels.append(_Level(name, fd, granted))
                self._path = at
                self._close_above(len(self._levels) - 1)
        return self._fd(len(self._levels) - 1)

    def _fd(self, index: int) -> int:
        at = index
        while self._levels[at].fd < 0:
            at -= 1
        while at < index:
            at += 1
            self._levels[at].fd = _open(self._levels[at].name, _ABOVE | os.O_NOFOLLOW, self._levels[at - 1].fd)
            self._close_above(at)
        return self._levels[index].fd

    def _close_above(self, index: int) -> None:
        far = index - _OPEN
        if far > 0 and self._levels[far].fd >= 0:
            os.close(self._levels[far].fd)
            self._levels[far].fd = -1

    def _leave(self, count: int) -> None:
        while len(self._levels) > count:
            level = self._levels[-1]
            if level.granted is not None:
                with suppress(OSError):  # it is gone
                    level.granted.put_back(self._fd(len(self._levels) - 1))
            self._levels.pop()
            if level.fd >= 0:
                os.close(level.fd)


def remove(walk: Descent, path: bytes) -> None:
    """Remove a path and its content; an absent one is ignored."""
    if _unlink(path, walk):
        return
    directories = []
    stack = [path]
    while stack:
        directory = stack.pop()
        directories.append(directory)
        below = [join(directory, name) for name in names_in(walk.go(directory))]
        stack += [inner for inner in below if not _unlink(inner, walk)]
    for directory in reversed(directories):
        above, name = split(directory)
        os.rmdir(name, dir_fd=walk.go(above))


def _unlink(path: bytes, walk: Descent) -> bool:
    """Remove a path unless it is a non-empty directory; return whether it is absent now."""
    directory, name = split(path)
    try:
        parent = walk.go(directory)
        try:
            os.unlink(name, dir_fd=parent)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True
