"""Agents that do what agents should not, for the end-to-end tests."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Troubled(BaseAgent):
    """Does what its message says."""

    class State(DeltaState):
        _version = 1
        _entity_type = "troubled"
        count: int = 0

    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text = message["text"]
        ctx.state.count += 1
        (ctx.workspace / "who.txt").write_text(f"{ctx.key} {ctx.state.count}\n")
        if text == "block":
            time.sleep(600)  # noqa: ASYNC251  as told
        elif text == "sleep past the grace":
            await asyncio.sleep(8)
        elif text == "interrupt":
            raise KeyboardInterrupt
        elif text == "exit":
            os._exit(3)
        reply = await ctx.send_message(str(os.getpid()))
        await reply.finish()


class Sleepy(Troubled):
    """The same, but it goes to zero at once, and takes its time."""

    class State(Troubled.State):
        _entity_type = "sleepy"

    idle_timeout_s = 0.2

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        await asyncio.sleep(0.3)
