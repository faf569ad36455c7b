"""Agents that ask each other: the answer, failures, circles, deadlines, and attempts that ask once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

import pytest

from chronicle.journal.records import MessageStatus
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import AskCycle, AskFailed, AskTimeout, UnknownAgentType
from podium.messages import asking
from podium.messages.ask_circles import find_circle
from podium.messages.headers import Headers
from podium.messages.inbox import list_inbox
from podium.testing import AgentHarness, HarnessOptions
from tests.waiting import until


class Worker(BaseAgent):
    """Does what it is asked."""

    class State(DeltaState):
        done: list[str] = []

    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if message["do"] == "fail":
            raise ValueError("I cannot")
        if message["do"] == "ask back":
            await ctx.ask(str(ctx.sender), {"do": "answer"})
        ctx.state.done.append(f"{message['do']}, for {ctx.sender}")
        await ctx.send_message("well ")
        await ctx.send_message("done")
        ctx.reply({"n": len(ctx.state.done)})


class Boss(BaseAgent):
    """Asks a worker."""

    class State(DeltaState):
        answers: list[Any] = []

    fails: ClassVar[bool] = False
    errors: ClassVar[list[Exception]] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        try:
            answer = await ctx.ask(
                message.get("agent", "worker/kim"), {"do": message["do"]}, timeout=message.get("timeout")
            )
        except Exception as error:
            type(self).errors.append(error)
            raise
        if type(self).fails:
            type(self).fails = False
            raise ConnectionError("lost behind the answer")
        ctx.state.answers.append([answer.agent, answer.text, answer.data, answer.turn])


class Rewording(Boss):
    """Asks something else in each attempt."""

    attempts: ClassVar[int] = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        type(self).attempts += 1
        answer = await ctx.ask("worker/kim", {"do": f"sweep {self.attempts}"})
        ctx.state.answers.append(answer.data)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Boss.fails, Boss.errors, Boss.max_attempts = False, [], 3
    Rewording.attempts = 0


@asynccontextmanager
async def boss_and_worker(**more: Any) -> AsyncIterator[tuple[AgentHarness, AgentHarness]]:
    async with (
        AgentHarness(Boss, "ann", **more) as boss,
        AgentHarness(Worker, "kim", store=boss.store, blobs=boss.blobs, clock=boss.clock) as worker,
    ):
        yield boss, worker


async def asked(boss: AgentHarness, worker: AgentHarness, message: dict[str, Any]) -> Any:
    """Send the boss a message, and have the worker handle what comes of it."""
    going = asyncio.create_task(boss.send(message))
    session = worker.store.session(worker.address.name)
    await until(lambda: going.done() or bool(worker.store.pending(session.session_id)))
    await worker.receive()
    return await going


async def test_the_answer_has_text_data_and_turn() -> None:
    async with boss_and_worker() as (boss, worker):
        assert (await asked(boss, worker, {"do": "sweep"})).ok
        assert boss.state["answers"] == [["worker/kim", "well done", {"n": 1}, 1]]
        assert worker.state["done"] == ["sweep, for boss/ann"]


async def test_a_further_attempt_does_not_ask_again() -> None:
    Boss.fails = True
    async with boss_and_worker() as (boss, worker):
        assert (await asked(boss, worker, {"do": "sweep"})).ok
        assert len(boss.state["answers"]) == 1  # type: ignore[arg-type]
        assert worker.state["done"] == ["sweep, for boss/ann"]


@pytest.mark.parametrize("answered", [True, False])
async def test_an_asker_that_dies_gets_the_answer_to_the_same_question(answered: bool) -> None:
    async with boss_and_worker() as (boss, worker):
        boss.admit({"do": "sweep"})
        lost = asyncio.create_task(boss.activation.handle_next())
        session = worker.store.session(worker.address.name)
        await until(lambda: bool(worker.store.pending(session.session_id)))
        lost.cancel()
        await asyncio.wait([lost])
        if answered:
            await worker.receive()
        await boss.kill()
        going = asyncio.create_task(boss.receive())
        await worker.receive()
        assert await going == 1
        assert boss.state["answers"] == [["worker/kim", "well done", {"n": 1}, 1]]
        assert worker.state["done"] == ["sweep, for boss/ann"]


async def test_an_asker_that_dies_may_ask_something_else_then() -> None:
    async with (
        AgentHarness(Rewording, "ann") as boss,
        AgentHarness(Worker, "kim", store=boss.store, blobs=boss.blobs, clock=boss.clock) as worker,
    ):
        boss.admit({})
        lost = asyncio.create_task(boss.activation.handle_next())
        session = worker.store.session(worker.address.name)
        await until(lambda: bool(worker.store.pending(session.session_id)))
        lost.cancel()
        await asyncio.wait([lost])
        await boss.kill()
        going = asyncio.create_task(boss.receive())
        await until(lambda: going.done() or len(worker.store.pending(session.session_id)) > 1)
        await worker.receive()
        assert await going == 1
        assert worker.state["done"] == ["sweep 1, for rewording/ann", "sweep 2, for rewording/ann"]
        assert boss.state["answers"] == [{"n": 2}]


async def test_a_receiver_that_failed_fails_the_question() -> None:
    Boss.max_attempts = 1
    async with boss_and_worker() as (boss, worker):
        answer = await asked(boss, worker, {"do": "fail"})
        assert answer.error["type"] == "AskFailed"
        assert (
            "worker/kim failed at the question: ValueError: I cannot; the message is parked" in answer.error["message"]
        )
        assert isinstance(Boss.errors[0], AskFailed)


async def test_circles_are_refused_with_their_path() -> None:
    Boss.max_attempts = 1
    async with boss_and_worker() as (boss, worker):
        alone = await boss.send({"do": "x", "agent": "boss/ann"})
        assert alone.error is not None
        assert alone.error["type"] == "AskCycle"
        assert str(alone.error["message"]).startswith("boss/ann -> boss/ann: ")
        assert isinstance(Boss.errors[0], AskCycle)
        circle = await asked(boss, worker, {"do": "ask back"})
        assert "AskCycle: boss/ann -> worker/kim -> boss/ann: boss/ann waits" in circle.error["message"]


class Peer(BaseAgent):
    """Asks the next agent, and tells what came of it."""

    class State(DeltaState):
        pass

    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if "ask" in message:
            asking = asyncio.create_task(ctx.ask(f"peer/{message['ask']}", {}, timeout=message["timeout"]))
            if "unless" in message:  # it goes on without the answer if it is told to
                told = asyncio.create_task(message_came.wait())
                await asyncio.wait([asking, told], return_when=asyncio.FIRST_COMPLETED)
                asking.cancel()
                await asyncio.wait([asking])
                told.cancel()
                return
            ctx.reply((await asking).data)
        else:
            ctx.reply("here")


message_came = asyncio.Event()


@asynccontextmanager
async def peers(monkeypatch: pytest.MonkeyPatch, *keys: str) -> AsyncIterator[list[AgentHarness]]:
    """Agents that look for circles often."""
    monkeypatch.setattr(asking, "_WAKE_EVERY_S", 0.01)
    message_came.clear()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AgentHarness(Peer, keys[0]))
        shared: dict[str, Any] = {"store": first.store, "blobs": first.blobs, "clock": first.clock}
        others = [await stack.enter_async_context(AgentHarness(Peer, key, **shared)) for key in keys[1:]]
        yield [first, *others]


def first_payload(agent: AgentHarness, event_type: str) -> Any:
    """Return the payload of an agent's first event of a type."""
    return agent.events(event_type)[0][1]


