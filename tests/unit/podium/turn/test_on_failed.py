"""`on_failed`: a turn of its own after the last attempt of a message, which stays parked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from pydantic import BaseModel

from chronicle.canonical import decode, encode
from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus, NewMessage
from podium.agent import AgentContext, BaseAgent, Permanent, Retry, handler
from podium.agent.models.delta_state import DeltaState
from podium.caller import Caller
from podium.messages.headers import Headers
from podium.messages.inbox import retry_message
from podium.testing import AgentHarness
from podium.turn.activation import Step
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from podium.events import ErrorInfo

DEADLINE_S = 30
ANN = Caller("key_1", frozenset({"write"}), {"sub": "ann"})


class Order(BaseModel):
    item: str


class Shop(BaseAgent):
    """Fails as its messages say, and notes each failure."""

    retry = Retry(attempts=2, delay_s=0)
    broken: ClassVar[bool] = True
    fails: ClassVar[bool] = False
    begun: ClassVar[asyncio.Event]
    gate: ClassVar[asyncio.Event]

    class State(DeltaState):
        done: list[str] = []
        failed: list[list[Any]] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.done.append(message["text"])
        if self.broken and message["text"] == "fails":
            raise ValueError("sold out")
        if message["text"] == "permanent":
            raise Permanent("never sold")

    @handler
    async def buy(self, ctx: AgentContext[State], order: Order) -> None:
        raise Permanent(f"no {order.item}")

    async def on_steer(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.done.append("steered")

    async def on_failed(self, ctx: AgentContext[State], message: dict[str, Any], error: ErrorInfo) -> None:
        ctx.state.failed.append([message, error["type"], error["message"]])
        (ctx.workspace / "failed.txt").write_text(error["message"])
        await ctx.send_message("I am sorry")
        await ctx.tell("support/desk", {"text": message.get("text", "?"), "sub": str(ctx.caller.claims.get("sub"))})
        self.begun.set()
        await self.gate.wait()
        if self.fails:
            raise RuntimeError("not even that")


@pytest.fixture(autouse=True)
def _begin() -> None:
    Shop.broken, Shop.fails, Shop.begun, Shop.gate = True, False, asyncio.Event(), asyncio.Event()
    Shop.gate.set()


def parked(agent: AgentHarness) -> list[MessageId]:
    session = agent.store.session(agent.address.name)
    return [message.message_id for message in agent.store.messages(session.session_id, MessageStatus.PARKED)]


def retry(agent: AgentHarness, message_id: MessageId) -> None:
    retry_message(agent.store, agent.store.session(agent.address.name), message_id, agent.clock.now_ms())


def told(agent: AgentHarness) -> list[dict[str, Any]]:
    """Return what the agent has sent to others."""
    return [cast("dict[str, Any]", decode(each.body)) for each in agent.store.outbox() if each.target == "support/desk"]


@pytest.mark.parametrize(
    ("text", "attempts", "kind"), [("fails", 2, "ValueError"), ("permanent", 1, "Permanent")], ids=str
)
async def test_it_runs_once_after_the_last_attempt(text: str, attempts: int, kind: str) -> None:
    async with AgentHarness(Shop) as agent:
        await agent.send("before")
        answer = await agent.send(text, caller=ANN)
        assert answer.error is not None
        assert agent.state["failed"] == []
        assert await agent.receive() == 1
        [note] = cast("list[Any]", agent.state["failed"])
        assert note == [{"text": text}, kind, answer.error["message"]]
        assert agent.state["done"] == ["before"]
        assert (agent.workspace / "failed.txt").read_text() == answer.error["message"]
        assert told(agent) == [{"text": text, "sub": "ann"}]
        assert parked(agent) == [answer.receipt.message_id]
        assert len(agent.events("turn.failed")) == attempts
        assert await agent.receive() == 0
        assert len(agent.events("turn.committed")) == 2


async def test_it_gets_the_message_of_a_handler() -> None:
    async with AgentHarness(Shop) as agent:
        await agent.send({"handler": "buy", "input": {"item": "tea"}})
        await agent.receive()
        assert agent.state["failed"] == [[{"handler": "buy", "input": {"item": "tea"}}, "Permanent", "no tea"]]


async def test_it_waits_behind_the_messages_that_are_there() -> None:
    async with AgentHarness(Shop) as agent:
        agent.admit("permanent")
        agent.admit("second")
        agent.admit("third")
        await agent.receive()
        assert await agent.receive() == 1
        turns = [payload["message"] for _, payload in agent.events("user_message")]
        assert turns[:2] == [{"text": "second"}, {"text": "third"}]
        assert agent.state["failed"] == [[{"text": "permanent"}, "Permanent", "never sold"]]


async def test_a_last_attempt_that_ended_with_its_process() -> None:
    async with AgentHarness(Shop) as agent:
        receipt = agent.admit("fails")
        await agent.kill("killed by SIGKILL")
        assert not agent.store.outbox()
        await agent.kill("killed by SIGKILL")
        assert parked(agent) == [receipt.message_id]
        assert await agent.receive() == 1
        [(message, kind, text)] = cast("list[Any]", agent.state["failed"])
        assert (message, kind) == ({"text": "fails"}, "HostLost")
        assert "killed by SIGKILL" in text


async def test_a_kill_between_the_parking_and_it_and_one_in_its_turn() -> None:
    async with AgentHarness(Shop) as agent, asyncio.timeout(DEADLINE_S):
        receipt = agent.admit("permanent")
        assert await agent.activation.handle_next() is Step.HANDLED
        await agent.kill()
        Shop.gate.clear()
        handling = asyncio.ensure_future(agent.receive())
        await Shop.begun.wait()
        handling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handling
        await agent.kill()
        Shop.gate.set()
        assert agent.state["failed"] == []
        assert await agent.receive() == 1
        assert agent.state["failed"] == [[{"text": "permanent"}, "Permanent", "never sold"]]
        assert len(told(agent)) == 1
        assert parked(agent) == [receipt.message_id]


async def test_its_own_failure_is_parked_and_nothing_runs_for_that() -> None:
    async with AgentHarness(Shop) as agent:
        Shop.fails = True
        failed = (await agent.send("permanent")).receipt.message_id
        assert await agent.receive() == 1
        assert agent.state["failed"] == []
        assert not agent.store.outbox()
        assert await agent.receive() == 0
        hooks = [(payload["hook"], payload["attempt"], payload["parked"]) for _, payload in agent.events("turn.failed")]
        assert hooks == [("on_message", 1, True), ("on_failed", 1, False), ("on_failed", 2, True)]
        Shop.fails = False
        [own] = set(parked(agent)) - {failed}
        retry(agent, own)
        assert await agent.receive() == 1
        assert parked(agent) == [failed]
        assert agent.state["failed"] == [[{"text": "permanent"}, "Permanent", "never sold"]]


async def test_the_message_can_be_retried_after_it_and_may_fail_again() -> None:
    async with AgentHarness(Shop) as agent:
        message_id = (await agent.send("fails")).receipt.message_id
        await agent.receive()
        retry(agent, message_id)
        await agent.receive()
        assert await agent.receive() == 1
        assert len(cast("list[Any]", agent.state["failed"])) == 2, "once for each time that it is parked"
        Shop.broken = False
        retry(agent, message_id)
        assert await agent.receive() == 1
        assert agent.state["done"] == ["fails"]
        assert parked(agent) == []


@pytest.mark.parametrize("how", ["retry", "drop"])
async def test_it_does_not_run_for_a_message_that_is_not_parked_any_more(how: str) -> None:
    async with AgentHarness(Shop) as agent:
        message_id = (await agent.send("fails")).receipt.message_id
        Shop.broken = False
        if how == "retry":
            retry(agent, message_id)
        else:
            await agent.activation.cancel(message_id)
        await agent.receive()
        assert agent.state["failed"] == []
        assert agent.state["done"] == (["fails"] if how == "retry" else [])
        assert parked(agent) == []
        assert await agent.receive() == 0


@pytest.mark.parametrize("policy", [BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK, BusyPolicy.STEER], ids=str)
async def test_a_later_message_waits_for_it(policy: BusyPolicy) -> None:
    async with AgentHarness(Shop) as agent, asyncio.timeout(DEADLINE_S):
        await agent.send("permanent")
        Shop.gate.clear()
        handling = asyncio.ensure_future(agent.receive())
        await Shop.begun.wait()
        receipt = agent.admit("later", when_busy=policy)
        await agent.activation.preempt(receipt.message_id, policy)
        Shop.gate.set()
        assert await handling == 2
        assert len(cast("list[Any]", agent.state["failed"])) == 1
        assert agent.state["done"] == ["later"]


async def test_it_may_wait_for_a_person() -> None:
    class Careful(Shop):
        agent_type = "careful"

        async def on_failed(self, ctx: AgentContext[Shop.State], message: dict[str, Any], error: ErrorInfo) -> None:
            ctx.state.done.append(await ctx.decide(str, reason=f"{message['text']}: {error['message']}"))

    async with AgentHarness(Careful) as agent:
        await agent.send("permanent")
        await agent.receive()
        [(_, paused)] = agent.events("turn.paused")
        assert paused["reason"] == "permanent: never sold"
        await agent.kill()
        assert (await agent.resume(cast("str", paused["message_id"]), "refund")).ok
        assert agent.state["done"] == ["refund"]


async def test_a_class_without_it_is_told_nothing() -> None:
    class Plain(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            raise Permanent("no")

    async with AgentHarness(Plain) as agent:
        await agent.send("go")
        assert not agent.store.outbox()


async def test_it_does_not_run_for_the_message_of_another_agent() -> None:
    async with AgentHarness(Shop) as one, AgentHarness(Shop, "other", store=one.store, blobs=one.blobs) as other:
        others = (await other.send("permanent")).receipt.message_id
        session = one.store.session(one.address.name)
        headers = Headers(failed=others).to_json()
        body = encode({"message_id": others, "error": {"type": "Forged", "message": "by no program of ours"}})
        one.store.admit(session.session_id, NewMessage(MessageId("msg_forged"), body, 0, headers=headers))
        await one.receive()
        assert one.state["failed"] == []
        assert one.store.message(MessageId("msg_forged")).status is MessageStatus.CANCELLED
