"""What becomes of a message whose agent is busy, through the real activation on memory stores and a plain directory."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import structlog.testing

from chronicle.errors import Corrupt
from chronicle.ids import MessageId
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import InboxMessage, MessageStatus
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import AgentBusy
from podium.testing import AgentHarness
from podium.turn.activation import Step
from podium.turn.busy import BusyPolicy
from tests.waiting import until


class Worker(BaseAgent):
    """Works on a message until it is told to stop, by a file or by a message that steers it."""

    class State(DeltaState):
        _entity_type = "worker"
        done: list[str] = []
        heard: list[str] = []

    max_attempts = 2
    turn_timeout_s = 20.0
    started: asyncio.Event
    told: asyncio.Event

    def __init__(self) -> None:
        self.started, self.told = asyncio.Event(), asyncio.Event()

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text = message["text"]
        ctx.state.done.append(text)
        (ctx.workspace / "work.txt").write_text(text)
        whole = await ctx.send_message("begun ")
        await whole.stream_token(text, final=True)
        open_reply = await ctx.send_message("and ")
        if text.startswith("long"):
            self.started.set()
            await self.told.wait()
            if text == "long and broken" and len(ctx.state.heard):
                raise ValueError("as told")
        await open_reply.stream_token("done")


class Steered(Worker):
    """One that can be steered."""

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text = message["text"]
        ctx.state.heard.append(text)
        await ctx.send_message(f"heard {text}")
        await asyncio.sleep(0)
        if text == "break":
            raise RuntimeError("cannot hear")
        if text == "wait":
            await asyncio.Event().wait()
        if text != "go on":
            self.told.set()


class PartlyUnreadable(MemoryJournalStore):
    """A journal in which some messages cannot be read by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: set[str] = set()

    def message(self, message_id: MessageId) -> InboxMessage:
        if message_id in self.unreadable:
            raise Corrupt(f"message {message_id} is damaged")
        return super().message(message_id)


