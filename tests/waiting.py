"""Waiting for conditions: polled often if that is cheap, under a deadline that only a broken program meets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0
"""Far more than anything takes on a busy machine."""
INTERVAL_S = 0.005
LONGEST_INTERVAL_S = 0.05


def _pause(began_s: float, asked_s: float) -> float:
    """Return how long not to ask again: a hundredth of the wait so far, and twice what the last answer took.

    Else a test that waits for seconds takes a core from what it waits for, by looking for processes in ``/proc``.
    """
    now_s = time.monotonic()
    return max(INTERVAL_S, min(LONGEST_INTERVAL_S, (now_s - began_s) / 100), 2 * (now_s - asked_s))


def wait_until(condition: Callable[[], T], message: str = "it did not happen", deadline_s: float = DEADLINE_S) -> T:
    """Wait until a condition is true, and return its value.

    Raises:
        AssertionError: the deadline has passed; with the message, and what the condition said last.
    """
    began_s = asked_s = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - began_s < deadline_s, f"{message}: {value!r}"
        time.sleep(_pause(began_s, asked_s))
        asked_s = time.monotonic()
    return value


async def until(condition: Callable[[], T], message: str = "it did not happen", deadline_s: float = DEADLINE_S) -> T:
    """Do the same in an event loop, which goes on meanwhile."""
    began_s = asked_s = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - began_s < deadline_s, f"{message}: {value!r}"
        await asyncio.sleep(_pause(began_s, asked_s))
        asked_s = time.monotonic()
    return value
