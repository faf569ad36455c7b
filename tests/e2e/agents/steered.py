"""An agent that goes on until it is told to stop, and takes messages while it does."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Steered(BaseAgent):
    """Counts messages; ``go on`` ends when it was steered, ``block after`` a file is there never lets go."""

    class State(DeltaState):
        _entity_type = "steered"
        said: list[str] = []

    idle_timeout_s = 600.0

    def __init__(self) -> None:
        self._steered = asyncio.Event()
        self._told = ""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text = message["text"]
        ctx.state.said.append(text)
        (ctx.workspace / "said.txt").write_text(f"{text}\n")
        reply = await ctx.send_message("")
        await reply.stream_token(f"{os.getpid()} ")
        if text.startswith("block after "):
            gate = Path(text.removeprefix("block after "))
            while not gate.exists():
                await asyncio.sleep(0.02)
            gate.unlink()  # this tells the test, which made it, that the agent blocks
            time.sleep(600)  # noqa: ASYNC251  as told
        if text.startswith("go on"):
            await self._steered.wait()
            self._steered.clear()
            await reply.stream_token(f"steered by {self._told}")
        await reply.finish()

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        self._told = message["text"]
        ctx.state.said.append(f"steered by {self._told}")
        self._steered.set()
