"""The port between a workspace's operations and the transports.

The transports (`chronicle.fuse.transport`) turn the kernel's requests into these calls and their results into its
replies. Calls come one after the other, from one thread. Errors are raised as ``OSError`` or
`chronicle.errors.ChronicleError`; `chronicle.fuse.served.errnos` is the one table that turns them into errnos.

The mount has ``default_permissions``: the kernel has checked modes, owners and sticky bits before it sends a request.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from chronicle.fuse.deadlines import ParkingPolicy

__all__ = ["DIRECT_IO", "KEEP_CACHE", "NO_FLUSH", "Attributes", "Caller", "Changes", "FileSystem"]

# How an open file is to be treated; the numbers are those of FOPEN_... in linux/fuse.h.
DIRECT_IO: Final = 1 << 0
"""Nothing of it is cached: its content changes without the kernel."""
KEEP_CACHE: Final = 1 << 1
"""Cached pages of earlier opens are still valid."""
NO_FLUSH: Final = 1 << 5
"""Closing it needs no request: nothing was written by it. Transports that cannot say so go on sending one."""


Caller = tuple[int, int, int]
"""A request's origin: user, group, process."""


class Attributes(Protocol):
    """The attributes that ``stat`` shows of a file, directory, symlink, FIFO or socket."""

    @property
    def ino(self) -> int:
        """Its inode number; the root's is 1."""

    @property
    def mode(self) -> int:
        """Kind and permission bits."""

    @property
    def nlink(self) -> int:
        """The number of its names."""

    @property
    def uid(self) -> int:
        """Its owner."""

    @property
    def gid(self) -> int:
        """Its group."""

    @property
    def device(self) -> int:
        """The number of a device; otherwise 0."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def blocks(self) -> int:
        """Its disk space, in units of 512 bytes."""

    @property
    def atime_ns(self) -> int:
        """Epoch nanoseconds."""

    @property
    def mtime_ns(self) -> int:
        """Epoch nanoseconds."""

    @property
    def ctime_ns(self) -> int:
        """Epoch nanoseconds."""


@dataclass(slots=True)
class Changes:
    """The attributes that ``setattr`` sets; None leaves one as it is. With none set it is a chown to the same owner."""

    size: int | None = None
    mode: int | None = None
    """Permission bits."""
    uid: int | None = None
    gid: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None
    kill_privileges: bool = False
    """Whether set-user-id and similar bits are dropped, because of the user who changes the size."""
    caller: Caller | None = None
    """The request's origin; None where the kernel handles set-user-id bits itself."""

    @property
    def sets_owner(self) -> bool:
        """Whether it is a chown(2), which may leave user and group as they are."""
        if self.uid is not None or self.gid is not None:
            return True
        return self.size is None and self.mode is None and self.atime_ns is None and self.mtime_ns is None


class FileSystem(Protocol):
    """A served file system.

    A reply that shows a name's attributes (`lookup`, `make`, `create`, `link`, and each entry taken from `readdir`)
    increments the kernel's lookup count of that inode, until `forget` takes it back.
    """

    cache_s: int
    """How long the kernel may cache names and attributes; they change through the kernel only."""
    uncached_from: int
    """Inode numbers from this one on are not to be cached at all."""
    parking: ParkingPolicy | None
    """Decides which requests are parked, for a store beyond a network: a call may then raise `Pending`."""
    notify_attributes: Callable[[int], None]
    """Set by the transport; called with an inode whose attributes changed without a request to change them."""

    def known_inodes(self) -> list[int]:
        """Return the inodes of which the kernel may have cached pages or names."""

    def lookup(self, parent: int, name: bytes, pid: int = 0) -> Attributes | None:
        """Return the attributes of a name; None if it does not exist, which the kernel may cache.

        Args:
            parent: the directory.
            name: in it.
            pid: the calling process; 0 if unknown.
        """

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Subtract the lookups that the kernel has forgotten: inode numbers, and how many. Must not raise."""

    def make(self, parent: int, name: bytes, mode: int, uid: int, gid: int, device: int = 0) -> Attributes:
        """Make the file, directory, FIFO, socket or device of ``mode``."""

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> Attributes:
        """Make a symlink."""

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> tuple[Attributes, int, int]:
        """Make a regular file and open it: its attributes, a handle, and flags of the open file."""

    def link(self, inode: int, parent: int, name: bytes) -> Attributes:
        """Add a name to a file."""

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name of anything but a directory."""

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory."""

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        """Move a name; flags as of renameat2."""

    def getattr(self, inode: int) -> Attributes:
        """Return attributes."""

    def setattr(self, inode: int, changes: Changes, handle: int | None) -> Attributes:
        """Set attributes; with a handle if the call came through an open file."""

    def readlink(self, inode: int) -> bytes:
        """Return a symlink's target."""

    def statfs(self) -> os.statvfs_result:
        """Return the statistics of the file system."""

    def getxattr(self, inode: int, name: bytes) -> bytes | None:
        """Return an extended attribute; None if it is not set."""

    def listxattr(self, inode: int) -> list[bytes]:
        """Return the names of the extended attributes."""

    def setxattr(self, inode: int, name: bytes, value: bytes, flags: int) -> None:
        """Set an extended attribute; flags as the system call's."""

    def removexattr(self, inode: int, name: bytes) -> None:
        """Remove an extended attribute."""

    def open(self, inode: int, flags: int, *, kill_privileges: Caller | None, pid: int = 0) -> tuple[int, int]:
        """Open a file: a handle, and flags of the open file. Flags as the system call's, ``O_TRUNC`` included.

        Args:
            inode: the file.
            flags: see above.
            kill_privileges: the origin of the truncation, if it drops set-user-id and similar bits.
            pid: as in `lookup`.
        """

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end, and of files opened with `DIRECT_IO`."""

    def write(
        self,
        handle: int,
        offset: int,
        data: bytes | memoryview,
        *,
        kill_privileges: Caller | None,
        report_partial: bool = True,
    ) -> int:
        """Write; return how many bytes: fewer than all only if the rest failed, which the next write reports.

        Args:
            handle: of the file.
            offset: where.
            data: valid during the call only.
            kill_privileges: as in `open`.
            report_partial: raise for a partial write as well, as nobody reads the count.
        """

    def allocate(self, handle: int, mode: int, offset: int, length: int) -> None:
        """Reserve, zero or deallocate a range; mode as of fallocate."""

    def wrote(self, handle: int) -> bool:
        """Say whether `flush` or `release` of an open file may change anything else."""

    def flush(self, handle: int) -> None:
        """A descriptor of an open file was closed; ``close`` waits for this."""

    def release(self, handle: int) -> None:
        """The last descriptor and mapping of an open file are gone."""

    def fsync(self, handle: int) -> None:
        """Make an open file's bytes and names durable."""

    def opendir(self, inode: int, flags: int = os.O_DIRECTORY, pid: int = 0) -> int:
        """Open a directory: a handle.

        Args:
            inode: the directory.
            flags: the system call's. ESTALE makes the kernel look all names of the path up again, once.
            pid: as in `lookup`.
        """

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """Yield entries from an offset on: name, attributes, and the offset of the next.

        An entry counts as taken when the next is requested. The first two of a directory may be ``.`` and ``..``, which
        are never counted.
        """

    def list_names(self, handle: int, start: int) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield entries from an offset on, as `readdir` numbers them: name, inode, mode, and the offset of the next.

        Only the kind in the mode counts. It changes no lookup counts.
        """

    def releasedir(self, handle: int) -> None:
        """Close a directory."""

    def fsyncdir(self, handle: int) -> None:
        """Make the names of a directory durable."""
