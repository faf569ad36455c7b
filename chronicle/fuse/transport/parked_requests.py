"""Parked requests: they wait for a blob of a remote store while others are served.

Their callers have no answer yet, so parked requests may be executed in any order among themselves and with others, as
in a server with a thread per request. Where order matters the kernel sends no second request: it holds the object of
the first one (a page, the lock of a directory or file) until that is answered.

    request ──► Pending ──► parked ──► the read ends, or its deadline expires ──► executed again
                               └──► its caller gets a termination signal ──► EINTR, without any effect
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from chronicle.fuse.transport import wire
from chronicle.fuse.transport.deferred_requests import UNINTERRUPTIBLE, is_being_terminated

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.fuse.deadlines import FetchedBlobs

__all__ = ["ParkedQueue", "ParkedRequests"]

R = TypeVar("R")

_MAX_REQUESTS: Final = 512
_MAX_BYTES: Final = 32 * 1024 * 1024


class ParkedQueue(Generic[R]):
    """Parked requests in a transport's own form. Belongs to the server's thread; has a descriptor to poll.

    The descriptor is made when it is first needed: most servers never park a request.
    """

    def __init__(self) -> None:
        self._requests: list[tuple[R, FetchedBlobs, int]] = []
        self._bytes = 0
        self._event = -1

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_full(self) -> bool:
        """Whether no further request may be parked."""
        return len(self._requests) >= _MAX_REQUESTS or self._bytes >= _MAX_BYTES

    def fileno(self) -> int:
        """Return a descriptor that is readable when a request may be due."""
        if self._event < 0:
            self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self._event

    def add(self, request: R, fetched: FetchedBlobs, size: int = 0) -> None:
        """Park a request of ``size`` bytes."""
        self._requests.append((request, fetched, size))
        self._bytes += size
        fetched.on_done(self._wake)

    def take_due(self) -> list[tuple[R, FetchedBlobs]]:
        """Remove and return the requests that are to be executed again."""
        try:
            os.eventfd_read(self.fileno())
        except BlockingIOError:
            pass
        now_s = time.monotonic()
        return self._take([item for item in self._requests if item[1].is_due(now_s)])

    def take_all(self) -> list[tuple[R, FetchedBlobs]]:
        """Remove and return all requests."""
        return self._take(self._requests)

    def close(self) -> None:
        """Close the descriptor. Reads that end later notify nothing."""
        event, self._event = self._event, -1
        if event >= 0:
            os.close(event)

    def take_if(self, predicate: Callable[[R], bool]) -> list[R]:
        """Remove and return the requests that a predicate selects."""
        return [request for request, _ in self._take([item for item in self._requests if predicate(item[0])])]

    def _take(self, taken: list[tuple[R, FetchedBlobs, int]]) -> list[tuple[R, FetchedBlobs]]:
        if taken:
            numbers = {id(item) for item in taken}
            self._requests = [item for item in self._requests if id(item) not in numbers]
            self._bytes -= sum(size for _, _, size in taken)
        return [(request, fetched) for request, fetched, _ in taken]

    def _wake(self) -> None:
        event = self._event
        if event >= 0:
            try:
                os.eventfd_write(event, 1)
            except OSError:  # closed concurrently: the process ends
                return


class ParkedRequests(ParkedQueue[bytes]):
    """Parked requests of the raw transport, as bytes; their callers' signals are known."""

    def __init__(self) -> None:
        super().__init__()
        self._interrupted: dict[int, int] = {}
        """Thread ids of callers that have a signal pending, by request number."""

    def interrupt(self, number: int) -> None:
        """Record that a request's caller has a signal pending. Does nothing for requests that are not here."""
        for request, _, _ in self._requests:
            header = wire.IN_HEADER.unpack_from(request)
            if header[2] == number and header[1] not in UNINTERRUPTIBLE:
                self._interrupted[number] = header[6]

    def take_terminated(self) -> list[int]:
        """Remove the requests of callers that are being terminated, and return their numbers."""
        if not self._interrupted:
            return []
        ending = {number for number, thread in self._interrupted.items() if is_being_terminated(thread)}
        taken = self.take_if(lambda request: wire.IN_HEADER.unpack_from(request)[2] in ending)
        left = {wire.IN_HEADER.unpack_from(request)[2] for request, _, _ in self._requests}
        self._interrupted = {number: thread for number, thread in self._interrupted.items() if number in left}
        return [wire.IN_HEADER.unpack_from(request)[2] for request in taken]
