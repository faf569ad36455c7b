"""How long a process that does not answer is waited for."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.fleet.liveness import until_ended, until_hung
from podium.errors import HostDied

HANG_S, SILENCE_S = 0.01, 0.05


async def test_a_process_that_does_nothing_is_waited_for_only_shortly() -> None:
    asked = []

    async def computes() -> bool:
        asked.append(True)
        return False

    with pytest.raises(HostDied, match="did not answer for 0.01 s, and did nothing"):
        await until_hung(asyncio.Event().wait(), HANG_S, SILENCE_S, computes)
    assert asked == [True]


async def test_a_process_that_computes_is_waited_for_longer_and_not_for_ever() -> None:
    async def computes() -> bool:
        return True

    with pytest.raises(HostDied, match="did not answer for 0.05 s"):
        await until_hung(asyncio.Event().wait(), HANG_S, SILENCE_S, computes)


async def test_an_answer_that_comes_while_the_node_is_asked_counts() -> None:
    answered = asyncio.Event()

    async def answer() -> str:
        await answered.wait()
        return "alive"

    async def computes() -> bool:
        answered.set()
        await asyncio.sleep(0)  # the answer is taken
        await asyncio.sleep(0)
        return False

    assert await until_hung(answer(), HANG_S, SILENCE_S, computes) == "alive"


async def test_a_call_that_code_of_the_process_cancelled_ends_as_if_that_had_died() -> None:
    class TaskError(Exception, asyncio.CancelledError):
        """As Ray raises it: asyncio takes it for a cancellation of the task that awaits it."""

    async def answer() -> None:
        raise TaskError

    with pytest.raises(HostDied, match="cancelled in its process"):
        await until_ended(answer(), asyncio.Event())


async def test_a_wait_for_an_answer_can_be_cancelled() -> None:
    waiting = asyncio.create_task(until_ended(asyncio.Event().wait(), asyncio.Event()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
