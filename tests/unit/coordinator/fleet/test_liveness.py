"""How long a process that does not answer is waited for."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.fleet.liveness import until_hung
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
