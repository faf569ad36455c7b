"""Requests that are deferred until a command has ended, for the raw transport.

`chronicle.fuse.transport.interleave` is the interleaving of commands and requests.

The kernel can withdraw a queued request when its caller is killed, but not one that was read: its caller cannot die
before it is answered. So the requests of killed callers are answered with EINTR and never executed. The kernel reports
every signal by INTERRUPT, including those that the program handles; no system call on a disk fails for these, so only
requests of callers that are being killed are answered so.

Parked requests (`chronicle.fuse.transport.parked_requests`) wait for a remote store, for up to half a minute. They are
interrupted by termination signals too, even if the program handles them.
"""

from __future__ import annotations

import signal
from functools import reduce
from operator import or_
from typing import Final

from chronicle.fuse.transport import wire
from chronicle.fuse.transport.wire import Opcode

__all__ = ["UNINTERRUPTIBLE", "DeferredRequests", "is_being_killed", "is_being_terminated"]

_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""As much as a seal has pending, and 64 of the longest writes."""
_REQUEST_BYTES: Final = 512
"""Approximate overhead of a deferred request."""
UNINTERRUPTIBLE: Final = frozenset(map(int, (Opcode.FLUSH, Opcode.RELEASE)))
"""The kernel waits for these even if their caller is killed: they turn written content into a version."""
_KILLED: Final = 1 << 8
"""SIGKILL in a thread's own pending signals: the kernel turns every signal that ends a process into it."""
_TERMINATION: Final = sum(1 << number - 1 for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM))
"""In the pending signals of a thread and of its process."""


class DeferredRequests:
    """Requests as bytes, in the order of their arrival.

    Args:
        limit_bytes: the queue is full from this size on.
    """

    def __init__(self, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._requests: dict[int, bytes] = {}
        """By the kernel's request number."""
        self._interrupted: dict[int, int] = {}
        """Thread ids of callers that have a signal pending, by request number."""

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_full(self) -> bool:
        """Whether no further request may be added."""
        return self._bytes >= self._limit_bytes

    def add(self, request: bytes) -> None:
        """Add a request."""
        self._requests[wire.IN_HEADER.unpack_from(request)[2]] = request
        self._bytes += len(request) + _REQUEST_BYTES

    def interrupt(self, number: int) -> None:
        """Record that a request's caller has a signal pending. Does nothing for requests that are not here."""
        request = self._requests.get(number)
        if request is not None:
            header = wire.IN_HEADER.unpack_from(request)
            if header[1] not in UNINTERRUPTIBLE:
                self._interrupted[number] = header[6]

    def take(self) -> bytes | None:
        """Remove and return the oldest request; ``None`` if there is none."""
        return self._remove(next(iter(self._requests))) if self._requests else None

    def take_killed(self) -> list[int]:
        """Remove the requests of callers that are being killed, and return their numbers."""
        killed = [number for number, thread in self._interrupted.items() if is_being_killed(thread)]
        for number in killed:
            self._remove(number)
        return killed

    def _remove(self, number: int) -> bytes:
        self._interrupted.pop(number, None)
        request = self._requests.pop(number)
        self._bytes -= len(request) + _REQUEST_BYTES
        return request


def is_being_killed(thread: int) -> bool:
    """Whether a fatal signal is pending for a thread; False for a thread that cannot be inspected."""
    return bool(_pending(thread, b"SigPnd:") & _KILLED)


def is_being_terminated(thread: int) -> bool:
    """Whether a fatal signal or a termination signal is pending for a thread or its process."""
    return bool(_pending(thread, b"SigPnd:", b"ShdPnd:") & (_KILLED | _TERMINATION))


def _pending(thread: int, *lines: bytes) -> int:
    """Return the signals in the named lines of a thread's status as a bit mask; 0 if it cannot be inspected."""
    try:
        with open(f"/proc/{thread}/status", "rb") as status:
            found = [int(line.split()[1], 16) for line in status if line.startswith(lines)]
    except OSError:
        return 0
    return reduce(or_, found, 0)
