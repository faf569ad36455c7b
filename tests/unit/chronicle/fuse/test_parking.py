"""Parking: what follows the queue of parked requests, however they leave it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy
from chronicle.fuse.transport import parked_requests
from chronicle.fuse.transport.parked_requests import ParkedQueue
from chronicle.fuse.transport.parking import Parking
from chronicle.fuse.transport.request_poll import RequestPoll

if TYPE_CHECKING:
    from collections.abc import Iterator


class Session:
    """A session that parks numbers, and executes a parked one by noting it."""

    def __init__(self) -> None:
        self.queue: ParkedQueue[int] = ParkedQueue()
        self.policy = ParkingPolicy(lambda: 0)
        self.poll = RequestPoll()
        self.executed: list[int] = []
        self.parking = Parking(self.queue, self.policy, self.poll, self.execute, lambda: None)
        self.parking.begin()

    def execute(self, request: int, _: FetchedBlobs) -> None:
        self.executed.append(request)

    def park(self, request: int) -> Future[bytes]:
        read: Future[bytes] = Future()
        fetched = FetchedBlobs()
        fetched.wait_for_read(read, [], 60, is_exclusive=True)
        self.parking.park(request, fetched)
        return read

    @property
    def is_timed(self) -> bool:
        return self.poll._timer is not None


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setattr(parked_requests, "_MAX_REQUESTS", 2)
    session = Session()
    yield session
    session.queue.close()


def test_requests_are_parked_while_there_is_room_and_checked_while_there_are_some(session: Session) -> None:
    assert (session.policy.enabled, session.is_timed) == (True, False)
    first = session.park(1)
    assert (session.policy.enabled, session.is_timed) == (True, True)
    second = session.park(2)
    assert (session.policy.enabled, session.is_timed) == (False, True)
    first.set_result(b"")
    session.parking.resume()
    assert (session.executed, session.policy.enabled, session.is_timed) == ([1], True, True)
    second.set_result(b"")
    session.parking.resume()
    assert (session.executed, session.policy.enabled, session.is_timed) == ([1, 2], True, False)


def test_requests_of_callers_that_are_gone_leave_room(session: Session) -> None:
    session.park(1)
    session.park(2)
    assert session.queue.take_if(lambda _: True) == [1, 2]
    session.parking.update()
    assert (session.policy.enabled, session.is_timed) == (True, False)


def test_at_the_end_nothing_is_parked(session: Session) -> None:
    session.park(1)
    assert session.parking.end() == [1]
    assert not session.policy.enabled
    assert not session.executed
