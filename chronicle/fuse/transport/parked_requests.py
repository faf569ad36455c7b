"""Requests that were put aside because a blob that they need is on its way from a far store.

Nobody has an answer to them, so they may happen in any order among themselves and with others: as in a server with a
thread for each request. The kernel does not send a second one where the order counts: it holds what the first one is
about (a page, the lock of a directory or file) until that is answered.

    request ──► Pending ──► put aside ──► the read ends, or its deadline comes ──► carried out again
                                └──► its caller is told to end ──► EINTR, and nothing was done
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from chronicle.fuse.transport import wire
from chronicle.fuse.transport.deferred_requests import NOT_GIVEN_UP, is_asked_to_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.fuse.deadlines import Supply

__all__ = ["LOOK_S", "Parked", "ParkedRequests"]

R = TypeVar("R")

LOOK_S: Final = 0.5
"""How often those that wait are looked at, for their deadlines and for callers that were killed."""
_MOST: Final = 512
_MOST_BYTES: Final = 32 * 1024 * 1024


class Parked(Generic[R]):
    """Requests that wait, whatever a transport keeps of one. Belongs to the server's thread; has a descriptor."""

    def __init__(self) -> None:
        self._requests: list[tuple[R, Supply, int]] = []
        self._bytes = 0
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_full(self) -> bool:
        """Whether no more are to be put aside."""
        return len(self._requests) >= _MOST or self._bytes >= _MOST_BYTES

    def fileno(self) -> int:
        """Return a descriptor that is readable when one may be due."""
        return self._event

    def add(self, request: R, supply: Supply, size: int = 0) -> None:
        """Put a request aside that takes so many bytes."""
        self._requests.append((request, supply, size))
        self._bytes += size
        supply.call_back(self._wake)

    def take_due(self) -> list[tuple[R, Supply]]:
        """Return the requests that are to be carried out again, and keep them no more."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass
        now_s = time.monotonic()
        return self._take([item for item in self._requests if item[1].is_due(now_s)])

    def take_all(self) -> list[tuple[R, Supply]]:
        """Return all requests, and keep them no more."""
        return self._take(self._requests)

    def close(self) -> None:
        """Close the descriptor. Reads that end later have nobody to tell."""
        event, self._event = self._event, -1
        os.close(event)

    def take_if(self, is_meant: Callable[[R], bool]) -> list[R]:
        """Return the requests that are meant, and keep them no more."""
        return [request for request, _ in self._take([item for item in self._requests if is_meant(item[0])])]

    def _take(self, taken: list[tuple[R, Supply, int]]) -> list[tuple[R, Supply]]:
        if taken:
            numbers = {id(item) for item in taken}
            self._requests = [item for item in self._requests if id(item) not in numbers]
            self._bytes -= sum(size for _, _, size in taken)
        return [(request, supply) for request, supply, _ in taken]

    def _wake(self) -> None:
        event = self._event
        if event >= 0:
            try:
                os.eventfd_write(event, 1)
            except OSError:  # closed at this moment: the process ends
                return


class ParkedRequests(Parked[bytes]):
    """Requests of the raw transport that wait, as bytes, and whose callers may be told to end."""

    def __init__(self) -> None:
        super().__init__()
        self._interrupted: dict[int, int] = {}
        """Of those whose callers got a signal: the kernel's number of each, and which threads these are."""

    def interrupt(self, number: int) -> None:
        """Note that whoever waits for a request got a signal, if the request is here."""
        for request, _, _ in self._requests:
            header = wire.IN_HEADER.unpack_from(request)
            if header[2] == number and header[1] not in NOT_GIVEN_UP:
                self._interrupted[number] = header[6]

    def take_ending(self) -> list[int]:
        """Return the numbers of the requests whose callers wait for an answer to end, and keep those no more."""
        if not self._interrupted:
            return []
        ending = {number for number, thread in self._interrupted.items() if is_asked_to_end(thread)}
        taken = self.take_if(lambda request: wire.IN_HEADER.unpack_from(request)[2] in ending)
        waiting = {wire.IN_HEADER.unpack_from(request)[2] for request, _, _ in self._requests}
        self._interrupted = {number: thread for number, thread in self._interrupted.items() if number in waiting}
        return [wire.IN_HEADER.unpack_from(request)[2] for request in taken]