@pytest.mark.parametrize("keys", ["ab", "abc"])
async def test_agents_that_wait_for_each_other_in_turns_of_their_own_are_told_of_the_circle(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, keys: str
) -> None:
    async with peers(monkeypatch, *keys) as agents:
        for agent, following in zip(agents, keys[1:] + keys[0], strict=True):
            agent.admit({"ask": following, "timeout": 2 if agent is agents[-1] else 60})
        running = [asyncio.create_task(agent.receive()) for agent in agents]
        await running[-1]
        failed = first_payload(agents[-1], "turn.failed")["error"]
        path = " -> ".join(f"peer/{key}" for key in keys + keys[0])
        assert failed["type"] == "AskTimeout"
        says = f"peer/{keys[0]} did not answer within 2 s, as they waited for each other in turns of their own: {path}"
        assert failed["message"] == says
        assert "agents_wait_for_each_other" in caplog.text
        await asyncio.gather(*running)
        assert first_payload(agents[0], "message.answered")["data"] == "here"


async def test_a_turn_that_may_go_on_without_the_answer_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Why a circle is not refused: it may end by itself."""
    async with peers(monkeypatch, "a", "b") as (one, other):
        other.admit({"ask": "a", "timeout": 60, "unless": "told"})
        one.admit({"ask": "b", "timeout": 60})
        running = [asyncio.create_task(agent.receive()) for agent in (one, other)]
        told = ""
        while "agents_wait_for_each_other" not in told:
            await asyncio.wait(running, timeout=0.01)
            told += caplog.text
        message_came.set()
        await asyncio.gather(*running)
        assert first_payload(one, "message.answered")["data"] == "here"


async def test_questions_that_nobody_waits_for_any_more_are_no_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peers(monkeypatch, "a", "b") as (one, other):
        one.admit({"ask": "b", "timeout": 60})
        asked = asyncio.create_task(one.receive())
        await until(lambda: bool(one.store.pending(one.store.session(other.address.name).session_id)))
        now_ms = one.clock.now_ms()
        assert find_circle(one.store, "peer/b", "peer/a", "default", now_ms) == ["peer/a", "peer/b", "peer/a"]
        assert find_circle(one.store, "peer/b", "peer/a", "default", now_ms + 60_000) is None, "its time is over"
        assert find_circle(one.store, "peer/b", "peer/c", "default", now_ms) is None
        assert find_circle(one.store, "peer/a", "peer/b", "default", now_ms) is None
        asked.cancel()
        await asyncio.wait([asked])
        (handled,) = one.store.pending(one.store.session(one.address.name).session_id)
        await one.kill()
        await one.activation.cancel(handled.message_id)
        assert find_circle(one.store, "peer/b", "peer/a", "default", now_ms) is None, "its message is gone"


async def test_no_answer_in_time_fails_and_the_receiver_drops_the_question() -> None:
    Boss.max_attempts = 1
    async with boss_and_worker() as (boss, worker):
        answer = await boss.send({"do": "sweep", "timeout": 0.05})
        assert answer.error is not None
        assert (answer.error["type"], answer.error["message"]) == (
            "AskTimeout",
            "worker/kim did not answer within 0.05 s",
        )
        assert isinstance(Boss.errors[0], AskTimeout)
        session = worker.store.session(worker.address.name)
        (question,) = worker.store.pending(session.session_id)
        header = Headers.from_json(question.headers).ask
        assert header is not None
        assert (header.path, header.deadline_ms - boss.clock.now_ms()) == (("boss/ann",), 50)
        worker.clock.advance(1)
        assert await worker.receive() == 1
        assert worker.store.message(question.message_id).status is MessageStatus.CANCELLED
        assert not list_inbox(worker.store, worker.blobs, session)
        assert worker.state["done"] == []


async def test_a_deadline_is_that_of_the_turn_and_of_its_asker() -> None:
    class Between(Boss):
        agent_type = "between"

    async with boss_and_worker() as (boss, worker):
        between = AgentHarness(Between, "b", store=boss.store, blobs=boss.blobs, clock=boss.clock)
        async with between:
            going = asyncio.create_task(boss.send({"do": "sweep", "agent": "between/b", "timeout": 20}))
            session = between.store.session(between.address.name)
            await until(lambda: bool(between.store.pending(session.session_id)))
            passing = asyncio.create_task(between.receive())
            session = worker.store.session(worker.address.name)
            await until(lambda: bool(worker.store.pending(session.session_id)))
            (question,) = worker.store.pending(session.session_id)
            header = Headers.from_json(question.headers).ask
            assert header is not None
            assert header.path == ("boss/ann", "between/b")
            assert header.deadline_ms - boss.clock.now_ms() == 20_000
            await worker.receive()
            await passing
            assert (await going).ok


async def test_agents_of_unknown_types_are_not_asked() -> None:
    Boss.max_attempts = 1
    async with boss_and_worker(options=HarnessOptions(known_types=["boss"])) as (boss, _):
        assert not (await boss.send({"do": "sweep"})).ok
        assert isinstance(Boss.errors[0], UnknownAgentType)


async def test_an_answer_is_as_deep_as_a_result_may_be() -> None:
    deep: Any = None
    for _ in range(128):
        deep = [deep]

    class Deep(Worker):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            ctx.reply(deep)

    class Curious(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            assert (await ctx.ask("deep/kim", {})).data == deep

    async with (
        AgentHarness(Curious, "ann") as curious,
        AgentHarness(Deep, "kim", store=curious.store, blobs=curious.blobs, clock=curious.clock) as worker,
    ):
        assert (await asked(curious, worker, {})).ok
