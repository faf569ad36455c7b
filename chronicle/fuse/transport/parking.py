"""The parking of one session's requests, for both transports: a request's form and its execution are the session's.

Three things follow the queue (`Parking.update`): the policy parks further requests while there is room, the poll
watches the queue from the first parked request on, and a timer checks it while it is not empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy
    from chronicle.fuse.transport.parked_requests import ParkedQueue
    from chronicle.fuse.transport.request_poll import RequestPoll

__all__ = ["Parking"]

R = TypeVar("R")

_CHECK_INTERVAL_S: Final = 0.5
"""Interval at which parked requests are checked for expired deadlines and killed callers."""


class Parking(Generic[R]):
    """Parks the requests of one session, in its thread.

    Args:
        queue: the parked requests.
        policy: decides which requests may be parked.
        poll: the session's.
        execute: executes a request again, with the blobs that it has read; that may park it again. What it raises ends
            the session.
        check: called at an interval while requests are parked; it calls `resume`.
    """

    def __init__(
        self,
        queue: ParkedQueue[R],
        policy: ParkingPolicy,
        poll: RequestPoll,
        execute: Callable[[R, FetchedBlobs], None],
        check: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._policy = policy
        self._poll = poll
        self._execute = execute
        self._check = check
        self._is_watched = self._is_timed = False

    def begin(self) -> None:
        """Allow requests to be parked: the session serves."""
        self._policy.enabled = True

    def end(self) -> list[R]:
        """Park no more; remove and return the parked requests, which the caller fails."""
        self._policy.enabled = False
        return [request for request, _ in self._queue.take_all()]

    def watched(self) -> tuple[int, Callable[[], None]]:
        """Return the descriptor that is readable when a request may be due, and its callback."""
        if not self._is_watched:  # on first use: each descriptor in the poll costs every request something
            self._is_watched = True
            self._poll.add(self._queue.fileno(), self.resume)
        return self._queue.fileno(), self.resume

    def park(self, request: R, fetched: FetchedBlobs, size: int = 0) -> None:
        """Park a request of ``size`` bytes until the read that it waits for has ended, or its deadline has expired."""
        self.watched()
        self._queue.add(request, fetched, size)
        self.update()

    def resume(self) -> None:
        """Execute the requests that are due."""
        with self._poll.resuming():
            for request, fetched in self._queue.take_due():
                self._poll.begin_request()
                self._execute(request, fetched)
        self.update()

    def update(self) -> None:
        """Adapt policy and timer after requests were added to the queue or removed."""
        self._policy.enabled = not self._queue.is_full
        if self._is_timed != bool(self._queue):
            self._is_timed = not self._is_timed
            self._poll.call_every(_CHECK_INTERVAL_S, self._check if self._is_timed else None)
