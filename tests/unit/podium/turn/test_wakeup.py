"""A wait of one coroutine, with a timeout."""

from __future__ import annotations

import asyncio

from podium.turn.wakeup import Wakeup

DEADLINE_S = 30


async def test_a_call_before_the_wait_and_one_during_it_wake_once_each() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert wakeup.is_set
    assert await wakeup.wait(DEADLINE_S)
    waiting = asyncio.ensure_future(wakeup.wait())
    await asyncio.sleep(0)
    wakeup.set()
    wakeup.set()
    assert await waiting
    assert not await wakeup.wait(0.001), "both calls woke the same wait"


async def test_a_wait_without_a_call_times_out_and_the_next_call_wakes_the_next_wait() -> None:
    wakeup = Wakeup()
    assert not await wakeup.wait(0.001)
    wakeup.set()
    wakeup.clear()
    assert not await wakeup.wait(0)
    wakeup.set()
    assert await wakeup.wait(0)


async def test_a_cancelled_wait_loses_no_call() -> None:
    wakeup = Wakeup()
    waiting = asyncio.ensure_future(wakeup.wait(DEADLINE_S))
    await asyncio.sleep(0)
    waiting.cancel()
    wakeup.set()
    await asyncio.wait({waiting})
    assert waiting.cancelled() or waiting.result()
    assert not waiting.cancelled() or await wakeup.wait(DEADLINE_S)
