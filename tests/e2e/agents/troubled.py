"""Agents that do what agents should not, for the end-to-end tests."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
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
        if text.startswith("block "):
            Path(text.removeprefix("block ")).touch()
            time.sleep(600)  # noqa: ASYNC251  as told
        elif text.startswith("wait for "):
            await until_exists(Path(text.removeprefix("wait for ")))
        elif text == "interrupt":
            raise KeyboardInterrupt
        elif text == "exit":
            os._exit(3)
        reply = await ctx.send_message(str(os.getpid()))
        await reply.finish()


class Sleepy(Troubled):
    """The same, but it goes to zero at once; its shutdown lasts until ``gate`` is in its message's directory."""

    class State(Troubled.State):
        _entity_type = "sleepy"

    idle_timeout_s = 0.05

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        self.directory = Path(message["directory"])
        await super().on_message(ctx, message)

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        gate = self.directory / "gate"
        (self.directory / "shuts-down").touch()
        await until_exists(gate)
        gate.unlink()


async def until_exists(gate: Path) -> None:
    """Wait until a test makes a file."""
    while not gate.exists():
        await asyncio.sleep(0.005)
