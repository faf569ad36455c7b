"""Agents that ask handlers of others: the result, what does not fit, and attempts that ask once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from podium.agent import AgentContext, BaseAgent, DeltaState, handler
from podium.testing import AgentHarness
from tests.waiting import until


class Query(BaseModel):
    text: str


class Hits(BaseModel):
    found: list[str]


class Searcher(BaseAgent):
    class State(DeltaState):
        searches: int = 0

    max_attempts = 1

    @handler
    async def search(self, ctx: AgentContext[State], query: Query) -> Hits:
        if query.text == "fail":
            raise ValueError("I cannot")
        ctx.state.searches += 1
        return Hits(found=[f"{query.text} for {ctx.sender}"])


class Newer(BaseAgent):
    """The searcher as another version has it."""

    agent_type = "searcher"

    @handler
    async def search(self, ctx: AgentContext[Any], query: Query) -> int: ...  # type: ignore[empty-body]


class Boss(BaseAgent):
    class State(DeltaState):
        found: list[str] = []

    fails: ClassVar[bool] = False

    @handler
    async def order(self, ctx: AgentContext[State], query: Query) -> None:
        hits = await ctx.ask(Searcher, "kim", timeout=60).search(query)
        if type(self).fails:
            type(self).fails = False
            raise ConnectionError("lost behind the answer")
        ctx.state.found += hits.found

    @handler
    async def wrong(self, ctx: AgentContext[State], query: Query) -> None:
        await ctx.ask(Searcher, "kim").search(Hits(found=[]))  # type: ignore[call-overload]

    @handler
    async def newer(self, ctx: AgentContext[State], query: Query) -> None:
        await ctx.ask(Newer, "kim").search(query)

    @handler
    async def no_time(self, ctx: AgentContext[State], query: Query) -> None:
        await ctx.ask(Searcher, "kim", timeout="soon").search(query)  # type: ignore[call-overload]


@asynccontextmanager
async def boss_and_searcher() -> AsyncIterator[tuple[AgentHarness, AgentHarness]]:
    async with (
        AgentHarness(Boss, "ann") as boss,
        AgentHarness(Searcher, "kim", store=boss.store, blobs=boss.blobs, clock=boss.clock) as searcher,
    ):
        yield boss, searcher


async def ordered(boss: AgentHarness, searcher: AgentHarness, name: str, text: str) -> Any:
    going = asyncio.create_task(boss.send({"handler": name, "input": {"text": text}}))
    session = searcher.store.session(searcher.address.name)
    await until(lambda: going.done() or bool(searcher.store.pending(session.session_id)))
    await searcher.receive()
    return await going


@pytest.mark.parametrize("fails", [False, True])
async def test_the_result_is_typed_and_asked_for_once(fails: bool) -> None:
    Boss.fails = fails
    async with boss_and_searcher() as (boss, searcher):
        assert (await ordered(boss, searcher, "order", "cats")).ok
        assert boss.state == {"found": ["cats for boss/ann"]}
        assert searcher.state == {"searches": 1}
        (asked,) = [payload["message"] for _, payload in searcher.events("user_message")]
        assert asked == {"handler": "search", "input": {"text": "cats"}}


@pytest.mark.parametrize(
    ("name", "text", "kind", "says"),
    [
        ("wrong", "x", "InvalidMessage", "message.input: input should be a valid dictionary or instance of Query"),
        ("newer", "x", "AskFailed", "searcher/kim runs with another class: its result does not fit"),
        ("no_time", "x", "WrongType", "ask takes a timeout in seconds, not str"),
    ],
)
async def test_what_does_not_fit(name: str, text: str, kind: str, says: str) -> None:
    async with boss_and_searcher() as (boss, searcher):
        error = (await ordered(boss, searcher, name, text)).error
        assert (error["type"], error["message"][: len(says)]) == (kind, says)


async def test_a_handler_that_fails_fails_the_question() -> None:
    async with boss_and_searcher() as (boss, searcher):
        error = (await ordered(boss, searcher, "order", "fail")).error
        assert error["type"] == "AskFailed"
        assert "ValueError: I cannot" in error["message"]
