"""Typing examples for handlers: mypy and pyright read this file, and nothing runs it.

Lines that must be errors are marked; an unused mark is an error itself.
"""

from __future__ import annotations

from typing import Annotated, Literal, assert_type

from pydantic import BaseModel, Field

from coordinator.client import AsyncPodium, Podium
from podium.agent import AgentContext, Answer, Answered, AnswerText, BaseAgent, DeltaState, handler


class Query(BaseModel):
    text: str


class Hits(BaseModel):
    found: list[str]


class Added(BaseModel):
    kind: Literal["added"]


class Removed(BaseModel):
    kind: Literal["removed"]


class Searcher(BaseAgent):
    class State(DeltaState):
        count: int = 0

    @handler
    async def search(self, ctx: AgentContext[State], query: Query) -> Hits:
        assert_type(ctx.state.count, int)
        return Hits(found=[query.text])

    @handler
    async def change(
        self, ctx: AgentContext[State], change: Annotated[Added | Removed, Field(discriminator="kind")]
    ) -> None:
        assert_type(await self.search(ctx, Query(text="x")), Hits)

    @handler(read_only=True)
    async def count(self, ctx: AgentContext[State], query: Query) -> int:
        return ctx.state.count

    @handler  # type: ignore[arg-type]
    async def two(self, ctx: AgentContext[State], query: Query, limit: int) -> None: ...

    @handler  # type: ignore[arg-type]
    def waits(self, ctx: AgentContext[State], query: Query) -> None: ...


class Boss(BaseAgent):
    @handler
    async def order(self, ctx: AgentContext, query: Query) -> int:
        asked = ctx.ask(Searcher, "kim", timeout=3)
        assert_type(await asked.search(query), Hits)
        await asked.change(Added(kind="added"))
        await asked.search("cats")  # type: ignore[call-overload]
        await asked.find(query)  # type: ignore[attr-defined]
        assert_type(await ctx.ask("searcher/kim", {"text": "hi"}), Answer)
        await ctx.ask("searcher/kim", 3)  # type: ignore[call-overload]
        async for part in asked.search.stream(query):
            if isinstance(part, Answered):
                assert_type(part.result, Hits)
            elif isinstance(part, AnswerText):
                assert_type(part.reply, int)
        asked.search.stream("cats")  # type: ignore[arg-type]
        assert_type(await asked.count(query), int)
        return 3


async def clients_wait_for_results(podium: AsyncPodium) -> None:
    searcher = podium.of(Searcher, "kim", timeout=3, idempotency_key="once")
    assert_type(await searcher.search(Query(text="x")), Hits)
    assert_type(await podium.of(Boss, "ann").order(Query(text="x")), int)
    await searcher.search(Added(kind="added"))  # type: ignore[call-overload]
    async for part in searcher.search.stream(Query(text="x")):
        if isinstance(part, Answered):
            assert_type(part.result, Hits)


def clients_without_a_loop_get_them(podium: Podium) -> None:
    searcher = podium.of(Searcher, "kim", when_busy="reject")
    assert_type(searcher.search(Query(text="x")), Hits)
    searcher.search("x")  # type: ignore[arg-type]
