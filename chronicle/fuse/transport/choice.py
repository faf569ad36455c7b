"""The choice of a transport: the kernel's own protocol, or pyfuse3.

Both serve the same `FileSystem` and pass the same tests. ``raw`` is the default: it needs no library and no compiler,
starts faster, takes less memory and negotiates more with the kernel. ``pyfuse3`` uses the maintained library; it stays
for kernels older than Linux 5.4 and as a comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.fuse.transport.raw_session import RawSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.served.filesystem import FileSystem
    from chronicle.fuse.transport.interleave import Interleaver
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["Session", "import_transport", "make_session"]


class Session(Protocol):
    """A mount and the loop that serves it. The caller mounts, runs and closes in one thread, once per process."""

    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel or ``fusermount3`` refused.
        """

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, between requests, each time a descriptor is readable or hung up. The callback must not raise."""

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor. Call this before closing it."""

    def run(self) -> None:
        """Serve until the mount is unmounted from outside or `stop` is called; it logs exceptions and raises them."""

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""

    def interleave(self) -> Interleaver:
        """Serve requests that change nothing while a callback runs, and defer the others. For callbacks.

        Deferred requests are executed after the callbacks of this round; they fail if the session is to end.
        """

    def invalidate(self, names: Iterable[tuple[int, bytes]], inodes: Iterable[int], done: Callable[[], None]) -> None:
        """Make the kernel drop cached names (directory's inode, name), and the cached attributes and pages of inodes.

        For changes that did not come through the kernel. Requests are served meanwhile; ``done`` is called at the end.
        """

    def drop_pages(self, inodes: Iterable[int]) -> None:
        """Make the kernel drop the cached pages of inodes. Only for a session that is stopped."""

    def close(self) -> None:
        """Close the connection to the kernel. The mount stays in place."""


def make_session(
    transport: Transport,
    filesystem: FileSystem,
    mountpoint: Path,
    heartbeat: Heartbeat,
    *,
    source: str,
    allow_other: bool,
) -> Session:
    """Return a session that will serve a file system at a mountpoint."""
    if transport == "raw":
        return RawSession(filesystem, mountpoint, heartbeat, source=source, allow_other=allow_other)
    from chronicle.fuse.transport.pyfuse3_operations import Pyfuse3Operations  # noqa: PLC0415 - it may not be installed
    from chronicle.fuse.transport.pyfuse3_session import Pyfuse3Session  # noqa: PLC0415
    from chronicle.fuse.transport.pyfuse3_trio_shim import Gate  # noqa: PLC0415

    gate = Gate()
    operations, parking = Pyfuse3Operations(filesystem, gate), filesystem.parking
    return Pyfuse3Session(operations, mountpoint, heartbeat, gate, parking, source=source, allow_other=allow_other)


def import_transport(transport: Transport) -> None:
    """Import the modules of a transport, so that forked servers share them."""
    if transport == "pyfuse3":
        from chronicle.fuse.transport import pyfuse3_operations, pyfuse3_session  # noqa: F401, PLC0415
