"""The choice of a transport: the kernel's own protocol, or pyfuse3.

Both serve the same `FileSystem` and pass the same tests. ``raw`` is the default: it needs no library and no compiler,
starts faster, takes less memory and negotiates more with the kernel. ``pyfuse3`` uses the maintained library; it stays
for kernels older than Linux 5.4 and as a comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.fuse.transport.raw_session import RawSession

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.served.filesystem import FileSystem
    from chronicle.fuse.transport.session import Session
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["import_transport", "make_session"]


def make_session(
    transport: Transport,
    filesystem: FileSystem,
    mountpoint: Path,
    heartbeat: Heartbeat,
    *,
    source: str,
    allow_other: bool,
) -> Session[Any]:
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
