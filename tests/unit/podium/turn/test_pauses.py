"""Turns that pause: what is kept, what goes on, and which answers are taken."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from chronicle.canonical import encode
from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus, NewMessage
from chronicle.journal.verify import verify_session
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.errors import (
    DecisionExpired,
    DecisionInvalid,
    RunNotFound,
    RunNotPaused,
)
from podium.events import TURN_COMMITTED, TURN_PAUSED
from podium.messages.headers import AskHeader, Headers
from podium.messages.inbox import list_inbox, retry_message, waiting_messages
from podium.testing.harness import AgentHarness, Exchange
from podium.turn.busy import BusyPolicy

pytestmark = pytest.mark.anyio


class Verdict(BaseModel):
    """What a person says."""

    verdict: Literal["yes", "no"]
    note: str = ""


class Buyer(BaseAgent):
    """Asks before it buys."""

    idle_timeout_s = 60.0
    calls: list[str]

    class State(DeltaState):
        """What it has done."""

        seen: list[str] = []
        bought: int = 0

    def __init__(self) -> None:
        self.idles = 0

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.seen.append(message["text"])
        match message["text"].split():
            case ["hello"]:
                await ctx.send_message("hi")
            case ["buy", *more]:
                price = await ctx.step("price", self.price)
                ctx.state.seen.append(f"price {price}")
                (ctx.workspace / "order.txt").write_text(f"{price}\n")
                options = dict(each.split("=") for each in more)
                verdict = await ctx.decide(Verdict, reason=f"pay {price}?", timeout=options.get("timeout"))
                ctx.state.seen.append(f"{verdict.verdict} {(ctx.workspace / 'order.txt').read_text().strip()}")
                if verdict.verdict == "yes":
                    ctx.state.bought += await ctx.step("pay", self.pay)
                ctx.reply(verdict.note)
            case ["nap", duration]:
                ctx.state.seen.append("sleeps")
                await ctx.sleep(duration)
                ctx.state.seen.append("wakes")
            case ["leave", loops]:
                asked = asyncio.create_task(ctx.decide({"type": "integer"}, reason="left"))
                for _ in range(int(loops)):
                    await asyncio.sleep(0)
                if int(loops) % 2:
                    asked.cancel()
                    await asyncio.wait([asked])
            case ["default"]:
                answer = await ctx.decide({"type": "integer"}, reason="how many?", timeout=5, default=7)
                ctx.reply(answer)
            case ["twice"]:
                first = await ctx.decide({"type": "integer"}, reason="first")
                second = await ctx.decide({"type": "integer"}, reason="second")
                ctx.reply([first, second])
            case ["both"]:
                ctx.reply(
                    await asyncio.gather(
                        ctx.step("slow", self.slow),
                        ctx.decide({"type": "integer"}, reason="left"),
                        ctx.decide({"type": "integer"}, reason="right"),
                    )
                )
            case ["stubborn"]:
                try:
                    await ctx.decide(True, reason="anything")
                except BaseException:  # noqa: BLE001  it must not make the turn one that commits
                    ctx.state.bought = 99
            case text:
                raise ValueError(text)

    async def on_idle_timeout(self, ctx: AgentContext[State]) -> bool:
        ctx.state.seen.append("idle")
        return True

    def price(self) -> int:
        CALLS.append("price")
        return 5

    def pay(self) -> int:
        CALLS.append("pay")
        return 1

    async def slow(self) -> str:
        await asyncio.sleep(0)
        CALLS.append("slow")
        return "done"


CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@pytest.fixture
async def agent() -> Any:
    async with AgentHarness(Buyer) as harness:
        yield harness
        assert verify_session(harness.store, harness.store.session(harness.address.name)).ok


def status(agent: AgentHarness, exchange: Exchange) -> MessageStatus:
    return agent.store.message(exchange.receipt.message_id).status


def run_of(exchange: Exchange) -> str:
    return exchange.receipt.message_id


async def test_a_decision_pauses_the_turn_and_goes_on_with_the_answer(agent: AgentHarness) -> None:
    # S4.1, S4.3, S4.4, S4.25
    await agent.send("hello")
    asked = await agent.send("buy")
    assert asked.paused
    assert not asked.ok
    pending, paused = asked.frames[-2:]
    assert pending["type"] == "tool_decision_pending"
    assert pending["reason"] == paused["reason"] == "pay 5?"
    assert pending["call_id"] == paused["call_id"] == "decide#1"
    assert pending["schema"] == Verdict.model_json_schema()
    assert status(agent, asked) is MessageStatus.PAUSED
    assert agent.state == {"seen": ["hello"], "bought": 0}, "nothing of it is to be seen"
    assert not (agent.workspace / "order.txt").exists()
    ((event, record),) = agent.events(TURN_PAUSED)
    assert (event.turn, record["message_id"], record["call_id"], record["number"]) == (1, run_of(asked), "decide#1", 2)
    assert record["args_hash"] == pending["args_hash"]
    assert record["tree_id"] is not None
    await agent.sleep()
    done = await agent.resume(run_of(asked), {"verdict": "yes", "note": "ok"}, by="ann")
    assert done.ok
    assert done.data == "ok"
    assert [frame for frame in done.frames if frame["type"] == "agent_resume"] == [
        {
            "message_id": run_of(asked),
            "type": "agent_resume",
            "call_id": "decide#1",
            "outcome": "answered",
            "by": "ann",
        }
    ]
    assert agent.state == {"seen": ["hello", "buy", "price 5", "yes 5"], "bought": 1}
    assert CALLS == ["price", "pay"], "no step ran twice"
    assert (agent.workspace / "order.txt").read_text() == "5\n"
    _, committed = agent.events(TURN_COMMITTED)[-1]
    steps: Any = committed["steps"]
    assert [step["key"] for step in steps["steps"]] == ["price#1", "decide#1", "pay#1"]
    assert steps["steps"][1]["pause"] == {"kind": "decide", "outcome": "answered", "by": "ann"}
    assert not agent.store.steps(done.receipt.message_id)


async def test_messages_wait_behind_a_paused_turn(agent: AgentHarness) -> None:
    asked = await agent.send("buy")
    behind = await agent.send("hello")
    assert not behind.frames
    assert await agent.receive() == 0
    session = agent.store.session(agent.address.name)
    assert [entry.message.status for entry in list_inbox(agent.store, agent.blobs, session)] == ["paused", "pending"]
    await agent.resume(run_of(asked), {"verdict": "no"})
    assert await agent.receive() == 1
    assert agent.state["seen"] == ["buy", "price 5", "no 5", "hello"]


async def test_a_host_that_dies_while_a_turn_is_paused_costs_no_attempt(agent: AgentHarness) -> None:
    asked = await agent.send("buy")
    await agent.kill()
    await agent.kill()
    assert agent.store.message(MessageId(run_of(asked))).attempts == 0
    assert (await agent.resume(run_of(asked), {"verdict": "yes"})).ok
    assert CALLS == ["price", "pay"]


async def test_an_agent_whose_turn_is_paused_sleeps_without_a_turn_of_its_own(agent: AgentHarness) -> None:
    asked = await agent.send("buy")
    assert agent.activation.is_held_up
    assert not await agent.advance(60)
    assert agent.state["seen"] == []
    await agent.resume(run_of(asked), {"verdict": "no"})
    assert not await agent.advance(60)
    assert agent.state["seen"] == ["buy", "price 5", "no 5", "idle"]


async def test_an_activation_that_finds_a_paused_turn_knows_it(agent: AgentHarness) -> None:
    await agent.send("buy")
    await agent.sleep()
    assert not (await agent.send("hello")).frames
    assert agent.activation.is_held_up


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ({"verdict": "maybe"}, "/verdict"),
        ({}, '"verdict" is a required'),
        ("yes", "is not of type"),
        (None, "null is not of type"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused(agent: AgentHarness, answer: Any, place: str) -> None:
    asked = await agent.send("buy")
    with pytest.raises(DecisionInvalid, match=place):
        await agent.resume(run_of(asked), answer)
    assert status(agent, asked) is MessageStatus.PAUSED
    assert (await agent.resume(run_of(asked), {"verdict": "no"})).ok


@pytest.mark.parametrize("loops", range(1, 16))
async def test_a_decision_that_the_hook_leaves_pauses_the_turn_or_was_not_asked_for(
    agent: AgentHarness, loops: int
) -> None:
    asked = await agent.send(f"leave {loops}")
    assert status(agent, asked) in (MessageStatus.PAUSED, MessageStatus.CONSUMED), asked.frames[-1]
    if status(agent, asked) is MessageStatus.PAUSED:
        assert (await agent.resume(run_of(asked), 1)).frames[-1]["type"] in ("turn_end", "error")
    assert (await agent.send("hello")).ok
    assert (await agent.send("buy")).frames[-1]["type"] == "turn_paused"


async def test_what_waits_is_the_paused_message_and_those_behind_it(agent: AgentHarness) -> None:
    session = agent.store.session("buyer/test")
    assert not waiting_messages(agent.store, session)
    behind = agent.admit("hello")
    assert [each.message_id for each in waiting_messages(agent.store, session)] == [behind.message_id]
    assert await agent.receive() == 1
    asked, behind = await agent.send("buy"), agent.admit("hello")
    waiting = waiting_messages(agent.store, session)
    assert [each.message_id for each in waiting] == [run_of(asked), behind.message_id]


@pytest.mark.parametrize("text", ["buy", "buy timeout=2h", "nap 2h"])
async def test_a_question_waits_for_an_answer_as_long_as_its_asker(agent: AgentHarness, text: str) -> None:
    now_ms = agent.clock.now_ms()
    asked = Headers(ask=AskHeader(("asker/a",), now_ms + 60_000)).to_json()
    question = NewMessage(MessageId("msg_asked"), encode({"text": text}), now_ms, headers=asked)
    session = agent.store.session("buyer/test")
    agent.store.admit(session.session_id, question)
    await agent.receive()
    assert agent.events(TURN_PAUSED)[0][1]["expires"] == now_ms + 60_000
    await agent.advance(61)
    assert agent.store.message(MessageId("msg_asked")).status is MessageStatus.CANCELLED
    assert (await agent.send("hello")).ok


async def test_answers_to_something_else_are_refused(agent: AgentHarness) -> None:
    done, asked = await agent.send("hello"), await agent.send("buy")
    yes: Any = {"verdict": "yes"}
    with pytest.raises(RunNotFound):
        await agent.resume("msg_no", yes)
    with pytest.raises(RunNotPaused, match="it is consumed"):
        await agent.resume(run_of(done), yes)
    with pytest.raises(RunNotPaused, match=r"not wait at decide#2, but at decide#1"):
        await agent.resume(run_of(asked), yes, call_id="decide#2")
    with pytest.raises(RunNotPaused, match="something else"):
        await agent.resume(run_of(asked), yes, args_hash="0" * 64)
    with pytest.raises(RunNotPaused, match="is paused"):
        retry_message(
            agent.store, agent.store.session(agent.address.name), asked.receipt.message_id, 0, drop_steps=True
        )
    args_hash = asked.frames[-2]["args_hash"]
    assert (await agent.resume(run_of(asked), yes, call_id="decide#1", args_hash=args_hash)).ok
    with pytest.raises(RunNotPaused, match="it is consumed"):
        await agent.resume(run_of(asked), yes)
    assert CALLS == ["price", "pay"]


async def test_a_late_answer_is_refused_and_the_program_is_told(agent: AgentHarness) -> None:
    asked = await agent.send("buy timeout=2h")
    expires: Any = agent.events(TURN_PAUSED)[0][1]["expires"]
    assert expires == agent.clock.now_ms() + 7_200_000
    agent.clock.advance(7199)
    with pytest.raises(DecisionInvalid):
        await agent.resume(run_of(asked), None)
    agent.clock.advance(1)
    with pytest.raises(DecisionExpired, match="late"):
        await agent.resume(run_of(asked), {"verdict": "yes"})
    await agent.advance(0)
    assert status(agent, asked) is MessageStatus.PARKED
    (entry,) = list_inbox(agent.store, agent.blobs, agent.store.session(agent.address.name))
    assert entry.error is not None
    assert entry.error["type"] == "DecisionExpired"
    assert agent.state["seen"] == []


async def test_an_answer_in_time_takes_the_expiry_back(agent: AgentHarness) -> None:
    asked = await agent.send("buy timeout=2h")
    assert agent.reminders() == []
    assert agent.store.next_reminder_ms() is not None
    assert (await agent.resume(run_of(asked), {"verdict": "no"})).ok
    assert agent.store.next_reminder_ms() is None


async def test_a_default_takes_the_place_of_an_answer(agent: AgentHarness) -> None:
    asked = await agent.send("default")
    await agent.sleep()
    await agent.advance(5)
    assert (await agent.activation.settled(asked.receipt.message_id))[-1]["data"] == 7


async def test_a_turn_sleeps_without_a_process(agent: AgentHarness) -> None:
    asked = await agent.send("nap 2h")
    assert [frame["type"] for frame in asked.frames[-1:]] == ["turn_paused"]
    with pytest.raises(RunNotPaused, match="sleeps"):
        await agent.resume(run_of(asked), None)
    await agent.sleep()
    await agent.advance(7_199)
    assert not agent.awake
    await agent.advance(1)
    assert agent.state["seen"] == ["nap 2h", "sleeps", "wakes"]
    assert agent.store.next_reminder_ms() is None


@pytest.mark.parametrize("duration", ["-1s", "0s", "2000d", "soon", "2h 5m", "nans"])
async def test_durations_that_cannot_be_used(agent: AgentHarness, duration: str) -> None:
    refused = await agent.send(f"nap {duration.replace(' ', '_')}")
    assert refused.error is not None
    assert refused.error["type"] == "InvalidInput"


async def test_a_turn_pauses_several_times(agent: AgentHarness) -> None:
    first = await agent.send("twice")
    second = await agent.resume(run_of(first), 1)
    assert second.paused
    assert second.frames[-1]["call_id"] == "decide#2"
    with pytest.raises(RunNotPaused, match="decide#2"):
        await agent.resume(run_of(first), 1, call_id="decide#1")
    await agent.kill()
    assert (await agent.resume(run_of(first), 2)).data == [1, 2]
    assert [record["call_id"] for _, record in agent.events(TURN_PAUSED)] == ["decide#1", "decide#2"]


async def test_steps_beside_a_decision_are_ended_before(agent: AgentHarness) -> None:
    asked = await agent.send("both")
    assert CALLS == ["slow"]
    left = await agent.resume(run_of(asked), 1)
    assert left.paused
    assert (await agent.resume(run_of(asked), 2)).data == ["done", 1, 2]
    assert CALLS == ["slow"]


async def test_a_program_that_catches_its_end_pauses_all_the_same(agent: AgentHarness) -> None:
    asked = await agent.send("stubborn")
    assert asked.paused
    assert agent.state["bought"] == 0
    assert (await agent.resume(run_of(asked), {"any": "thing"})).ok
    assert agent.state["bought"] == 0


@pytest.mark.parametrize("policy", [BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK])
@pytest.mark.parametrize("sleeps", [False, True])
async def test_a_message_may_cancel_a_paused_turn(agent: AgentHarness, policy: BusyPolicy, *, sleeps: bool) -> None:
    asked = await agent.send("buy timeout=2h")
    if sleeps:
        await agent.sleep()
    assert (await agent.send("hello", when_busy=policy)).text == "hi"
    assert status(agent, asked) is MessageStatus.CANCELLED
    assert agent.store.next_reminder_ms() is None
    assert not agent.store.steps(asked.receipt.message_id)
    with pytest.raises(RunNotPaused, match="cancelled"):
        await agent.resume(run_of(asked), {"verdict": "yes"})
    assert agent.state["seen"] == ["hello"]


async def test_a_sender_may_cancel_a_paused_turn(agent: AgentHarness) -> None:
    asked = await agent.send("buy")
    await agent.send("hello")
    await agent.activation.cancel(asked.receipt.message_id)
    assert status(agent, asked) is MessageStatus.CANCELLED
    assert await agent.receive() == 1
    assert agent.state["seen"] == ["hello"]


async def test_a_cancellation_at_the_moment_of_the_pause_is_not_lost(agent: AgentHarness) -> None:
    runner: Any = agent.activation._runner
    cancelled: list[str] = []
    pause = runner.pause

    async def cancel_meanwhile(message: Any, at: Any) -> None:
        await pause(message, at)
        agent.activation._hooks.cancel(message.message_id)
        cancelled.append(message.message_id)

    runner.pause = cancel_meanwhile
    asked = await agent.send("buy timeout=1h")
    assert cancelled
    assert asked.error is not None
    assert status(agent, asked) is MessageStatus.CANCELLED
    assert agent.store.next_reminder_ms() is None


async def test_a_pause_that_was_not_committed_is_paused_by_the_next_attempt(agent: AgentHarness) -> None:
    """The step without a result is durable, and the host dies before the message is paused."""
    runner: Any = agent.activation._runner

    async def die(message: Any, at: Any) -> None:
        raise OSError("dies here")

    runner.pause = die
    with pytest.raises(OSError, match="dies here"):
        await agent.send("buy timeout=2h")
    await agent.kill()
    assert await agent.receive() == 1
    (paused,) = agent.store.paused_messages()
    assert CALLS == ["price"]
    assert paused.step is not None
    assert paused.step.number == 2
    assert (await agent.resume(paused.message.message_id, {"verdict": "yes"})).ok
    assert CALLS == ["price", "pay"]


async def test_another_program_is_not_given_the_answer() -> None:
    class Other(Buyer):
        agent_type = "buyer"

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await ctx.step("price", self.price)
            await ctx.decide({"type": "boolean"}, reason="pay 5?")

    async with AgentHarness(Buyer) as agent:
        asked = await agent.send("buy")
        await agent.sleep()
        agent._class = Other
        changed = await agent.resume(run_of(asked), {"verdict": "yes"})
        assert changed.paused
        assert changed.frames[-1]["call_id"] == "program 3"
        agent._class = Buyer
        await agent.sleep()
        assert (await agent.resume(run_of(asked), "try_again")).ok
        assert agent.state["bought"] == 1


async def test_where_a_turn_cannot_pause() -> None:
    class Odd:
        """No type of answers."""

    class Wrong(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            match message["text"]:
                case "step":
                    await ctx.step("outer", lambda: ctx.decide(True, reason="inside"))
                case "schema":
                    await ctx.decide({"type": "nonsense"}, reason="no schema")
                case "type":
                    await ctx.decide(Odd, reason="no type")

    async with AgentHarness(Wrong) as agent:
        for text, error in (("step", "ContextMisuse"), ("schema", "DecisionInvalid"), ("type", "DecisionInvalid")):
            refused = await agent.send(text)
            assert refused.error is not None
            assert refused.error["type"] == error
