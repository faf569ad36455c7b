"""Answers that are read while the other agent works: the parts, their record, and attempts that fail on either side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from podium.agent import (
    AgentContext,
    Answered,
    AnswerEvent,
    AnswerPart,
    AnswerText,
    BaseAgent,
    DeltaState,
    handler,
)
from podium.testing import AgentHarness
from podium.turn.answer_parts import AnswerReader
from tests.waiting import until


class Query(BaseModel):
    text: str


class Hits(BaseModel):
    found: list[str]


class Searcher(BaseAgent):
    """Says a word, waits until it may go on, and says another one."""

    class State(DeltaState):
        searches: int = 0

    may_go_on: ClassVar[asyncio.Event]
    fails: ClassVar[int] = 0
    max_attempts = 2

    @handler
    async def search(self, ctx: AgentContext[State], query: Query) -> Hits:
        ctx.state.searches += 1
        reply = await ctx.send_message()
        await reply.stream_token("looking ")
        await ctx.emit("progress", {"done": 1})
        await type(self).may_go_on.wait()
        if type(self).fails:
            type(self).fails -= 1
            raise ValueError("I cannot")
        await reply.stream_token("found", final=True)
        return Hits(found=[query.text])


class Boss(BaseAgent):
    class State(DeltaState):
        said: list[str] = []
        found: list[str] = []

    heard: ClassVar[list[list[AnswerPart[Any]]]] = []
    fails: ClassVar[bool] = False

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        parts: list[AnswerPart[Any]] = []
        self.heard.append(parts)
        if message.get("typed"):
            stream = ctx.ask(Searcher, "kim").search.stream(Query(text="cats"))
        else:
            stream = ctx.ask("searcher/kim", {"handler": "search", "input": {"text": "cats"}}).stream()
        async for part in stream:
            parts.append(part)
            if isinstance(part, AnswerText):
                ctx.state.said.append(part.text)
            elif isinstance(part, Answered):
                ctx.state.found += part.answer.data["found"]
        if type(self).fails:
            type(self).fails = False
            raise ConnectionError("lost behind the answer")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Searcher.may_go_on, Searcher.fails = asyncio.Event(), 0
    Boss.heard, Boss.fails, Boss.max_attempts = [], False, 3


@asynccontextmanager
async def boss_and_searcher() -> AsyncIterator[tuple[AgentHarness, AgentHarness]]:
    async with (
        AgentHarness(Boss, "ann") as boss,
        AgentHarness(Searcher, "kim", store=boss.store, blobs=boss.blobs, clock=boss.clock) as searcher,
    ):
        yield boss, searcher


async def begun(searcher: AgentHarness) -> asyncio.Task[Any]:
    """Have the searcher handle the question; return when the boss has heard of it."""
    session = searcher.store.session(searcher.address.name)
    await until(lambda: bool(searcher.store.pending(session.session_id)))
    handling = asyncio.create_task(searcher.receive())
    await until(lambda: len(Boss.heard[-1]) == 2)
    return handling


def shown(parts: list[AnswerPart[Any]]) -> list[Any]:
    return [part.text if isinstance(part, AnswerText) else type(part).__name__ for part in parts]


@pytest.mark.parametrize("typed", [False, True])
async def test_the_parts_arrive_while_the_other_agent_works(typed: bool) -> None:
    async with boss_and_searcher() as (boss, searcher):
        going = asyncio.create_task(boss.send({"typed": typed}))
        handling = await begun(searcher)
        assert Boss.heard == [[AnswerText("looking ", 1), AnswerEvent("progress", {"done": 1})]]
        assert not handling.done()
        Searcher.may_go_on.set()
        assert (await going).ok
        await handling
        text, last = Boss.heard[0][2:]
        assert text == AnswerText("found", 1)
        assert isinstance(last, Answered)
        assert (last.answer.agent, last.answer.text, last.answer.turn) == ("searcher/kim", "looking found", 1)
        assert last.result == (Hits(found=["cats"]) if typed else {"found": ["cats"]})
        assert boss.state == {"said": ["looking ", "found"], "found": ["cats"]}


@pytest.mark.parametrize("typed", [False, True])
async def test_a_further_attempt_gets_the_recorded_parts_and_does_not_ask_again(typed: bool) -> None:
    Boss.fails = True
    async with boss_and_searcher() as (boss, searcher):
        going = asyncio.create_task(boss.send({"typed": typed}))
        handling = await begun(searcher)
        Searcher.may_go_on.set()
        assert (await going).ok
        await handling
        first, second = Boss.heard
        assert first == second
        assert boss.state == {"said": ["looking ", "found"], "found": ["cats"]}
        assert searcher.state == {"searches": 1}


async def test_an_asker_that_dies_in_the_middle_hears_the_same_answer_from_its_beginning() -> None:
    async with boss_and_searcher() as (boss, searcher):
        boss.admit({})
        lost = asyncio.create_task(boss.activation.handle_next())
        handling = await begun(searcher)
        await boss.kill()
        lost.cancel()
        await asyncio.wait([lost])
        going = asyncio.create_task(boss.receive())
        await until(lambda: len(Boss.heard) == 2 and len(Boss.heard[1]) == 2)
        Searcher.may_go_on.set()
        await going
        await handling
        assert shown(Boss.heard[1]) == ["looking ", "AnswerEvent", "found", "Answered"]
        assert boss.state == {"said": ["looking ", "found"], "found": ["cats"]}
        assert searcher.state == {"searches": 1}


async def test_an_attempt_of_the_other_agent_that_fails_voids_its_parts() -> None:
    Searcher.fails = 1
    async with boss_and_searcher() as (boss, searcher):
        going = asyncio.create_task(boss.send({}))
        handling = await begun(searcher)
        Searcher.may_go_on.set()
        await handling
        assert (await going).ok
        parts = [part for part in shown(Boss.heard[0]) if part != "AnswerEvent"]  # not all of them need to come
        assert "|".join(parts).replace("looking |found", "looking found") == (  # the text may come as one
            "looking |AnswerVoided|looking found|Answered"
        )


async def test_an_other_agent_that_gives_up_fails_the_stream() -> None:
    Searcher.fails, Boss.max_attempts = 2, 1
    async with boss_and_searcher() as (boss, searcher):
        going = asyncio.create_task(boss.send({}))
        handling = await begun(searcher)
        Searcher.may_go_on.set()
        await handling
        error = (await going).error
        assert error is not None
        assert error["type"] == "AskFailed"
        assert "ValueError: I cannot" in str(error["message"])


class Changed(BaseAgent):
    """Awaits an answer, and reads it in the next attempt."""

    attempts: ClassVar[int] = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        type(self).attempts += 1
        asking = ctx.ask("searcher/kim", {"handler": "search", "input": {"text": "cats"}})
        if self.attempts == 1:
            await asyncio.create_task(asking)
            raise ConnectionError("lost")
        async for _ in asking.stream():
            pass


async def test_a_program_that_reads_what_it_has_awaited_has_changed() -> None:
    Searcher.may_go_on.set()
    async with (
        AgentHarness(Changed, "ann") as boss,
        AgentHarness(Searcher, "kim", store=boss.store, blobs=boss.blobs, clock=boss.clock) as searcher,
    ):
        going = asyncio.create_task(boss.send({}))
        session = searcher.store.session(searcher.address.name)
        await until(lambda: bool(searcher.store.pending(session.session_id)))
        await searcher.receive()
        changed = await going
        assert changed.paused, "a person decides what becomes of the recorded answer"
        assert "ask searcher/kim#1" in changed.frames[-1]["reason"]


def test_frames_that_are_read_again_tell_nothing_twice() -> None:
    reader = AnswerReader()

    def told(*frames: dict[str, Any]) -> list[Any]:
        return [part for frame in frames for part in reader.parts(frame)]

    start = {"type": "turn_start", "event_id": "e1"}
    first = {"type": "message_start", "reply_id": "r1", "ordinal": 1}
    event = {"type": "event", "name": "n", "data": {}, "ordinal": 1}
    assert told(start, first, {"type": "message_update", "reply_id": "r1", "delta": "ab"}, event) == [
        {"text": "ab", "reply": 1},
        {"event": "n", "data": {}},
    ]
    again = told(start, first, {"type": "message_update", "reply_id": "r1", "delta": "abc"}, event)
    assert again == [{"text": "c", "reply": 1}]
    assert told(start, first, {"type": "message_end", "reply_id": "r1", "text": "abcd"}) == [{"text": "d", "reply": 1}]
    other = {**start, "event_id": "e2"}
    assert told(other, first, {"type": "message_update", "reply_id": "r1", "delta": "x"}) == [
        "voided",
        {"text": "x", "reply": 1},
    ]
