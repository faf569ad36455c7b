"""The waiting room: where those who wait for the writer lock leave what they want written.

Who has the lock does the work of those who wait for it along with its own: one transaction and one sync for all. What
they want lies in places of a file that all processes map into their memory, the lock's queue file. It is no part of the
journal, and means nothing once nobody waits.

Layout, integers in the machine's order, as the file serves the processes of one machine::

    asked[PLACES]  answered[PLACES]  bell[PLACES]  then for each place: length, CRC-32, bytes

Something is asked for at a place while its two numbers differ. Who takes a place puts the bytes there, then a new
random number into ``asked``. Who has the writer lock, and nobody else, may do what is asked for, and copies the number
into ``answered`` once that is durable. There is no other answer: what it could not do, the one who waits does itself
when it has the lock, and meets the error. So a writer that dies leaves nothing but work that is not answered; whether
it was done is to be looked up then.

Who waits sleeps until its bell is rung: when it is answered; or when a writer has left, and it is the one who shall
take the lock next. A writer looks for that one after it let the lock go, and who waits tries the lock after it asked:
so one of the two sees the other. A bell that nobody lives to ring is not waited for longer than `_PATIENCE_S`.

A place is held by a lock on its byte of the file, which ends with its holder: what the dead asked for is not done.
Nobody but the holder writes the bytes, and a checksum tells those that are being changed.
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

__all__ = ["MOST_BYTES", "Asked", "Ticket", "WaitingRoom"]

_PLACES: Final = 64
"""Who finds none free writes by itself."""
_PLACE_BYTES: Final = 16_384
_HEAD: Final = struct.Struct("=QQ")
MOST_BYTES: Final = _PLACE_BYTES - _HEAD.size
"""In one place. Turns are of some KB; larger ones are written by those who made them."""
_PATIENCE_S: Final = 0.05
"""Many times what a commit takes. Who has waited so long goes and queues for the lock."""


class _Numbers(ctypes.Structure):
    _fields_ = (
        ("asked", ctypes.c_uint64 * _PLACES),
        ("answered", ctypes.c_uint64 * _PLACES),
        ("bell", ctypes.c_uint32 * _PLACES),
    )


_ASKED: Final = slice(_Numbers.asked.offset, _Numbers.asked.offset + _Numbers.asked.size)
_ANSWERED: Final = slice(_Numbers.answered.offset, _Numbers.answered.offset + _Numbers.answered.size)
_FIRST_PLACE: Final = ctypes.sizeof(_Numbers)
_SIZE: Final = _FIRST_PLACE + _PLACES * _PLACE_BYTES


@dataclass(frozen=True, slots=True)
class Asked:
    """What someone wants written."""

    place: int
    number: int
    data: bytes


class _Shared:
    """The file in memory."""

    def __init__(self, path: Path) -> None:
        # Opened anew: a mapping keeps its file open, and must not keep the locks of another one.
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.bytes = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)
        self.numbers = _Numbers.from_buffer(self.bytes)

    def put(self, place: int, data: bytes) -> None:
        start = _FIRST_PLACE + place * _PLACE_BYTES
        self.bytes[start : start + _HEAD.size + len(data)] = _HEAD.pack(len(data), crc32(data)) + data

    def get(self, place: int) -> bytes | None:
        """Return what lies at a place; ``None`` when it is being changed."""
        start = _FIRST_PLACE + place * _PLACE_BYTES
        length, checksum = _HEAD.unpack_from(self.bytes, start)
        if length > MOST_BYTES:
            return None
        data = self.bytes[start + _HEAD.size : start + _HEAD.size + length]
        return data if crc32(data) == checksum else None

    def open_places(self) -> list[int]:
        """Return the places where something is asked for."""
        if self.bytes[_ASKED] == self.bytes[_ANSWERED]:  # the usual case
            return []
        asked, answered = self.numbers.asked, self.numbers.answered
        return [place for place in range(_PLACES) if asked[place] != answered[place]]

    def ring(self, place: int) -> None:
        bells = self.numbers.bell
        bells[place] = (bells[place] + 1) & 0xFFFF_FFFF
        futex.wake(self._bell(place))

    def wait_for_bell(self, place: int, before: int, timeout_s: float) -> None:
        futex.wait(self._bell(place), before, timeout_s)

    def _bell(self, place: int) -> ctypes.c_uint32:
        return ctypes.c_uint32.from_buffer(self.bytes, _Numbers.bell.offset + 4 * place)


class Ticket:
    """A place in a waiting room, to be given back by `close`."""

    def __init__(self, room: WaitingRoom, shared: _Shared, place: int, number: int, bell: int) -> None:
        self._room = room
        self._shared = shared
        self._place = place
        self._number = number
        self._bell = bell

    def is_answered(self) -> bool:
        """Whether what was asked for is written."""
        return bool(self._shared.numbers.answered[self._place] == self._number)

    def wait(self) -> None:
        """Wait until it is written, or until one should take the lock oneself."""
        if not self.is_answered():
            self._shared.wait_for_bell(self._place, self._bell, _PATIENCE_S)

    def take_back(self) -> None:
        """Ask no more. For the one who has the writer lock."""
        self._shared.numbers.answered[self._place] = self._number

    def close(self) -> None:
        """Give the place back; what was asked for may still be done, when a writer has read it already."""
        self._room.give_back(self._place)


class WaitingRoom:
    """The places of one journal, as one open store sees them. Any number of threads may use it.

    Args:
        path: the lock's queue file; it is there.
        fd: the same file, open, for the locks on places; it stays the caller's to close, which lets all places go.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._shared: _Shared | None = None
        self._guard = threading.Lock()
        self._held: set[int] = set()

    def ask(self, data: bytes) -> Ticket | None:
        """Leave what is to be written; ``None`` when there is no place for it."""
        if len(data) > MOST_BYTES:
            return None
        shared = self._open(make=True)
        place = self._take_place() if shared is not None else None
        if shared is None or place is None:
            return None
        shared.put(place, data)
        number, bell = secrets.randbits(64), shared.numbers.bell[place]
        shared.numbers.asked[place] = number
        return Ticket(self, shared, place, number, bell)

    def asked(self) -> Iterator[Asked]:
        """Yield what is asked for. For the one who has the writer lock."""
        shared = self._open(make=False)
        if shared is None:
            return
        for place in shared.open_places():
            number = shared.numbers.asked[place]
            if not self._is_held(place):
                shared.numbers.answered[place] = number
                continue
            data = shared.get(place)
            if data:
                yield Asked(place, number, data)

    def answer(self, done: Sequence[Asked]) -> None:
        """Say that what was asked for is written, durably. For the one who has the writer lock, still."""
        if self._shared is not None:
            for each in done:
                self._shared.numbers.answered[each.place] = each.number

    def ring(self, done: Sequence[Asked]) -> None:
        """Wake those who were answered, and one who still waits. For the one who just let the writer lock go."""
        shared = self._shared
        if shared is not None:
            for each in done:
                shared.ring(each.place)
            waiting = shared.open_places()
            if waiting:
                shared.ring(secrets.choice(waiting))

    def give_back(self, place: int) -> None:
        """Let a place go."""
        with self._guard:
            self._held.discard(place)
            if self._fd >= 0:
                unlock_bytes(self._fd, place, 1)

    def close(self) -> None:
        """Use the file no more."""
        with self._guard:
            self.forget()

    def forget(self) -> None:
        """As `close`, in a forked child, where the thread that had the guard may not be."""
        self._shared = None  # unmapped when the last one who uses it has ended
        self._fd = -1

    def _open(self, *, make: bool) -> _Shared | None:
        if self._shared is not None:
            return self._shared
        if self._fd >= 0 and (make or os.fstat(self._fd).st_size >= _SIZE) and futex.is_supported():
            with self._guard:
                try:
                    if make:
                        # Allocated, as a page that gets no space when it is first written to ends the process.
                        os.posix_fallocate(self._fd, 0, _SIZE)
                    self._shared = _Shared(self._path)
                except OSError:  # such as a full disk; everyone writes by itself then
                    return None
        return self._shared

    def _take_place(self) -> int | None:
        with self._guard:
            for step in range(_PLACES if self._fd >= 0 else 0):
                place = (os.getpid() + step) % _PLACES
                if place not in self._held and try_lock_byte(self._fd, place):
                    self._held.add(place)
                    return place
        return None

    def _is_held(self, place: int) -> bool:
        return place in self._held or is_byte_locked(self._fd, place)
