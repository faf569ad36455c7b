"""The warm-up of a zygote: it serves throw-away workspaces itself before it forks servers.

Modules and tables that are set up at first use are then there. Servers also share more memory: the interpreter
specialises bytecode and fills caches of attributes as it runs (PEP 659), and what is settled is not written again by
each server. So several rounds pay. For a node's zygote, memory that servers write to is also gathered on few pages
(`pack_code`, `fill_allocator`).
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Final

from chronicle.control import connections
from chronicle.errors import ChronicleError
from chronicle.fuse.server.request import MountRequest
from chronicle.fuse.server.server import serve
from chronicle.fuse.watchdog import unwatched_heartbeat
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.server.engine import Served
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["code_run_by", "fill_allocator", "pack_code", "warm_up"]

log = logging.getLogger(__name__)

_PREFIX: Final = ".warm-up-"
_VISITOR_DEADLINE_S: Final = 10
_MESSAGE_BYTES: Final = 64 * 1024
# CPython's allocator of small objects has pools of 16 KiB for each size (Objects/obmalloc.c).
_POOL_BYTES: Final = 16 * 1024
_POOL_HEADER_BYTES: Final = 48
_SIZE_STEP: Final = 16
_LARGEST_SMALL_BYTES: Final = 512
_BYTES_OVERHEAD: Final = sys.getsizeof(b"")
_SMALLEST_BYTES: Final = -(-(_BYTES_OVERHEAD + 1) // _SIZE_STEP) * _SIZE_STEP
_FILLER_LIMIT: Final = 4096
"""Objects of one size, should the allocator work in another way; some 300 are needed."""


def warm_up(
    opener: Callable[[MountRequest, Heartbeat], Served], transport: Transport, mounts_dir: Path, times: int
) -> None:
    """Be a mount server for a moment, some times over; without mounts where none can be made.

    Everything is below the directory of mounts. After a kill the next zygote unmounts and removes it.
    """
    for left in mounts_dir.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=mounts_dir) as name:
        for number in range(times):
            directory = Path(name, str(number))
            spec = LayerSpec(workspace_id="warm-up", layers=directory / "layers", base=None, epoch=1, turn=1)
            request = MountRequest(spec, f"file://{directory}/blobs", directory / "mount")
            request.mountpoint.mkdir(parents=True)
            if transport == "raw":
                _serve(request, opener, transport, directory)
            else:  # pyfuse3 serves once per process
                served = opener(request, unwatched_heartbeat())
                served.engine.close()


def _serve(
    request: MountRequest, opener: Callable[[MountRequest, Heartbeat], Served], transport: Transport, directory: Path
) -> None:
    """Serve a workspace to a child process, until that ends."""
    listener = connections.listen(directory / "control")
    ours, theirs = socket.socketpair()
    visitor = os.fork()
    if visitor == 0:
        try:
            signal.alarm(_VISITOR_DEADLINE_S)
            # The zygote's lock and its starter, which waits on a descriptor, must not wait for this process.
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd != ours.fileno():
                    with suppress(OSError):  # the descriptor of the listing
                        os.close(fd)
            _use_mount(ours, request.mountpoint)
        finally:
            os._exit(0)  # the end of the channel ends the server
    ours.close()
    try:
        serve(request, opener, transport, unwatched_heartbeat(), listener, theirs)
    except ChronicleError:
        log.exception("a warm-up did not end in order")
    os.waitpid(visitor, 0)
    listener.close()
    theirs.close()


def _use_mount(channel: socket.socket, mountpoint: Path) -> None:
    """Use a mount once it is up."""
    if b"up" in channel.recv(_MESSAGE_BYTES):
        path = mountpoint / "file"
        path.write_bytes(b"content")
        path.read_bytes()
        os.listdir(mountpoint)


def code_run_by(act: Callable[[], None]) -> set[CodeType]:
    """Do something, and return the code of all functions that ran meanwhile in this thread."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return codes


def pack_code(codes: set[CodeType], filler: list[bytes]) -> None:
    """Copy the code of functions to pages of its own; they must be warmed up again.

    Running a function writes to its code: a reference count, and the counters of bytecode that cannot be specialised
    (PEP 659). Code lies where its import left it, so some 400 functions of 180 KB made each server copy some 200 pages.

    Args:
        codes: the code; emptied, so that the originals can be freed.
        filler: extended by what fills the free slots that the copies would occupy otherwise: see `fill_allocator`.
    """
    gc.collect()
    filler.extend(fill_allocator())
    functions = [found for found in gc.get_objects() if isinstance(found, FunctionType) and found.__code__ in codes]
    for function in sorted(functions, key=lambda function: sys.getsizeof(function.__code__)):
        function.__code__ = function.__code__.replace()
    codes.clear()


def fill_allocator() -> list[bytes]:
    """Fill the free slots that imports left on pages of small objects; return the filler, which must be kept.

    Objects that a server allocates then share fresh pages. Otherwise they fill free slots all over the memory that it
    shares, and each such page is copied: 0.2 of 4 MiB for each server, against 1 MiB that all of them share.
    """
    filler: list[bytes] = []
    for size in range(_SMALLEST_BYTES, _LARGEST_SMALL_BYTES + 1, _SIZE_STEP):
        consecutive = last = 0
        for _ in range(_FILLER_LIMIT):
            one = bytes(size - _BYTES_OVERHEAD)
            consecutive = consecutive + 1 if id(one) == last + size else 0
            last = id(one)
            filler.append(one)
            if consecutive >= (_POOL_BYTES - _POOL_HEADER_BYTES) // size - 1:  # a pool that was empty
                break
    return filler
