"""A host that was cut off, or stopped: what it does next when it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import Unavailable
from chronicle.journal.records import MessageStatus
from podium.agent import AgentContext, BaseAgent
from podium.errors import Evicted
from podium.testing.harness import AgentHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from chronicle.journal.records import Lease

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("caplog")]

DID: list[str] = []


class Watch:
    """A watch of leases that is told what it knows."""

    def __init__(self) -> None:
        self.sure = True
        self.held: list[bool | Exception | Callable[[], bool]] = []

    def is_sure(self, _: Lease) -> bool:
        return self.sure

    def renew(self, _: Lease) -> bool:
        answer = self.held.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, bool) else answer()


class Worker(BaseAgent):
    """Works in two steps; the host is cut off in the first one if it is told so."""

    watch: Watch

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        DID.append("begins")

        def first() -> None:
            DID.append("first")
            self.watch.sure = message["text"] != "cut off"

        await ctx.step("first", first)
        await ctx.step("second", DID.append, "second")


@pytest.fixture
async def agent() -> AsyncIterator[AgentHarness]:
    DID.clear()
    Worker.watch = Watch()
    async with AgentHarness(Worker) as agent:
        await agent.send("hello")
        agent.activation._runner.ledger._leases = Worker.watch
        DID.clear()
        yield agent


async def test_no_message_is_begun_under_a_lease_that_another_one_has(agent: AgentHarness) -> None:
    Worker.watch.sure, Worker.watch.held = False, [Unavailable("cut off still"), False]
    receipt = agent.admit("hello")
    with pytest.raises(Evicted):
        await agent.activation.handle_next()
    assert DID == []
    message = agent.store.message(receipt.message_id)
    assert (message.status, message.attempts) == (MessageStatus.PENDING, 0)


async def test_no_step_is_begun_under_a_lease_that_another_one_has(agent: AgentHarness) -> None:
    def taken() -> bool:
        session = agent.store.session("worker/test")
        agent.store.acquire_lease(session.session_id, "another host", agent.clock.now_ms(), 60_000, takeover=True)
        return False

    Worker.watch.held = [taken]
    receipt = agent.admit("cut off")
    with pytest.raises(Evicted):
        await agent.activation.handle_next()
    assert DID == ["begins", "first"]
    message = agent.store.message(receipt.message_id)
    assert (message.status, message.attempts) == (MessageStatus.PENDING, 0)


async def test_a_lease_that_is_held_still_is_renewed_and_the_turn_goes_on(agent: AgentHarness) -> None:
    Worker.watch.held = [True]
    assert (await agent.send("cut off")).ok
    assert DID == ["begins", "first", "second"]
    assert Worker.watch.held == []
