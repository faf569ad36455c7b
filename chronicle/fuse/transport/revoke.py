"""Cutting a mount off: what the kernel has cached of it is dropped, so that nobody goes on reading it."""

from __future__ import annotations

import errno
import os
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from chronicle.fuse.transport import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["GONE", "drop_pages"]

GONE: Final = (errno.ENODEV, errno.ECONNABORTED)
"""What the device says when it was unmounted, or aborted."""
_REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""The kernel gives no request to a reader who could not take the longest one: 1 MiB of data, and what comes before."""


def drop_pages(device: int, inodes: Iterable[int], drop: Callable[[int], None]) -> None:
    """Make the kernel drop what it cached of inodes: reads and mappings of them have to ask again, in vain.

    Only for a session that is stopped. Dropping a page waits for the request that is to fill or to store it; so another
    thread drops, and this one refuses what is asked. Where the connection was aborted nothing is.

    Args:
        device: the connection's descriptor, non-blocking.
        inodes: which.
        drop: tells the kernel to drop the pages of one; fails with ``OSError`` if the kernel does not know it any more.
    """
    ended, ends = os.pipe()
    dropping = threading.Thread(target=_drop, args=(list(inodes), drop, ends), name="drop-pages")
    dropping.start()
    _refuse_requests(device, ended)
    dropping.join()
    os.close(ended)


def _drop(inodes: list[int], drop: Callable[[int], None], ends: int) -> None:
    """Drop the pages of inodes, and close a descriptor at the end."""
    try:
        for inode in inodes:
            with suppress(OSError):
                drop(inode)
    finally:
        os.close(ends)


def _refuse_requests(device: int, ended: int) -> None:
    """Answer requests with ENOTCONN until the other end of ``ended`` is closed or the connection is gone."""
    waiting = select.poll()
    waiting.register(device, select.POLLIN)
    waiting.register(ended, select.POLLIN)
    while all(fd != ended for fd, _ in waiting.poll()):
        try:
            request = os.read(device, _REQUEST_LIMIT)
        except OSError as error:
            if error.errno in GONE:
                return
            continue  # it was taken back
        unique = wire.IN_HEADER.unpack_from(request)[2]
        with suppress(OSError):  # it wants no answer, or not any more
            os.write(device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size, -errno.ENOTCONN, unique))
