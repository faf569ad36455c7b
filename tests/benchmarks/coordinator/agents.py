"""The agents that the benchmarks talk to."""

from __future__ import annotations

from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Tally(BaseAgent):
    """Counts, writes a line to a file, answers with a word."""

    class State(DeltaState):
        count: int = 0

    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        (ctx.workspace / "count.txt").write_text(f"{ctx.state.count}\n")
        await ctx.send_message("counted")


class Sleeper(Tally):
    """The same, but it goes to zero at the first chance."""

    idle_timeout_s = 0.05


class Waiter(Tally):
    """The same; it says a word after somebody has decided, if it is told to wait."""

    idle_timeout_s = 0.05

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if message["text"] == "wait":
            await ctx.decide({"type": "object"}, reason="may it count?")
        await super().on_message(ctx, message)


class Counter(BaseAgent):
    """Counts and answers, and touches no file."""

    class State(DeltaState):
        count: int = 0

    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.send_message("counted")


class SharedSleeper(Counter):
    """The same in a shared host, and it goes to zero at the first chance."""

    isolation = "shared"
    idle_timeout_s = 0.05


class SharedTalker(BaseAgent):
    """Counts, and answers its message with as long a text, in a shared host."""

    class State(DeltaState):
        count: int = 0

    isolation = "shared"
    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.send_message("x" * len(message["text"]))


class Speaker(BaseAgent):
    """Says as many tokens as its message asks for."""

    class State(DeltaState):
        pass

    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        reply = await ctx.send_message("")
        for number in range(message["tokens"]):
            await reply.stream_token(f"token {number:06d} ")
        await reply.finish()
