"""Requests of the kernel that wait for the end of a command, for the raw transport.

Commands and requests are interleaved by `chronicle.fuse.transport.interleave`.

Those that wait for a blob (`chronicle.fuse.transport.parked_requests`) are interrupted as well by signals that ask a
program to end, even if it handles them: these may wait for half a minute, for something that is elsewhere.

Who waits for a request that was read cannot be killed before it is answered, as who waits for one in the kernel's queue
can. So who is killed gets an answer: the request was interrupted, and is not carried out. The kernel tells of each
signal, also of those that a program handles; for these no call on a disk fails, so only who is about to die is let go.
"""

from __future__ import annotations

import signal
from functools import reduce
from operator import or_
from typing import Final

from chronicle.fuse.transport import wire
from chronicle.fuse.transport.wire import Opcode

__all__ = ["NOT_GIVEN_UP", "Kept", "is_asked_to_end", "is_dying"]

_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""As much as a seal has pending, and 64 of the longest writes."""
_REQUEST_BYTES: Final = 512
"""What keeping the shortest request takes, roughly."""
NOT_GIVEN_UP: Final = frozenset(map(int, (Opcode.FLUSH, Opcode.RELEASE)))
"""The kernel waits for these even if their caller is killed: what was written becomes a version."""
_KILLED: Final = 1 << 8
"""SIGKILL among a thread's own pending signals: what the kernel makes of each signal that ends a process."""
_ASKED_TO_END: Final = sum(1 << number - 1 for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM))
"""Among pending signals, a thread's own and its process's."""


class Kept:
    """Requests as bytes, in the order in which they came.

    Args:
        limit_bytes: when it is full.
    """

    def __init__(self, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._requests: dict[int, bytes] = {}
        """By the kernel's number of each."""
        self._interrupted: dict[int, int] = {}
        """Of those whose callers got a signal: which threads these are."""

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_full(self) -> bool:
        """Whether no more is to be kept."""
        return self._bytes >= self._limit_bytes

    def add(self, request: bytes) -> None:
        """Keep a request."""
        self._requests[wire.IN_HEADER.unpack_from(request)[2]] = request
        self._bytes += len(request) + _REQUEST_BYTES

    def interrupt(self, number: int) -> None:
        """Note that whoever waits for a request got a signal, if it is kept."""
        request = self._requests.get(number)
        if request is not None:
            header = wire.IN_HEADER.unpack_from(request)
            if header[1] not in NOT_GIVEN_UP:
                self._interrupted[number] = header[6]

    def take(self) -> bytes | None:
        """Return the oldest request, and keep it no more; ``None`` if there is none."""
        return self._drop(next(iter(self._requests))) if self._requests else None

    def take_killed(self) -> list[int]:
        """Return the numbers of the requests whose callers wait for an answer to die, and keep those no more."""
        killed = [number for number, thread in self._interrupted.items() if is_dying(thread)]
        for number in killed:
            self._drop(number)
        return killed

    def _drop(self, number: int) -> bytes:
        self._interrupted.pop(number, None)
        request = self._requests.pop(number)
        self._bytes -= len(request) + _REQUEST_BYTES
        return request


def is_dying(thread: int) -> bool:
    """Whether a thread has a signal pending that ends it; one that cannot be looked into lives."""
    return bool(_pending(thread, b"SigPnd:") & _KILLED)


def is_asked_to_end(thread: int) -> bool:
    """Whether a thread has a signal pending that ends it, or by which somebody asks it to."""
    return bool(_pending(thread, b"SigPnd:", b"ShdPnd:") & (_KILLED | _ASKED_TO_END))


def _pending(thread: int, *lines: bytes) -> int:
    """Return the signals that lines of a thread's status name, a bit each; 0 if it cannot be looked into."""
    try:
        with open(f"/proc/{thread}/status", "rb") as status:
            found = [int(line.split()[1], 16) for line in status if line.startswith(lines)]
    except OSError:
        return 0
    return reduce(or_, found, 0)
