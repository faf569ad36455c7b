"""Waiting for conditions: polled often, under a deadline that only a broken program meets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0
"""Far more than anything takes on a busy machine."""
INTERVAL_S = 0.005


def wait_until(condition: Callable[[], T], message: str = "it did not happen", deadline_s: float = DEADLINE_S) -> T:
    """Wait until a condition is true, and return its value.

    Raises:
        AssertionError: the deadline has passed; with the message, and what the condition said last.
    """
    until_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < until_s, f"{message}: {value!r}"
        time.sleep(INTERVAL_S)
    return value


async def until(condition: Callable[[], T], message: str = "it did not happen", deadline_s: float = DEADLINE_S) -> T:
    """Do the same in an event loop, which goes on meanwhile."""
    until_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < until_s, f"{message}: {value!r}"
        await asyncio.sleep(INTERVAL_S)
    return value
