"""The waiting room: shared memory in which writers that wait for the writer lock leave their commits.

The holder of the lock applies the waiters' commits along with its own, in one transaction with one sync. The requests
are in slots of a file that all processes map, the lock's queue file. It is not part of the journal, and has no meaning
without waiters.

Layout, with integers in native byte order, as the file serves the processes of one machine::

    requested[SLOTS]  done[SLOTS]  wakeup[SLOTS]  then for each slot: length, CRC-32, bytes

A slot holds a request while its two numbers differ. The slot's holder writes the bytes, then a new random number into
``requested``. Only the holder of the writer lock may serve the request. It copies the number into ``done`` once the
work is durable. There is no negative answer: a request that could not be served is left to its waiter, which does the
work itself when it has the lock, and gets the error. So a writer that dies leaves only requests that are not marked
done, and the waiter looks up whether its work was committed.

A waiter sleeps on its wake-up word until its request is done, or until a writer has released the lock and chosen this
waiter as the next holder. A writer looks for a waiter after it released the lock, and a waiter tries the lock after it
made its request, so one of the two sees the other. A wait ends after `_PATIENCE_S`, in case the process that should
wake the waiter died.

The holder of a slot locks a byte of the file. The kernel releases that lock when the process dies, and requests of dead
processes are not served. Only the holder writes the slot's bytes, and a checksum detects a read of half-written bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

from chronicle.journal.sqlite.group_commit import futex
from chronicle.system.locks import is_byte_locked, try_lock_byte, unlock_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["MAX_BYTES", "Request", "Ticket", "WaitingRoom"]

_SLOTS: Final = 64
"""Number of slots. A writer without a free slot does its own work."""
_SLOT_BYTES: Final = 16_384
_HEAD: Final = struct.Struct("=QQ")
MAX_BYTES: Final = _SLOT_BYTES - _HEAD.size
"""Largest request. Turns have some KB; a larger commit waits for the lock."""
_PATIENCE_S: Final = 0.05
"""Many times the duration of a commit. After it a waiter queues for the lock."""


class _Numbers(ctypes.Structure):
    _fields_ = (
        ("requested", ctypes.c_uint64 * _SLOTS),
        ("done", ctypes.c_uint64 * _SLOTS),
        ("wakeup", ctypes.c_uint32 * _SLOTS),
    )


_REQUESTED: Final = slice(_Numbers.requested.offset, _Numbers.requested.offset + _Numbers.requested.size)
_DONE: Final = slice(_Numbers.done.offset, _Numbers.done.offset + _Numbers.done.size)
_FIRST_SLOT: Final = ctypes.sizeof(_Numbers)
_SIZE: Final = _FIRST_SLOT + _SLOTS * _SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Request:
    """A commit to apply for a waiter."""

    slot: int
    number: int
    data: bytes


class _Shared:
    """The mapped file."""

    def __init__(self, path: Path) -> None:
        # A new open file description: a mapping keeps it open, and must not extend the life of another one's locks.
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.bytes = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)
        self.numbers = _Numbers.from_buffer(self.bytes)

    def put(self, slot: int, data: bytes) -> None:
        start = _FIRST_SLOT + slot * _SLOT_BYTES
        self.bytes[start : start + _HEAD.size + len(data)] = _HEAD.pack(len(data), crc32(data)) + data

    def get(self, slot: int) -> bytes | None:
        """Return a slot's bytes; ``None`` while they are being written."""
        start = _FIRST_SLOT + slot * _SLOT_BYTES
        length, checksum = _HEAD.unpack_from(self.bytes, start)
        if length > MAX_BYTES:
            return None
        data = self.bytes[start + _HEAD.size : start + _HEAD.size + length]
        return data if crc32(data) == checksum else None

    def open_slots(self) -> list[int]:
        """Return the slots that hold a request."""
        if self.bytes[_REQUESTED] == self.bytes[_DONE]:  # the common case
            return []
        requested, done = self.numbers.requested, self.numbers.done
        return [slot for slot in range(_SLOTS) if requested[slot] != done[slot]]

    def wake(self, slot: int) -> None:
        wakeups = self.numbers.wakeup
        wakeups[slot] = (wakeups[slot] + 1) & 0xFFFF_FFFF
        futex.wake(self._wakeup(slot))

    def wait(self, slot: int, before: int, timeout_s: float) -> None:
        futex.wait(self._wakeup(slot), before, timeout_s)

    def _wakeup(self, slot: int) -> ctypes.c_uint32:
        return ctypes.c_uint32.from_buffer(self.bytes, _Numbers.wakeup.offset + 4 * slot)


