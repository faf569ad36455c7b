"""The waiting room: shared memory in which writers that wait for the writer lock leave their commits.

The holder of the lock does the commits of the waiters along with its own: one transaction and one sync for all. The
requests lie in slots of a file that all processes map, the lock's queue file. It is no part of the journal, and means
nothing once nobody waits.

Layout, integers in the machine's order, as the file serves the processes of one machine::

    requested[SLOTS]  done[SLOTS]  wakeup[SLOTS]  then for each slot: length, CRC-32, bytes

A slot holds a request while its two numbers differ. The slot's holder writes the bytes, then a new random number into
``requested``. The holder of the writer lock, and nobody else, may do the request, and copies the number into ``done``
once the work is durable. There is no other answer: a request that could not be done is left to its waiter, which does
the work itself when it has the lock, and meets the error. So a writer that dies leaves only requests that are not
marked done; whether the work is there, the waiter looks up.

A waiter sleeps on its wake-up word until its request is done, or until a writer has released the lock and chose this
waiter to take it next. A writer looks for that waiter after it released the lock, and a waiter tries the lock after it
made its request: so one of the two sees the other. A wait lasts no longer than `_PATIENCE_S`, in case the process that
should wake the waiter died.

The holder of a slot has a lock on its byte of the file, which ends with the process: requests of the dead are not done.
Nobody but the holder writes the bytes, and a checksum reveals bytes that are being changed.
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
"""A waiter that finds none free does its own work."""
_SLOT_BYTES: Final = 16_384
_HEAD: Final = struct.Struct("=QQ")
MAX_BYTES: Final = _SLOT_BYTES - _HEAD.size
"""Of a request. Turns are of some KB; a larger commit waits for the lock."""
_PATIENCE_S: Final = 0.05
"""Many times what a commit takes. After it a waiter queues for the lock."""


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
    """A commit that waits to be done."""

    slot: int
    number: int
    data: bytes


class _Shared:
    """The file in memory."""

    def __init__(self, path: Path) -> None:
        # A new open file: a mapping keeps its file open, and must not keep the locks of another one.
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
        """Return a slot's bytes; ``None`` while they are being changed."""
        start = _FIRST_SLOT + slot * _SLOT_BYTES
        length, checksum = _HEAD.unpack_from(self.bytes, start)
        if length > MAX_BYTES:
            return None
        data = self.bytes[start + _HEAD.size : start + _HEAD.size + length]
        return data if crc32(data) == checksum else None

    def open_slots(self) -> list[int]:
        """Return the slots that hold a request."""
        if self.bytes[_REQUESTED] == self.bytes[_DONE]:  # the usual case
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
        """Whether the work is done, durably."""
        return bool(self._shared.numbers.done[self._slot] == self._number)

    def wait(self) -> None:
        """Wait until the work is done, or until this waiter should take the lock itself."""
        if not self.is_done():
            self._shared.wait(self._slot, self._wakeups_before, _PATIENCE_S)

    def withdraw(self) -> None:
        """Take the request back. For the holder of the writer lock."""
        self._shared.numbers.done[self._slot] = self._number

    def close(self) -> None:
        """Release the slot. A writer that has read the request already may still do it."""
        self._room.release(self._slot)


class WaitingRoom:
    """The slots of one journal, as one open store sees them. Safe to share between threads.

    Args:
        path: the lock's queue file; it exists.
        fd: the same file, open, for the locks on slots; it stays the caller's to close, which releases all slots.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._shared: _Shared | None = None
        self._guard = threading.Lock()
        self._held: set[int] = set()

    def submit(self, data: bytes) -> Ticket | None:
        """Make a request; ``None`` when no slot is free or the data is too large for one."""
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
        """Yield the requests. For the holder of the writer lock."""
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
        """Mark requests done, after the sync. For the holder of the writer lock."""
        if self._shared is not None:
            for each in done:
                self._shared.numbers.done[each.slot] = each.number

    def wake(self, done: Sequence[Request]) -> None:
        """Wake the waiters of done requests, and one that still waits. To be called after the lock was released."""
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
        """Stop using the file."""
        with self._guard:
            self.forget()

    def forget(self) -> None:
        """As `close`, for a forked child, in which the thread that held the guard may be missing."""
        self._shared = None  # unmapped with its last user
        self._fd = -1

    def _open(self, *, make: bool) -> _Shared | None:
        if self._shared is not None:
            return self._shared
        if self._fd >= 0 and (make or os.fstat(self._fd).st_size >= _SIZE) and futex.is_supported():
            with self._guard:
                try:
                    if make:
                        # Allocated: a first write to a page without space on the disk would end the process (SIGBUS).
                        os.posix_fallocate(self._fd, 0, _SIZE)
                    self._shared = _Shared(self._path)
                except OSError:  # such as a full disk: every writer does its own work then
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
