"""Agents that are read while their turns wait, and whose process dies of a read."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from podium.agent import AgentContext, BaseAgent, handler
from podium.agent.models.delta_state import DeltaState


class Plan(BaseModel):
    notes: str = ""


class Read(BaseAgent):
    """Counts its messages, each of which waits for a file."""

    class State(DeltaState):
        _entity_type = "read"
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        plan = json.loads(message["text"])
        ctx.state.count += 1
        Path(plan["begun"]).touch()
        while not Path(plan["until"]).exists():
            await asyncio.sleep(0.02)

    @handler(read_only=True)
    async def count(self, ctx: AgentContext[Any], _: Plan) -> int:
        return int(ctx.state.count)

    @handler(read_only=True)
    async def set(self, ctx: AgentContext[Any], _: Plan) -> None:
        ctx.state.count = 7

    @handler(read_only=True)
    async def dies(self, ctx: AgentContext[Any], plan: Plan) -> int:
        notes = Path(plan.notes)
        if not notes.exists():
            notes.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(ctx.state.count)


class SharedRead(Read):
    """The same in a process of many agents."""

    isolation = "shared"

    class State(DeltaState):
        _entity_type = "sharedread"
        count: int = 0


class Reader(BaseAgent):
    """Reads another agent."""

    class State(DeltaState):
        _entity_type = "reader"

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.reply(await ctx.ask(Read, message["text"]).count(Plan()))
