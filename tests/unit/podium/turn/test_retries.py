"""How often messages are attempted, and when: by class, by handler, and what ends the wait for the next attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from chronicle.journal.records import MessageStatus
from podium.agent import AgentContext, BaseAgent, Retry, handler
from podium.agent.loader import check_agent_class
from podium.agent.models.delta_state import DeltaState
from podium.errors import NotAnAgent
from podium.messages.inbox import list_inbox
from podium.testing import AgentHarness
from podium.turn.activation import Step
from podium.turn.busy import BusyPolicy
from podium.turn.message_loop import Ending, MessageLoop

DEADLINE_S = 30


class Order(BaseModel):
    item: str = ""


class Failing(BaseAgent):
    """Fails as its messages say."""

    class State(DeltaState):
        done: list[str] = []

    retry = Retry(attempts=4, delay_s=3600, backoff=1, max_delay_s=3600, on=(ConnectionError, TimeoutError))
    failures: ClassVar[list[BaseException]] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        if message["text"] == "fails" and self.failures:
            raise self.failures.pop(0)
        ctx.state.done.append(message["text"])

    @handler(retry=Retry(attempts=2, delay_s=7))
    async def buy(self, ctx: AgentContext[State], order: Order) -> None:
        raise OSError("sold out")

    @handler
    async def sell(self, ctx: AgentContext[State], order: Order) -> None:
        raise ConnectionResetError("nobody there")


def attempts(agent: AgentHarness) -> list[tuple[int, bool]]:
    return [(payload["attempt"], payload["parked"]) for _, payload in agent.events("turn.failed")]  # type: ignore[misc]


async def test_a_class_says_how_often_and_after_what() -> None:
    async with AgentHarness(Failing) as agent:
        Failing.failures = [ConnectionError("1"), TimeoutError("2"), ConnectionResetError("3"), ConnectionError("4")]
        assert (await agent.send("fails")).error == {"type": "ConnectionError", "message": "4"}
        assert attempts(agent) == [(1, False), (2, False), (3, False), (4, True)]


@pytest.mark.parametrize(
    ("error", "parks"),
    [
        (ValueError("not one of them"), True),
        (ExceptionGroup("of one", [ConnectionError("it is")]), False),
        (ExceptionGroup("of two", [ConnectionError("it is"), ValueError("it is not")]), True),
        (SystemExit(3), False),
    ],
    ids=str,
)
async def test_an_exception_that_is_not_named_parks_at_once(error: BaseException, parks: bool) -> None:
    async with AgentHarness(Failing) as agent:
        Failing.failures = [error]
        assert (await agent.send("fails")).ok != parks
        assert attempts(agent) == [(1, parks)]


async def test_a_handler_may_have_its_own() -> None:
    async with AgentHarness(Failing) as agent:
        agent.admit({"handler": "buy"})
        assert await agent.activation.handle_next() is Step.RETRY  # after an OSError, which the class does not name
        assert agent.activation.retry_delay_s == 7
        assert await agent.receive() == 1
        assert attempts(agent) == [(1, False), (2, True)]
        await agent.send({"handler": "sell"})
        assert attempts(agent)[2:] == [(1, False), (2, False), (3, False), (4, True)]


async def test_an_attempt_that_ended_with_its_process_counts_by_the_handlers_policy() -> None:
    async with AgentHarness(Failing) as agent:
        agent.admit({"handler": "buy"})
        assert await agent.activation.handle_next() is Step.RETRY
        await agent.kill()
        assert attempts(agent) == [(1, False), (2, True)]
        (entry,) = list_inbox(agent.store, agent.blobs, agent.store.session(agent.address.name))
        assert entry.message.status is MessageStatus.PARKED


async def test_delays_grow_up_to_the_longest() -> None:
    class Patient(Failing):
        agent_type = "patient"
        retry = Retry(attempts=5, delay_s=2, backoff=10, max_delay_s=60)

    async with AgentHarness(Patient) as agent:
        Failing.failures = [ValueError(str(number)) for number in range(4)]
        agent.admit("fails")
        delays = []
        while await agent.activation.handle_next() is Step.RETRY:
            delays.append(agent.activation.retry_delay_s)
        assert delays == [2, 20, 60, 60]


async def test_max_attempts_is_the_short_form() -> None:
    class Short(Failing):
        agent_type = "short"
        retry = None  # type: ignore[assignment]
        max_attempts = 2

    async with AgentHarness(Short) as agent:
        Failing.failures = [ValueError("1"), ValueError("2")]
        agent.admit("fails")
        assert await agent.activation.handle_next() is Step.RETRY
        assert agent.activation.retry_delay_s == 0.2
        assert await agent.activation.handle_next() is Step.HANDLED
        assert attempts(agent) == [(1, False), (2, True)]


@pytest.mark.parametrize("end", ["cancel", "rollback", "interrupt", "stop", "evict"])
async def test_what_ends_the_wait_for_the_next_attempt(end: str) -> None:
    async with AgentHarness(Failing) as agent, asyncio.timeout(DEADLINE_S):
        Failing.failures = [ConnectionError("once")]
        loop = MessageLoop(agent.activation, idle_timeout_s=1e6)
        running = asyncio.ensure_future(loop.run())
        receipt = agent.admit("fails")
        loop.poke()
        while not agent.activation.waits_to_retry:
            await asyncio.sleep(0.001)
        agent.admit("behind")
        loop.poke()  # a message that only waits does not end it
        await asyncio.sleep(0)
        assert agent.activation.waits_to_retry
        match end:
            case "cancel":
                await agent.activation.cancel(receipt.message_id)
                loop.poke()
            case "rollback" | "interrupt":
                policy = BusyPolicy(end)
                later = agent.admit("instead", when_busy=policy)
                await agent.activation.preempt(later.message_id, policy)
                loop.poke()
            case "stop":
                loop.stop()
            case "evict":
                loop.evict()
        if end in {"stop", "evict"}:
            assert await running is (Ending.STOPPED if end == "stop" else Ending.EVICTED)
            assert agent.store.message(receipt.message_id).status is MessageStatus.PENDING
            agent._activation = None
            return
        wanted = ["behind"] if end == "cancel" else ["behind", "instead"]
        while agent.state["done"] != wanted:
            await asyncio.sleep(0.001)
        assert agent.store.message(receipt.message_id).status is MessageStatus.CANCELLED
        loop.stop()
        await running
        agent._activation = None


def test_what_is_no_policy_is_refused() -> None:
    class Wrong(Failing):
        agent_type = "wrong"
        retry = 3  # type: ignore[assignment]

    with pytest.raises(NotAnAgent, match=r"retry is 3; give a Retry"):
        check_agent_class(Wrong, Path(__file__))
    with pytest.raises(NotAnAgent, match=r"retry is 3; give a Retry"):
        handler(retry=3)(Failing.on_message)  # type: ignore[call-overload]