class Ticket:
    """A request in a slot, which `close` releases."""

    def __init__(self, room: WaitingRoom, shared: _Shared, slot: int, number: int, wakeups_before: int) -> None:
        self._room = room
        self._shared = shared
        self._slot = slot
        self._number = number
        self._wakeups_before = wakeups_before

    def is_done(self) -> bool:
        """Whether the request was served, durably."""
        return bool(self._shared.numbers.done[self._slot] == self._number)

    def wait(self) -> None:
        """Wait until the request is served, or until this waiter should take the lock itself."""
        if not self.is_done():
            self._shared.wait(self._slot, self._wakeups_before, _PATIENCE_S)

    def withdraw(self) -> None:
        """Withdraw the request. Only for the holder of the writer lock."""
        self._shared.numbers.done[self._slot] = self._number

    def close(self) -> None:
        """Release the slot. A writer that has read the request already may still serve it."""
        self._room.release(self._slot)


class WaitingRoom:
    """The slots of one journal, for one open store. Safe to share between threads.

    Args:
        path: the lock's queue file, which must exist.
        fd: the same file, open, for the locks on slots; the caller closes it, which releases all slots.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._shared: _Shared | None = None
        self._guard = threading.Lock()
        self._held: set[int] = set()

    def submit(self, data: bytes) -> Ticket | None:
        """Submit a request; ``None`` if no slot is free or the data is too large for one."""
        if len(data) > MAX_BYTES:
            return None
        shared = self._open(make=True)
        slot = self._take_slot() if shared is not None else None
        if shared is None or slot is None:
            return None
        shared.put(slot, data)
        number, wakeups_before = secrets.randbits(64), shared.numbers.wakeup[slot]
        shared.numbers.requested[slot] = number
        return Ticket(self, shared, slot, number, wakeups_before)

    def requests(self) -> Iterator[Request]:
        """Yield the open requests. Only for the holder of the writer lock."""
        shared = self._open(make=False)
        if shared is None:
            return
        for slot in shared.open_slots():
            number = shared.numbers.requested[slot]
            if not self._is_held(slot):
                shared.numbers.done[slot] = number
                continue
            data = shared.get(slot)
            if data:
                yield Request(slot, number, data)

    def mark_done(self, done: Sequence[Request]) -> None:
        """Mark requests done, after the sync. Only for the holder of the writer lock."""
        if self._shared is not None:
            for each in done:
                self._shared.numbers.done[each.slot] = each.number

    def wake(self, done: Sequence[Request]) -> None:
        """Wake the waiters of served requests, and one other waiter. Call it after the release of the lock."""
        shared = self._shared
        if shared is not None:
            for each in done:
                shared.wake(each.slot)
            waiting = shared.open_slots()
            if waiting:
                shared.wake(secrets.choice(waiting))

    def release(self, slot: int) -> None:
        """Release a slot."""
        with self._guard:
            self._held.discard(slot)
            if self._fd >= 0:
                unlock_bytes(self._fd, slot, 1)

    def close(self) -> None:
        """Unmap the file."""
        with self._guard:
            self.forget()

    def forget(self) -> None:
        """As `close`, for a forked child: the thread that held the guard may not exist there."""
        self._shared = None  # unmapped with its last user
        self._fd = -1

    def _open(self, *, make: bool) -> _Shared | None:
        if self._shared is not None:
            return self._shared
        if self._fd >= 0 and (make or os.fstat(self._fd).st_size >= _SIZE) and futex.is_supported():
            with self._guard:
                try:
                    if os.fstat(self._fd).st_size < _SIZE:
                        # Allocated: a first write to a hole on a full disk would kill the process (SIGBUS).
                        os.posix_fallocate(self._fd, 0, _SIZE)
                    self._shared = _Shared(self._path)
                except OSError:  # such as a full disk: each writer then does its own work
                    return None
        return self._shared

    def _take_slot(self) -> int | None:
        with self._guard:
            for step in range(_SLOTS if self._fd >= 0 else 0):
                slot = (os.getpid() + step) % _SLOTS
                if slot not in self._held and try_lock_byte(self._fd, slot):
                    self._held.add(slot)
                    return slot
        return None

    def _is_held(self, slot: int) -> bool:
        return slot in self._held or is_byte_locked(self._fd, slot)
