"""Which way a mount's requests come: the kernel's own protocol, or pyfuse3.

Both serve the same `FileSystem` and pass the same tests. ``raw`` is the default: it needs no library and no compiler,
starts faster, takes less memory and can agree with the kernel on more. ``pyfuse3`` stays as the way of the maintained
library, for a kernel older than Linux 5.4 and to compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.fuse.transport.raw import RawSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.served.filesystem import FileSystem
    from chronicle.fuse.transport.interleave import ServedMeanwhile
    from chronicle.fuse.watchdog import Pulse

__all__ = ["Session", "import_transport", "make_session"]


class Session(Protocol):
    """A mount, and the loop that serves it. The caller mounts, runs and closes in one thread, once a process."""

    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel or ``fusermount3`` refused.
        """

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, between requests, each time a descriptor is readable or hung up. It must not raise."""

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor; to be called before it is closed."""

    def run(self) -> None:
        """Serve until the mount is unmounted from outside or `stop` is called; what raises was logged."""

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""

    def meanwhile(self) -> ServedMeanwhile:
        """Return what answers requests that change nothing while a callback runs, and keeps the others. For callbacks.

        What was kept is carried out when the callbacks of this round have ended; it fails if the session is to end.
        """

    def forget(self, names: Iterable[tuple[int, bytes]], inodes: Iterable[int], done: Callable[[], None]) -> None:
        """Make the kernel ask anew what names (directory's inode, name) are, and what inodes have and hold.

        For what was changed by someone else than the kernel. Serving goes on; ``done`` is called when it is so.
        """

    def forget_pages(self, inodes: Iterable[int]) -> None:
        """Make the kernel drop what it cached of inodes. Only for a session that is stopped."""

    def close(self) -> None:
        """End the connection to the kernel. Unmounting is left to others."""


def make_session(
    transport: Transport, filesystem: FileSystem, mountpoint: Path, pulse: Pulse, *, source: str, allow_other: bool
) -> Session:
    """Return a session that is to serve a file system at a mountpoint."""
    if transport == "raw":
        return RawSession(filesystem, mountpoint, pulse, source=source, allow_other=allow_other)
    from chronicle.fuse.transport.pyfuse3_driver import MountSession  # noqa: PLC0415 - it may not be installed
    from chronicle.fuse.transport.pyfuse3_operations import Pyfuse3Operations  # noqa: PLC0415
    from chronicle.fuse.transport.pyfuse3_trio import Gate  # noqa: PLC0415

    gate = Gate()
    operations = Pyfuse3Operations(filesystem, gate)
    return MountSession(operations, mountpoint, pulse, gate, filesystem.waiting, source=source, allow_other=allow_other)


def import_transport(transport: Transport) -> None:
    """Import what a transport needs, so that forked servers share it."""
    if transport == "pyfuse3":
        from chronicle.fuse.transport import pyfuse3_driver, pyfuse3_operations  # noqa: F401, PLC0415
