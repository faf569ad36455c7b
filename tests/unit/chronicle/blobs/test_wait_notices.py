"""Telling what a far store keeps whom waiting for."""

from __future__ import annotations

import queue
import threading
import time

from chronicle.blobs.wait_notices import Wait, report_slow_requests, track

DEADLINE_S = 30.0


def wait(store: str = "s3://bucket", ago_s: float = 0.0) -> Wait:
    return Wait(store, max_s=52.0, began_s=time.monotonic() - ago_s)


def test_the_line_says_how_far_it_is() -> None:
    assert Wait("s3://bucket", 52.0, began_s=100.0).line(113.4) == (
        "waiting for the store at s3://bucket, which has not answered for 13 s: attempt 1, gives up in 39 s at the "
        "latest"
    )
    assert Wait("s3://bucket", 52.0, began_s=100.0, attempt=9, reason="HTTP 503").line(113.4) == (
        "waiting for the store at s3://bucket, which has not answered for 13 s (HTTP 503): attempt 9, gives up in 39 s "
        "at the latest"
    )


def test_the_longest_wait_is_told_of_once_in_a_while() -> None:
    told: queue.Queue[str] = queue.Queue()
    with report_slow_requests(told.put, first_s=0.01, every_s=1000.0), track(wait("first", 1.0)):
        assert "at first," in told.get(timeout=DEADLINE_S)
        with track(wait("second", 5.0)):
            time.sleep(0.05)
    assert told.empty()


def test_it_is_told_again_while_it_lasts_and_not_after_it() -> None:
    told: queue.Queue[str] = queue.Queue()
    with report_slow_requests(told.put, first_s=0.0, every_s=0.001):
        with track(wait("one", 1.0)):
            for _ in range(3):
                assert "at one," in told.get(timeout=DEADLINE_S)
        with track(wait("two", 1.0)):
            while "at two," not in (line := told.get(timeout=DEADLINE_S)):
                assert "at one," in line
            assert "at two," in told.get(timeout=DEADLINE_S)


def test_what_is_answered_soon_is_not_told() -> None:
    told: list[str] = []
    with report_slow_requests(told.append):
        for _ in range(100):
            with track(wait()):
                pass
    assert told == []


def test_without_anyone_to_tell_nothing_is_begun() -> None:
    before = set(threading.enumerate())
    with track(wait(ago_s=100.0)):
        assert set(threading.enumerate()) <= before


def test_who_does_not_read_holds_no_request_up() -> None:
    read = threading.Event()
    begun = threading.Event()

    def say(_line: str) -> None:
        begun.set()
        read.wait(DEADLINE_S)

    with report_slow_requests(say, first_s=0.0):
        with track(wait(ago_s=1.0)):
            assert begun.wait(DEADLINE_S)
            with track(wait()):
                pass
        read.set()


def test_a_stderr_that_was_closed_harms_nobody() -> None:
    asked = threading.Event()

    def say(_line: str) -> None:
        asked.set()
        raise BrokenPipeError

    with report_slow_requests(say, first_s=0.0), track(wait(ago_s=1.0)):
        assert asked.wait(DEADLINE_S)
