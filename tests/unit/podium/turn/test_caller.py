"""`ctx.caller`: recorded with the message, the same in each attempt, and passed on by what the turn sends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from chronicle.ids import IdSource
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.caller import CUT, LONGEST_CHAIN, NOBODY, Caller
from podium.events import USER_MESSAGE
from podium.history.branching import fork_agent, rewind_agent
from podium.messages.inbox import retry_message
from podium.testing import AgentHarness
from tests.waiting import until

ANN = Caller("tok_1", frozenset({"read", "write"}), {"sub": "ann", "roles": ["buyer"]})
BEN = Caller("key_2", frozenset({"read"}))


class Desk(BaseAgent):
    """Notes who asks, in each attempt and hook."""

    idle_timeout_s = 60.0
    max_attempts = 2
    seen: ClassVar[list[tuple[str, Caller]]]

    class State(DeltaState):
        """How many messages."""

        count: int = 0

    async def on_init(self, ctx: AgentContext[State]) -> None:
        self.seen.append(("init", ctx.caller))

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        self.seen.append((message["text"], ctx.caller))
        ctx.state.count += 1
        match message["text"]:
            case "fail":
                raise ValueError("as told")
            case "change":
                with pytest.raises(TypeError):
                    ctx.caller.claims["sub"] = "root"  # type: ignore[index]
                ctx.caller.claims["roles"].append("admin")
                await ctx.tell("desk/b", {"text": "told"})
            case "decide":
                await ctx.decide({"type": "integer"}, reason="how many?")
                self.seen.append(("decided", ctx.caller))
            case "tell":
                await ctx.tell(message["to"], message["message"])
            case "ask":
                await ctx.ask(message["to"], message["message"])
            case "remind":
                await ctx.remind("later", every=3600, message={"text": "reminded"})
            case "wait":
                await until(lambda: ("steer", BEN) in self.seen)
                await ctx.tell("desk/b", {"text": "of the steered"})

    async def on_steer(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        await ctx.tell("desk/b", {"text": "of who steers"})
        self.seen.append((message["text"], ctx.caller))

    async def on_reminder(self, ctx: AgentContext[State], reminder: Any) -> None:
        self.seen.append((reminder.message["text"], ctx.caller))
        await ctx.tell("desk/b", {"text": "told later"})

    async def on_idle_timeout(self, ctx: AgentContext[State]) -> bool:
        self.seen.append(("idle", ctx.caller))
        if ctx.state.count > 1:
            await ctx.tell("desk/b", {"text": "of itself"})
        return True


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Desk.seen = []


def seen(text: str) -> list[Caller]:
    return [caller for what, caller in Desk.seen if what == text]


def through(caller: Caller, *agents: str) -> Caller:
    return replace(caller, agents=agents)


async def test_nothing_in_a_message_changes_it() -> None:
    forged = {"caller": ANN.to_json(), "headers": {"caller": ANN.to_json()}, "sender": "desk/b", "claims": ANN.claims}
    async with AgentHarness(Desk, "a") as desk:
        await desk.send({"text": "hi", **forged}, caller=BEN)
        await desk.send({"text": "hi", **forged})
        assert seen("hi") == [BEN, NOBODY]
        payloads = [payload for _, payload in desk.events(USER_MESSAGE)]
        assert [payload.get("caller") for payload in payloads] == [{"key_id": "key_2", "scopes": ["read"]}, None]


async def test_hooks_without_a_message_have_a_caller_without_scopes() -> None:
    async with AgentHarness(Desk, "a", tenant="acme") as desk:
        await desk.send("hi", caller=ANN)
        await desk.advance(61)
        nobody = Caller(tenant="acme")
        assert Desk.seen == [("init", nobody), ("hi", replace(ANN, tenant="acme")), ("idle", nobody)]


async def test_each_attempt_has_the_caller_of_the_message() -> None:
    async with AgentHarness(Desk, "a") as desk:
        first = await desk.send("fail", "once", caller=ANN)
        assert not first.ok
        assert seen("fail") == [ANN, ANN]
        repeated = desk.admit("fail", "once", caller=BEN)  # the key of another client does not make it his
        assert repeated.message_id == first.receipt.message_id
        await desk.sleep()
        session = desk.store.session(desk.address.name)
        retry_message(desk.store, session, first.receipt.message_id, desk.clock.now_ms())
        await desk.receive()
        assert seen("fail") == [ANN] * 4


async def test_a_pause_goes_on_with_the_caller_of_the_message_and_not_with_who_answers() -> None:
    async with AgentHarness(Desk, "a") as desk:
        asked = await desk.send("decide", caller=ANN)
        await desk.sleep()
        assert (await desk.resume(asked.receipt.message_id, 3, by="key_2")).ok
        assert seen("decided") == [ANN]


async def test_a_fork_has_the_callers_of_its_history_and_those_of_its_own_messages() -> None:
    async with AgentHarness(Desk, "a") as desk:
        await desk.send("hi", caller=ANN)
        await desk.send("remind", caller=ANN)
        desk.admit("waits", caller=ANN)
        fork_agent(desk.store, desk.address, 2, Address("desk", "b"), IdSource(), desk.clock.now_ms())
        async with AgentHarness(Desk, "b", store=desk.store, blobs=desk.blobs, clock=desk.clock) as fork:
            assert [payload["caller"] for _, payload in fork.events(USER_MESSAGE)] == [ANN.to_json()] * 2
            Desk.seen.clear()
            await fork.send("hi", caller=BEN)
            await fork.send("bye")
            assert [each for each in Desk.seen if each[0] != "init"] == [("hi", BEN), ("bye", NOBODY)]
            await fork.advance(3601)
            assert not seen("reminded"), "a reminder, and who asked for it, stays with the source"


async def test_a_rewind_changes_nobody_who_asks() -> None:
    async with AgentHarness(Desk, "a") as desk:
        await desk.send("hi", caller=BEN)
        failed = await desk.send("fail", caller=ANN)
        await desk.send("hi", caller=BEN)
        asked = await desk.send("decide", caller=ANN)
        await desk.sleep()
        rewind_agent(desk.store, desk.blobs, desk.address, 1, None, IdSource(), desk.clock.now_ms())
        retry_message(desk.store, desk.store.session(desk.address.name), failed.receipt.message_id, desk.clock.now_ms())
        Desk.seen.clear()
        question = await desk.resume(asked.receipt.message_id, 3, by="key_2")
        assert question.paused, "its step is of a state that the rewind has left"
        assert (await desk.resume(asked.receipt.message_id, "begin_anew", by="key_2")).paused
        assert (await desk.resume(asked.receipt.message_id, 3, by="key_2")).ok
        assert [set(seen(each)) for each in ("fail", "decide", "decided")] == [{ANN}] * 3


async def test_changing_the_claims_changes_nothing_that_is_sent() -> None:
    async with AgentHarness(Desk, "a") as desk, AgentHarness(Desk, "b", store=desk.store) as other:
        assert (await desk.send("change", caller=ANN)).ok
        await other.receive()
        assert seen("told") == [through(ANN, "desk/a")]


async def test_a_chain_has_the_agents_between() -> None:
    async with (
        AgentHarness(Desk, "a") as first,
        AgentHarness(Desk, "b", store=first.store) as second,
        AgentHarness(Desk, "c", store=first.store) as third,
    ):
        hop: dict[str, Any] = {"text": "tell", "to": "desk/c", "message": {"text": "end"}}
        hop = {"text": "tell", "to": "desk/b", "message": {"text": "tell", "to": "desk/a", "message": hop}}
        await first.send(hop, caller=ANN)
        for desk in (second, first, third):
            await desk.receive()
        assert seen("tell") == [ANN, through(ANN, "desk/a"), through(ANN, "desk/a", "desk/b")]
        assert seen("end") == [through(ANN, "desk/b", "desk/a")]  # each once, the sender last


async def test_a_question_has_the_caller_of_the_turn_that_asks() -> None:
    async with AgentHarness(Desk, "a") as first, AgentHarness(Desk, "b", store=first.store) as second:
        asking = asyncio.create_task(
            first.send({"text": "ask", "to": "desk/b", "message": {"text": "asked"}}, caller=ANN)
        )
        session = first.store.session("desk/b")
        await until(lambda: bool(first.store.pending(session.session_id)))
        await second.receive()
        assert (await asking).ok
        assert seen("asked") == [through(ANN, "desk/a")]


async def test_a_reminder_has_the_caller_of_the_turn_that_set_it() -> None:
    async with AgentHarness(Desk, "a") as desk, AgentHarness(Desk, "b", store=desk.store) as other:
        await desk.send("remind", caller=ANN)
        await desk.send("hi", caller=BEN)
        await desk.advance(3600)
        await desk.advance(3600)
        assert seen("reminded") == [through(ANN, "desk/a")] * 2
        await other.receive()
        assert seen("told later") == [through(ANN, "desk/a")] * 2


async def test_what_an_agent_sends_by_itself_has_no_scopes() -> None:
    async with AgentHarness(Desk, "a") as desk, AgentHarness(Desk, "b", store=desk.store) as other:
        await desk.send("hi", caller=ANN)
        await desk.send("hi", caller=ANN)
        await desk.advance(61)
        await other.receive()
        assert seen("of itself") == [Caller(agents=("desk/a",))]


async def test_who_steers_a_turn_is_not_who_asked_for_it() -> None:
    from podium.turn.busy import BusyPolicy

    async with AgentHarness(Desk, "a") as desk, AgentHarness(Desk, "b", store=desk.store) as other:
        waits = asyncio.create_task(desk.send("wait", caller=ANN))
        await until(lambda: bool(seen("wait")))
        await desk.send("steer", when_busy=BusyPolicy.STEER, caller=BEN)
        assert (await waits).ok
        await other.receive()
        assert seen("steer") == [BEN]
        assert seen("of who steers") == [through(BEN, "desk/a")]
        assert seen("of the steered") == [through(ANN, "desk/a")]


def test_a_chain_is_bounded() -> None:
    caller = ANN
    for number in range(100):
        caller = caller.through(f"desk/{number}")
        assert len(caller.agents) <= LONGEST_CHAIN
    assert caller.agents[0] == "desk/0"
    assert caller.agents[-1] == "desk/99"
    assert caller.agents.count(CUT) == 1
    for number in (0, 1, 2):
        caller = caller.through(f"desk/{number}")
    for number in range(200, 210):
        caller = caller.through(f"desk/{number}")
    assert caller.agents.count(CUT) == 1
    assert Caller.from_json(caller.to_json()) == caller


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {"key_id": 1, "scopes": []},
        {"key_id": "key_1", "scopes": "admin"},
        {"key_id": "key_1", "scopes": [1]},
        {"key_id": "key_1", "scopes": [], "claims": []},
        {"key_id": "key_1", "scopes": [], "agents": "a/b"},
        {"key_id": "key_1", "scopes": [], "agents": [None]},
        {"scopes": ["admin"]},
    ],
)
def test_what_has_another_form_is_no_caller(stored: Any) -> None:
    assert Caller.from_json(stored) is None
