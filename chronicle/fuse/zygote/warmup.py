"""What a zygote does before it forks servers: all that they will do, itself, on throw-away workspaces.

What is imported or set up at first use is then there. And servers share more memory: the interpreter notes in bytecode
and in its caches of attributes what it met (PEP 659), and what is settled is not written to by each server again. So it
is worth doing some times over.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import ChronicleError
from chronicle.fuse import control
from chronicle.fuse.server.server import MountRequest, serve
from chronicle.fuse.watchdog import unwatched_heartbeat
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.server.server import Served
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["warm_up"]

log = logging.getLogger(__name__)

_PREFIX: Final = ".rehearsal-"
_GUEST_DEADLINE_S: Final = 10
_MESSAGE_BYTES: Final = 64 * 1024


def warm_up(
    opener: Callable[[MountRequest, Heartbeat], Served], transport: Transport, mounts_dir: Path, times: int
) -> None:
    """Be a mount server for a moment, some times over. Where nothing can be mounted, no more is done than can be.

    All of it is below the directory of mounts: the next zygote unmounts what a kill leaves mounted there, and removes
    its files here.
    """
    for left in mounts_dir.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=mounts_dir) as name:
        for number in range(times):
            directory = Path(name, str(number))
            spec = LayerSpec(workspace_id="rehearsal", layers=directory / "layers", base=None, epoch=1, turn=1)
            request = MountRequest(spec, f"file://{directory}/blobs", directory / "mount")
            request.mountpoint.mkdir(parents=True)
            if transport == "raw":
                _serve(request, opener, transport, directory)
            else:  # pyfuse3 serves once a process
                served = opener(request, unwatched_heartbeat())
                served.engine.close()


def _serve(
    request: MountRequest, opener: Callable[[MountRequest, Heartbeat], Served], transport: Transport, directory: Path
) -> None:
    """Serve a workspace to a child process, to its end."""
    listener = control.listen(directory / "control")
    ours, theirs = socket.socketpair()
    guest = os.fork()
    if guest == 0:
        try:
            signal.alarm(_GUEST_DEADLINE_S)
            # What the zygote has locked, and whom it tells that it is ready, must not wait for this process.
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd != ours.fileno():
                    with suppress(OSError):  # the listing's own
                        os.close(fd)
            _use_mount(ours, request.mountpoint)
        finally:
            os._exit(0)  # the channel's end ends the server
    ours.close()
    try:
        serve(request, opener, transport, unwatched_heartbeat(), listener, theirs)
    except ChronicleError:
        log.exception("a rehearsal was not ended in order")
    os.waitpid(guest, 0)
    listener.close()
    theirs.close()


def _use_mount(channel: socket.socket, mountpoint: Path) -> None:
    """Use a mount once it is up."""
    if b"up" in channel.recv(_MESSAGE_BYTES):
        path = mountpoint / "file"
        path.write_bytes(b"content")
        path.read_bytes()
        os.listdir(mountpoint)
