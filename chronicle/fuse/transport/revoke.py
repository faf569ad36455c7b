"""Revoking a mount: the kernel's cached pages are dropped, so that open handles and mappings cannot read them."""

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
"""Errors of the device after an unmount or an abort."""
_REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""The kernel refuses reads with less room than the longest request: 1 MiB of data and its header."""


def drop_pages(device: int, inodes: Iterable[int], drop: Callable[[int], None]) -> None:
    """Make the kernel drop the cached pages of inodes: reads and mappings of them send requests again, which fail.

    Only for a session that is stopped. Dropping a page waits for the request that fills or stores it; so another thread
    drops, and this one fails all requests. After an abort there are none.

    Args:
        device: the connection's descriptor, non-blocking.
        inodes: the inodes.
        drop: makes the kernel drop the pages of one; raises ``OSError`` if the kernel has forgotten it.
    """
    ended, ends = os.pipe()
    dropping = threading.Thread(target=_drop, args=(list(inodes), drop, ends), name="drop-pages")
    dropping.start()
    _fail_requests(device, ended)
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


def _fail_requests(device: int, ended: int) -> None:
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
            continue  # it was withdrawn
        unique = wire.IN_HEADER.unpack_from(request)[2]
        with suppress(OSError):  # it has no answer, or was withdrawn
            os.write(device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size, -errno.ENOTCONN, unique))
