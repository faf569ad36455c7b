"""Blocking calls from an event loop, of which only some run at a time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore

import pytest

from podium.blocking import at_most
from tests.waiting import until

DEADLINE_S = 60


async def test_a_cancelled_call_counts_until_its_thread_is_free() -> None:
    running, over, begun = Event(), Event(), Semaphore(0)

    def call() -> None:
        running.set()
        assert over.wait(DEADLINE_S)

    with ThreadPoolExecutor(4) as threads:
        run = at_most(1, threads)
        async with asyncio.timeout(DEADLINE_S):
            first = asyncio.ensure_future(run(call))
            await until(running.is_set)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            others = [asyncio.ensure_future(run(begun.release)) for _ in range(3)]
            others.pop().cancel()
            await asyncio.to_thread(int)  # time for a call that is not held back
            assert not begun.acquire(blocking=False)
            over.set()
            await asyncio.gather(*others)


async def test_a_call_that_fails_or_never_begins_makes_room() -> None:
    with ThreadPoolExecutor(1) as threads:
        run, over = at_most(1, threads), Event()
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ZeroDivisionError):
                await run(lambda: 1 // 0)
            busy = threads.submit(over.wait)
            queued = asyncio.ensure_future(run(int))
            await asyncio.sleep(0)
            queued.cancel()
            over.set()
            assert await run(int) == 0
            assert busy.result()
