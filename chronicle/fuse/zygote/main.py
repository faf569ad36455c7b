"""The zygote's process: it imports and warms up the code of mount servers, then executes commands until it ends.

`chronicle.fuse.zygote.launcher` starts it; `chronicle.fuse.zygote.supervisor` is its loop.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import resource
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Conflict, InvalidInput
from chronicle.fuse.mountpoints.availability import DEFAULT_TRANSPORT, TRANSPORTS
from chronicle.fuse.server.opening import open_served
from chronicle.fuse.transport.choice import import_transport
from chronicle.fuse.zygote.launcher import is_running
from chronicle.fuse.zygote.supervisor import REQUEST_DEADLINE_S, Zygote
from chronicle.fuse.zygote.warmup import code_run_by, fill_allocator, pack_code, warm_up
from chronicle.settings import read_settings
from chronicle.system.heap import pack_heap_before_fork

if TYPE_CHECKING:
    from chronicle.settings import Settings

__all__ = ["main"]

_OTHER_DEADLINE_S: Final = 10.0
"""For another zygote that was started at the same time to listen; usually a twentieth of a second. One that was stopped
is asked once."""
_OTHER_POLL_S: Final = 0.01
_FIRST_WARM_UPS: Final = 4
"""Rounds of a node's zygote before its code is packed."""
_WARM_UPS: Final = 10
"""Rounds after that: the interpreter specialises a function after its eighth call."""


def main(arguments: list[str]) -> int:
    """Run a zygote: ``python -m chronicle.fuse.zygote.main --socket PATH --mounts DIR [--owner PID] [--ready FD]``."""
    parser = argparse.ArgumentParser(prog="chronicle.fuse.zygote.main", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--socket", type=Path, required=True, help="where to listen")
    parser.add_argument("--mounts", type=Path, required=True, help="the directory of this node's mountpoints")
    parser.add_argument("--owner", type=int, help="the process to end with")
    parser.add_argument("--transport", choices=TRANSPORTS, default=DEFAULT_TRANSPORT, help="how mounts are served")
    parser.add_argument("--request-deadline", type=float, help="seconds until a server that hangs is replaced")
    parser.add_argument("--preload", help="the protocol of a blob store beyond a network")
    parser.add_argument("--until-idle", action="store_true", help="end with the last mount")
    parser.add_argument("--few-mounts", action="store_true", help="start sooner; servers share less memory")
    parser.add_argument("--ready", type=int, help="go to the background, and write to this descriptor when it listens")
    options = parser.parse_args(arguments)
    if options.ready is not None and os.fork() > 0:
        os._exit(0)
    # A server has a descriptor for each file that is open in its mount, by any number of programs, and each program has
    # the limit to itself.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")
    import_transport(options.transport)
    if options.preload is not None:
        from chronicle.blobs.media.fsspec_objects import preload  # noqa: PLC0415 - 40 MB, for remote stores only

        preload(options.preload)
    deadline_s = options.request_deadline or REQUEST_DEADLINE_S
    opener = partial(open_served, deadline_s=deadline_s / 2, settings=_settings())

    filler: list[bytes] = []

    def prepare() -> None:
        warm_up_times = partial(warm_up, opener, options.transport, options.mounts)
        if options.until_idle or options.few_mounts:  # one that ends when it is idle will hardly have more than one
            warm_up_times(1)
        else:
            warm_up_times(_FIRST_WARM_UPS)
            pack_code(code_run_by(partial(warm_up_times, 1)), filler)
            warm_up_times(_WARM_UPS)
        # Objects made by now are never collected: a collection would write to each page and unshare it.
        gc.collect()
        filler.extend(fill_allocator())
        pack_heap_before_fork()
        gc.freeze()

    zygote: Zygote | None = None
    until = time.monotonic() + _OTHER_DEADLINE_S
    while zygote is None:
        try:
            zygote = Zygote(
                options.socket,
                options.mounts,
                opener,
                options.owner,
                transport=options.transport,
                request_deadline_s=deadline_s,
                until_idle=options.until_idle,
                prepare=prepare,
            )
        except Conflict:  # another one was started concurrently and will listen; or `is_alive` holds the lock
            if is_running(options.socket) is not None:
                break
            if time.monotonic() > until:
                return 1  # the starter sees that no zygote listens
            time.sleep(_OTHER_POLL_S)
    if options.ready is not None:
        os.write(options.ready, b".")
        os.close(options.ready)
    if zygote is not None:
        zygote.run()
    return 0


def _settings() -> Settings | None:
    """Read the settings once for all servers; None if one is invalid, which each mount then reports."""
    try:
        return read_settings()
    except InvalidInput:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
