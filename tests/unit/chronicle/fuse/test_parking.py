"""Parking: what follows the queue of parked requests, however they leave it."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy
from chronicle.fuse.transport import parked_requests
from chronicle.fuse.transport.parked_requests import ParkedQueue
from chronicle.fuse.transport.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator


class NumberSession(Session[int]):
    """A session that parks numbers, and executes a parked one by noting it."""

    def __init__(self) -> None:
        self.queue: ParkedQueue[int] = ParkedQueue()
        self.policy = ParkingPolicy(lambda: 0)
        super().__init__(Path(), None, self.queue, self.policy, source="numbers", allow_other=False)
        self.executed: list[int] = []
        self.policy.enabled = True

    def park(self, request: int) -> Future[bytes]:
        read: Future[bytes] = Future()
        fetched = FetchedBlobs()
        fetched.wait_for_read(read, [], 60, is_exclusive=True)
        self._park(request, fetched)
        return read

    def resume(self) -> None:
        self._resume_parked()

    def update(self) -> None:
        self._update_parking()

    def end(self) -> list[int]:
        return self._end_parking()

    @property
    def is_timed(self) -> bool:
        return self._poll._timer is not None

    def mount(self) -> None: ...

    def close(self) -> None:
        self.queue.close()

    def _serve(self) -> None: ...

    def _serve_one(self) -> bool:
        return False

    def _replay_deferred(self) -> None: ...

    def _execute_parked(self, request: int, fetched: FetchedBlobs) -> None:
        self.executed.append(request)

    def _fail_waiting(self) -> None: ...

    def _drop_name(self, parent: int, name: bytes) -> None: ...

    def _drop_inode(self, inode: int) -> None: ...


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[NumberSession]:
    monkeypatch.setattr(parked_requests, "_MAX_REQUESTS", 2)
    session = NumberSession()
    yield session
    session.close()


def test_requests_are_parked_while_there_is_room_and_checked_while_there_are_some(session: NumberSession) -> None:
    assert (session.policy.enabled, session.is_timed) == (True, False)
    first = session.park(1)
    assert (session.policy.enabled, session.is_timed) == (True, True)
    second = session.park(2)
    assert (session.policy.enabled, session.is_timed) == (False, True)
    first.set_result(b"")
    session.resume()
    assert (session.executed, session.policy.enabled, session.is_timed) == ([1], True, True)
    second.set_result(b"")
    session.resume()
    assert (session.executed, session.policy.enabled, session.is_timed) == ([1, 2], True, False)


def test_requests_of_callers_that_are_gone_leave_room(session: NumberSession) -> None:
    session.park(1)
    session.park(2)
    assert session.queue.take_if(lambda _: True) == [1, 2]
    session.update()
    assert (session.policy.enabled, session.is_timed) == (True, False)


def test_at_the_end_nothing_is_parked(session: NumberSession) -> None:
    session.park(1)
    assert session.end() == [1]
    assert not session.policy.enabled
    assert not session.executed
