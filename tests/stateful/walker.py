"""What the kernel does with a path, over a mount's operations in process: walk it, look, list and read."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chronicle.workspace.history.oplog import ROOT_INO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.served.filesystem import Attributes
    from chronicle.fuse.served.operations import ChronicleOperations

PROCESS = 4242
"""The process that asks."""


class Walker:
    """Walks paths as lstat(2), readlink(2), open(2) and readdir(3) do. Nothing is cached.

    Args:
        operations: what answers.
    """

    def __init__(self, operations: ChronicleOperations) -> None:
        self._operations = operations

    def lstat(self, path: str) -> Attributes:
        """Return what is at a path."""
        with self._walked(path) as found:
            return self._operations.getattr(found.ino)

    def readlink(self, path: str) -> bytes:
        """Return a symlink's target."""
        with self._walked(path) as found:
            return self._operations.readlink(found.ino)

    def names(self, path: str) -> set[str]:
        """Return what a directory lists; each way to list it is tried."""
        operations = self._operations
        with self._walked(path) as found:
            handle = operations.opendir(found.ino, os.O_RDONLY | os.O_DIRECTORY, PROCESS)
            names = {name: stat.S_IFMT(mode) for name, _, mode, _ in operations.list_names(handle, 0)}
            shown = {}
            for name, entry, _ in operations.readdir(handle, 0):
                shown[name] = stat.S_IFMT(entry.mode)
            operations.releasedir(handle)
        assert shown == names
        return {os.fsdecode(name) for name in names} - {".", ".."}

    def read(self, path: str) -> bytes:
        """Open a file, read all of it, and close it."""
        try:
            return self._read(path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
        return self._read(path)  # open(2) walks the path once more then

    def _read(self, path: str) -> bytes:
        operations = self._operations
        with self._walked(path) as found:
            assert not stat.S_ISLNK(found.mode)
            if stat.S_ISDIR(found.mode):
                operations.releasedir(operations.opendir(found.ino, os.O_RDONLY, PROCESS))
                raise IsADirectoryError(errno.EISDIR, "a directory", path)
            handle, _ = operations.open(found.ino, os.O_RDONLY, kill_privileges=None, pid=PROCESS)
            content = bytearray()
            while part := operations.read(handle, len(content), 65_536):
                content += part
            operations.release(handle)
        return bytes(content)

    @contextmanager
    def _walked(self, path: str) -> Iterator[Attributes]:
        """Look up the names of a path; they are forgotten in the end."""
        operations = self._operations
        found = operations.getattr(ROOT_INO)
        known = []
        try:
            for name in os.fsencode(path).split(b"/") if path else ():
                if not stat.S_ISDIR(found.mode):
                    raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
                below = operations.lookup(found.ino, name, PROCESS)
                if below is None:
                    raise FileNotFoundError(errno.ENOENT, "nothing has this name", path)
                known.append((below.ino, 1))
                found = below
            yield found
        finally:
            operations.forget(known)
