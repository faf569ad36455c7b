"""Agents for tests of the gateway."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from pydantic import BaseModel

from podium.agent import AgentContext, BaseAgent, handler
from podium.agent.models.delta_state import DeltaState

__all__ = ["Hits", "Notes", "Query", "Searcher", "Slow", "Stepping", "Troubled"]


class Notes(BaseAgent):
    """Counts messages, and writes each into a file."""

    agent_type = "notes"

    class State(DeltaState):
        _entity_type = "notes"
        _version = 1
        count: int = 0

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        with (ctx.workspace / "notes.txt").open("a") as file:
            file.write(f"{message['text']}\n")
        if "artifact" in message:
            await ctx.add_artifact("report.html", message["artifact"])
        if "remind" in message:
            await ctx.remind(**message["remind"])
        ctx.reply({"count": ctx.state.count})
        reply = await ctx.send_message("")
        await reply.stream_token(f"{ctx.state.count}: {message['text']}", final=True)


class Troubled(BaseAgent):
    """Fails at every message."""

    agent_type = "troubled"
    max_attempts = 1

    class State(DeltaState):
        _entity_type = "troubled"
        _version = 1

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        raise RuntimeError(f"no {message.get('text')}")


class Slow(BaseAgent):
    """Handles a message when it is let."""

    agent_type = "slow"

    class State(DeltaState):
        _entity_type = "slow"
        _version = 1

    begun: ClassVar[asyncio.Event]
    go_on: ClassVar[asyncio.Event]

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        await ctx.send_message("begun")
        Slow.begun.set()
        await Slow.go_on.wait()


class Stepping(BaseAgent):
    """Fails behind a step, unless its message tells it to go on."""

    agent_type = "stepping"
    max_attempts = 1

    class State(DeltaState):
        _entity_type = "stepping"
        _version = 1
        steps: int = 0

    ran: ClassVar[list[str]] = []
    fails: ClassVar[bool] = True

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.steps = await ctx.step("note", self._note, message["text"])
        if Stepping.fails:
            raise RuntimeError("behind the step")
        ctx.reply(ctx.state.steps)

    def _note(self, text: str) -> int:
        Stepping.ran.append(text)
        return len(Stepping.ran)


class Query(BaseModel):
    text: str
    limit: int = 2


class Hits(BaseModel):
    found: list[str]


class Searcher(BaseAgent):
    """Has a handler only."""

    agent_type = "searcher"

    @handler
    async def search(self, ctx: AgentContext[Any], query: Query) -> Hits:
        await ctx.send_message("looking")
        return Hits(found=[query.text] * query.limit)

    @handler(read_only=True)
    async def turns(self, ctx: AgentContext[Any], query: Query) -> int:
        if query.text == "fail":
            raise ValueError("I cannot")
        if query.text == "write":
            await ctx.send_message("x")
        return ctx.turn
