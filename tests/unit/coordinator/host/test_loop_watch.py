"""Which agent blocks an event loop, as another thread sees it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import TYPE_CHECKING

from chronicle.clock import SystemClock
from coordinator.host.loop_watch import RUNNING_AGENT, Blockage, LoopWatch
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable

ALICE, BOB = Address("hello", "alice"), Address("hello", "bob")
DEADLINE_S = 60


class Watcher(threading.Thread):
    """Checks a loop until it has seen a blockage."""

    def __init__(self) -> None:
        super().__init__()
        self.watch = LoopWatch(SystemClock())
        self.found: Blockage | None = None
        self.seen = threading.Event()
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.01):
            self.found = self.watch.check()
            if self.found is not None and self.found.for_s > 0.05:
                self.seen.set()
                return


def as_agent(address: Address, call: Callable[[], object]) -> None:
    """Start a task in the context of an agent."""

    async def run() -> None:
        call()

    context = contextvars.copy_context()
    context.run(RUNNING_AGENT.set, address)
    _ = asyncio.get_running_loop().create_task(run(), context=context)


async def test_the_agent_whose_step_goes_on_is_named() -> None:
    watcher = Watcher()
    as_agent(ALICE, lambda: None)

    def block() -> None:
        watcher.start()
        watcher.seen.wait(DEADLINE_S)

    as_agent(BOB, block)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert watcher.seen.is_set()
    assert watcher.found is not None
    assert watcher.found.agent == BOB


async def test_a_task_that_an_agents_code_starts_is_the_agents() -> None:
    watcher = Watcher()

    async def block() -> None:
        watcher.start()
        watcher.seen.wait(DEADLINE_S)

    async def hook() -> None:
        RUNNING_AGENT.set(ALICE)
        await asyncio.gather(block())

    await asyncio.create_task(hook())
    assert watcher.found is not None
    assert watcher.found.agent == ALICE


async def test_a_callback_blocks_in_nobodys_name() -> None:
    watcher = Watcher()

    def block() -> None:
        watcher.start()
        watcher.seen.wait(DEADLINE_S)

    asyncio.get_running_loop().call_soon(block)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert watcher.found is not None
    assert watcher.found.agent is None


async def test_a_loop_that_is_busy_with_many_short_steps_is_not_blocked() -> None:
    watcher = Watcher()
    watcher.start()
    for _ in range(100):
        as_agent(ALICE, lambda: time.sleep(0.001))
    await asyncio.sleep(0.3)
    watcher.stop.set()
    watcher.join(DEADLINE_S)
    assert not watcher.seen.is_set()
