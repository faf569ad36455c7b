"""The spare server: a mount server that is forked ahead of its order.

A fork takes a millisecond or two, and much of a server's start is copy-on-write: it writes to some 900 pages that it
shares with the prefork process, if only to count references, and each is copied at that moment. Both can be done ahead.
A *spare* is forked while no order is pending, copies the pages that servers write to, and waits on its channel for its
order.

These pages are learnt from the first two servers. That needs no privilege (bit 56 of ``/proc/<pid>/pagemap``, see
proc(5)), and Linux 5.14 (``MADV_POPULATE_WRITE``); without either, a spare copies its pages when it becomes a server.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import socket
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HotPages", "give_order", "wait_for_order"]

log = logging.getLogger(__name__)

_LENGTH_BYTES: Final = 4
_PAGE: Final = mmap.PAGESIZE
_ENTRY_BYTES: Final = 8
_PRESENT: Final = 1 << 63
_EXCLUSIVE: Final = 1 << 56
"""No other process has it mapped."""
_MADV_POPULATE_WRITE: Final = 23
_CELLS: Final = 4096
"""A number of ranges, and the address and length of each: 32 KiB, of which only the part in use takes memory."""
_LEARNT_FROM: Final = 2
"""Servers. Pages that only one of them wrote to are not copied for others: there may be hundreds."""
_madvise: Final = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class HotPages:
    """The pages that each server writes to, shared by all processes forked from the one that made this."""

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, _CELLS * 8)).cast("Q")
        self._seen: dict[int, frozenset[int]] = {}
        self._is_learning = True

    def learn(self, servers: Iterable[int]) -> None:
        """Inspect servers, by their process ids, until enough were seen."""
        for pid in servers:
            if not self._is_learning:
                return
            try:
                self._seen.setdefault(pid, _own_pages(pid))
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError as error:
                log.info("spare servers copy their pages late: %s", error)
                self._is_learning = False
                return
            if len(self._seen) == _LEARNT_FROM:
                self._is_learning = False
                self._set(frozenset.intersection(*self._seen.values()))
                self._seen = {}

    def _set(self, pages: Iterable[int]) -> None:
        found: list[int] = []  # addresses and lengths by turns
        for address in sorted(pages):
            if found and found[-2] + found[-1] == address:
                found[-1] += _PAGE
            elif len(found) < _CELLS - 2:
                found += [address, _PAGE]
        self._cells[1 : len(found) + 1] = array("Q", found)
        self._cells[0] = len(found)

    def copy(self) -> None:
        """Copy these pages in this process, as if each had been written to."""
        cells = self._cells
        for index in range(1, cells[0], 2):
            _madvise(cells[index], cells[index + 1], _MADV_POPULATE_WRITE)  # a refused range is copied when written to


def _own_pages(pid: int) -> frozenset[int]:
    """Return the addresses of the pages of private writable memory that a process shares with no other.

    Raises:
        OSError: there is no such process, or it may not be inspected.
    """
    found = []
    with open(f"/proc/{pid}/maps", "rb") as maps, open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            bounds, rights, _ = line.split(b" ", 2)
            if rights != b"rw-p":
                continue
            start, end = (int(bound, 16) for bound in bounds.split(b"-"))
            entries = array("Q")
            first = start // _PAGE * _ENTRY_BYTES
            entries.frombytes(os.pread(pagemap.fileno(), (end - start) // _PAGE * _ENTRY_BYTES, first))
            both = _PRESENT | _EXCLUSIVE
            found += [start + number * _PAGE for number, entry in enumerate(entries) if entry & both == both]
    return frozenset(found)


def give_order(channel: socket.socket, order: bytes, listener: socket.socket) -> bool:
    """Make a spare a server: send its order and its control socket. False if it is dead."""
    try:
        socket.send_fds(channel, [len(order).to_bytes(_LENGTH_BYTES, "big") + order], [listener.fileno()])
    except OSError:
        return False
    return True


def wait_for_order(channel: socket.socket) -> tuple[bytes, socket.socket] | None:
    """Wait for an order; None if the zygote needs no server any more."""
    start, fds, _, _ = socket.recv_fds(channel, _LENGTH_BYTES, 1)
    if not fds:
        return None
    length, order = int.from_bytes(start, "big"), b""
    while len(order) < length:
        more = channel.recv(length - len(order))
        if not more:
            return None
        order += more
    return order, socket.socket(fileno=fds[0])
