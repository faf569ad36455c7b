"""An agent that shares its process with others, and does what its message says."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from podium.agent import AgentContext, BaseAgent, DeltaState


class Gathering(BaseAgent):
    isolation = "shared"
    max_attempts = 2
    turn_timeout_s = 60.0

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        answer: object = ctx.state.count
        match message["text"]:
            case "write":
                with (ctx.workspace / "log").open("a") as file:
                    file.write(f"{ctx.agent_id} {ctx.state.count}\n")
                answer = (ctx.workspace / "log").read_text()
            case "variable":
                answer = os.environ["AGENT_WORKSPACE"]
            case "block":
                time.sleep(600)  # noqa: ASYNC251  as told
            case "wait":
                await ctx.emit("waiting")
                await asyncio.sleep(600)
            case "pause":
                await ctx.emit("waiting")
                await asyncio.sleep(8)
        ctx.reply({"pid": os.getpid(), "answer": answer})