class Halved(Worker):
    """One that says what is no text."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if message["text"] == "long":
            await (await ctx.send_message("whole \ud83d\ude00, half ")).stream_token("\ud83d", final=True)
            await ctx.send_message("and \ude00")
            self.started.set()
            await self.told.wait()


async def begin(agent: AgentHarness, text: str = "long") -> asyncio.Task[Any]:
    """Send a message, and return when its turn runs."""
    sending = asyncio.create_task(agent.send(text))
    worker = worker_of(agent)
    await asyncio.wait_for(worker.started.wait(), 20)
    worker.started.clear()
    return sending


def worker_of(agent: AgentHarness) -> Any:
    return agent.activation._agent


def transcript(agent: AgentHarness) -> list[str]:
    said: list[str] = []
    for event, payload in agent.events():
        if event.type == "user_message":
            said.append(cast("dict[str, str]", payload["message"])["text"])
        elif event.type == "assistant_message":
            said.append(f"> {payload['text']}")
    return said


async def test_a_busy_agent_rejects_what_is_not_to_wait() -> None:
    async with AgentHarness(Worker) as agent:
        working = await begin(agent)
        with pytest.raises(AgentBusy, match="worker/test is busy"):
            await agent.send("now or never", when_busy=BusyPolicy.REJECT)
        worker_of(agent).told.set()
        assert (await working).ok
        answer = await agent.send("now", "key", BusyPolicy.REJECT)
        assert answer.ok
        agent.admit("waits")
        with pytest.raises(AgentBusy):
            agent.admit("never", when_busy=BusyPolicy.REJECT)
        again = await agent.send("now", "key", BusyPolicy.REJECT)  # a repeat is no new message
        assert again.text == answer.text
        assert agent.state["done"] == ["long", "now"]


async def test_an_interrupted_turn_is_undone_but_what_was_said_stays() -> None:
    async with AgentHarness(Worker) as agent:
        await agent.send("before")
        working = await begin(agent)
        answer = await agent.send("urgent", when_busy=BusyPolicy.INTERRUPT)
        stopped = await working
        assert answer.ok
        assert stopped.error == {
            "type": "Cancelled",
            "message": f"message {answer.receipt.message_id} took its place (interrupt)",
        }
        assert agent.state["done"] == ["before", "urgent"]
        assert (agent.workspace / "work.txt").read_text() == "urgent"
        assert transcript(agent)[3:] == ["long", "> begun long", "> and ", "urgent", "> begun urgent", "> and done"]
        partial = [payload.get("partial", False) for _, payload in agent.events("assistant_message")]
        assert partial == [False, False, False, True, False, False]
        ((event, cancelled),) = agent.events("turn.cancelled")
        assert (cancelled["policy"], cancelled["by"]) == ("interrupt", answer.receipt.message_id)
        assert cancelled["tree_id"] is not None
        assert event.turn == 1
        assert agent.store.message(stopped.receipt.message_id).status is MessageStatus.CANCELLED
        assert (await agent.activation.settled(stopped.receipt.message_id))[-1]["error"] == stopped.error
        await agent.kill()
        assert agent.state["done"] == ["before", "urgent"]


async def test_a_turn_that_is_rolled_back_is_not_in_the_transcript() -> None:
    async with AgentHarness(Worker) as agent:
        working = await begin(agent)
        answer = await agent.send("instead", when_busy=BusyPolicy.ROLLBACK)
        assert (await working).error is not None
        assert answer.ok
        assert agent.state["done"] == ["instead"]
        assert transcript(agent) == ["instead", "> begun instead", "> and done"]
        ((_, cancelled),) = agent.events("turn.cancelled")
        assert cancelled["policy"] == "rollback"


async def test_messages_before_the_one_that_interrupts_keep_their_places() -> None:
    async with AgentHarness(Worker) as agent:
        working = await begin(agent)
        waiting = asyncio.create_task(agent.send("patient"))
        await asyncio.sleep(0)
        assert (await agent.send("urgent", when_busy=BusyPolicy.INTERRUPT)).ok
        assert not (await working).ok
        assert (await waiting).ok
        assert agent.state["done"] == ["patient", "urgent"]


async def test_what_was_said_until_then_need_not_be_text() -> None:
    async with AgentHarness(Halved) as agent:
        working = await begin(agent)
        assert (await agent.send("urgent", when_busy=BusyPolicy.INTERRUPT)).ok
        assert not (await working).ok
        assert transcript(agent) == ["long", "> whole \U0001f600, half \ufffd", "> and \ufffd", "urgent"]


@pytest.mark.parametrize("policy", list(BusyPolicy))
async def test_an_agent_that_is_not_busy_handles_whatever_comes(policy: BusyPolicy) -> None:
    async with AgentHarness(Steered) as agent:
        assert (await agent.send("one", when_busy=policy)).ok
        assert (await agent.send("two", when_busy=policy)).ok
        assert agent.state == {"done": ["one", "two"], "heard": []}


async def test_asking_again_after_it_was_handled_stops_nobody() -> None:
    async with AgentHarness(Worker) as agent:
        first = await agent.send("first")
        working = await begin(agent)
        for policy in BusyPolicy:
            await agent.activation.preempt(first.receipt.message_id, policy)
            running = agent.activation.running_message_id
            assert running is not None
            await agent.activation.preempt(running, policy)
        worker_of(agent).told.set()
        assert (await working).ok


# S3.31
async def test_steering_is_part_of_the_running_turn() -> None:
    async with AgentHarness(Steered) as agent:
        working = await begin(agent)
        steering = asyncio.create_task(agent.send("go on", when_busy=BusyPolicy.STEER))
        await asyncio.sleep(0)
        last = await agent.send("stop", when_busy=BusyPolicy.STEER)
        worked, first = await working, await steering
        assert [answer.ok for answer in (worked, first, last)] == [True, True, True]
        assert worked.patch == first.patch == last.patch
        assert worked.text == "begun longand done"
        assert first.text == "heard go on"
        assert last.text == "heard stop"
        assert agent.state == {"done": ["long"], "heard": ["go on", "stop"]}
        ((_, committed),) = agent.events("turn.committed")
        messages = [answer.receipt.message_id for answer in (worked, first, last)]
        assert committed["consumed"] == messages
        assert {agent.store.message(MessageId(each)).status for each in messages} == {MessageStatus.CONSUMED}
        assert sorted(transcript(agent)) == sorted(
            ["long", "> begun long", "> and done", "go on", "> heard go on", "stop", "> heard stop"]
        )
        for answer in (worked, first, last):  # as somebody reads it who was not there
            frames = await agent.activation.settled(answer.receipt.message_id)
            assert "".join(frame["text"] for frame in frames if frame["type"] == "message_end") == answer.text
            assert frames[-1]["patch"] == worked.patch
        await agent.kill()
        assert agent.state["heard"] == ["go on", "stop"]


async def test_without_on_steer_a_message_waits() -> None:
    async with AgentHarness(Worker) as agent:
        working = await begin(agent)
        steering = asyncio.create_task(agent.send("later", when_busy=BusyPolicy.STEER))
        session_id = agent.store.session(str(agent.address)).session_id
        await until(lambda: len(agent.store.pending(session_id)) == 2, "it is not admitted")
        assert not steering.done()
        worker_of(agent).told.set()
        assert (await working).ok
        assert (await steering).ok
        assert agent.state["done"] == ["long", "later"]


async def test_a_steering_that_fails_fails_the_turn_and_waits_then() -> None:
    async with AgentHarness(Steered) as agent:
        working = await begin(agent)
        steering = asyncio.create_task(agent.send("break", when_busy=BusyPolicy.STEER))
        worker = worker_of(agent)
        await asyncio.wait_for(worker.started.wait(), 20)  # the second try
        assert agent.activation.state.model_dump() == {"done": ["long"], "heard": []}
        worker.told.set()
        worked, steered = await working, await steering
        assert worked.ok
        assert [frame["attempt"] for frame in worked.frames if frame["type"] == "turn_retry"] == [1]
        assert steered.ok
        assert steered.text == "begun breakand done"
        assert agent.state == {"done": ["long", "break"], "heard": []}


async def test_a_turn_that_fails_after_it_was_steered_gives_the_message_back() -> None:
    async with AgentHarness(Steered) as agent:
        working = await begin(agent, "long and broken")
        steered = await agent.send("stop", when_busy=BusyPolicy.STEER)
        assert (await working).ok  # the second try was not steered
        assert steered.ok
        assert agent.state == {"done": ["long and broken", "stop"], "heard": []}


async def test_a_steering_message_that_was_taken_back_is_not_handled_after_its_turn_failed() -> None:
    async with AgentHarness(Steered) as agent:
        working = await begin(agent)
        receipt = agent.admit("wait")
        await agent.activation.preempt(receipt.message_id, BusyPolicy.STEER)
        while not agent.activation.state.model_dump()["heard"]:
            await asyncio.sleep(0)
        await agent.activation.cancel(receipt.message_id)
        assert agent.store.message(receipt.message_id).status is MessageStatus.PENDING
        answer = await agent.send("urgent", when_busy=BusyPolicy.INTERRUPT)
        assert answer.ok
        assert not (await working).ok
        assert agent.store.message(receipt.message_id).status is MessageStatus.CANCELLED
        assert agent.state == {"done": ["urgent"], "heard": []}


async def test_a_waiting_message_that_is_taken_back_is_settled_at_once_beside_a_turn() -> None:
    async with AgentHarness(Worker) as agent:
        working = await begin(agent)
        waiting = asyncio.create_task(agent.send("waits"))
        await asyncio.sleep(0)
        (_, second) = agent.store.pending(agent.store.session("worker/test").session_id)
        await agent.activation.cancel(second.message_id)
        assert agent.store.message(second.message_id).status is MessageStatus.CANCELLED
        ((_, cancelled),) = agent.events("turn.cancelled")
        assert (cancelled["policy"], cancelled["by"], cancelled["tree_id"]) == (None, None, None)
        worker_of(agent).told.set()
        assert (await working).ok
        assert (await waiting).error == {"type": "Cancelled", "message": "its sender took it back"}
        assert agent.state["done"] == ["long"]


@pytest.mark.parametrize("policy", [BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK])
async def test_an_attempt_that_was_lost_with_its_host_is_interrupted(policy: BusyPolicy) -> None:
    async with AgentHarness(Worker) as agent:
        agent.admit("long")
        await agent.kill("killed")
        assert (await agent.send("now", when_busy=policy)).ok
        assert agent.state["done"] == ["now"]
        assert [event.type for event, _ in agent.events() if event.type.startswith("turn.c")] == [
            "turn.cancelled",
            "turn.committed",
        ]


async def test_an_attempt_that_was_lost_with_its_host_is_steered() -> None:
    async with AgentHarness(Steered) as agent:
        agent.admit("long")
        await agent.kill("killed")
        assert (await agent.send("finish", when_busy=BusyPolicy.STEER)).ok
        assert (agent.state["done"], agent.state["heard"]) == (["long"], ["finish"])


async def test_a_message_that_cannot_be_read_to_steer_a_turn_does_not_fail_it() -> None:
    store = PartlyUnreadable()
    async with AgentHarness(Steered, store=store) as agent:
        long = agent.admit("long")
        await agent.kill("killed")
        steering = agent.admit("finish", when_busy=BusyPolicy.STEER)
        await agent.activation.preempt(steering.message_id, BusyPolicy.STEER)
        store.unreadable.add(steering.message_id)
        worker_of(agent).told.set()
        with structlog.testing.capture_logs() as logged:
            assert await agent.activation.handle_next() is Step.HANDLED
        (warning,) = [each for each in logged if each["log_level"] == "warning"]
        assert (warning["event"], warning["message_id"]) == ("not_preempted", steering.message_id)
        assert (await agent.activation.settled(long.message_id))[-1]["type"] == "turn_end"
        assert agent.state == {"done": ["long"], "heard": []}
        store.unreadable.clear()
        assert await agent.activation.handle_next() is Step.HANDLED
        assert agent.state["done"] == ["long", "finish"]
