"""Steps that come late: behind a pause, behind the end of their turn, or beside others that fail without end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from podium.agent import AgentContext
from podium.errors import ContextMisuse
from podium.testing import AgentHarness
from tests.unit.podium.turn.steps.planned import Planned, ran

if TYPE_CHECKING:
    from chronicle.ids import SessionId
    from chronicle.journal.records import Lease, StoredStep
    from podium.turn.journal.ledger import Ledger


class SlowCommitter:
    """Commits; stores a step when it is told to."""

    def __init__(self, ledger: Ledger) -> None:
        self.commit = ledger._committer.commit
        self._put_step = ledger._committer.put_step
        self.asked, self.free = asyncio.Event(), asyncio.Event()

    async def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        self.asked.set()
        await self.free.wait()
        await self._put_step(session_id, step, epoch)


class SlowWatch:
    """A watch of leases that are held, which is asked each time, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.free = threading.Event(), threading.Event()

    def is_sure(self, _: Lease) -> bool:
        return self.free.is_set()

    def renew(self, _: Lease) -> bool:
        self.asked.set()
        return self.free.wait(30)


async def until_set(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


async def test_no_step_begins_while_a_pause_is_written() -> None:
    committer: SlowCommitter

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        async def later() -> None:
            await committer.asked.wait()
            asking = asyncio.create_task(ctx.step("later", ran, "later"))
            for _ in range(20):
                await asyncio.sleep(0)
            committer.free.set()
            await asking

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.decide({"type": "boolean"}, reason="?"))
            group.create_task(later())

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        ledger = agent.activation._runner.ledger
        ledger._committer = committer = SlowCommitter(ledger)
        assert (await agent.send("go")).paused
        assert Planned.runs == {}


async def test_a_step_that_was_asked_for_before_the_end_of_its_turn_does_not_begin_after_it() -> None:
    watch = SlowWatch()
    left: list[asyncio.Task[Any]] = []

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if message["text"] == "leave a task":
            watch.free.clear()
            left.append(asyncio.create_task(ctx.step("late", ran, "late")))
            await until_set(watch.asked)
        else:
            ctx.state.done.append("changed")
            watch.free.set()
            await asyncio.wait(left)

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        ledger = agent.activation._runner.ledger
        ledger._leases, ledger._run_store = watch, asyncio.to_thread
        watch.free.set()
        assert (await agent.send("leave a task")).ok
        watch.free.set()
        assert (await agent.send("change the state")).ok
        with pytest.raises(ContextMisuse, match="is over"):
            left[0].result()
        await agent.kill()
        assert agent.state["done"] == ["changed"]
        assert Planned.runs == {}


async def test_of_two_pauses_in_tasks_that_nobody_awaits_one_is_recorded() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        tasks[:] = [asyncio.create_task(ctx.sleep(seconds)) for seconds in (5, 7)]
        await asyncio.Event().wait()

    Planned.program = program
    async with AgentHarness(Planned) as agent, asyncio.timeout(60):
        assert (await agent.send("go")).paused
        await agent.kill()


async def test_a_step_ends_beside_one_that_fails_without_end() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def fail() -> None:
            ran("tried")
            raise ConnectionError("not yet")

        slow = asyncio.create_task(ctx.step("slow", asyncio.sleep, 0.01))
        while not slow.done():
            with pytest.raises(ConnectionError):
                await ctx.step("poll", fail)
            await asyncio.sleep(0)

    Planned.program = program
    async with AgentHarness(Planned) as agent, asyncio.timeout(60):
        assert (await agent.send("go")).ok
        assert Planned.runs["tried"] > 1
