"""Agents that say where they are, for as long as they are let."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState

PAUSE_S = 0.05


class Herald(BaseAgent):
    """Says the name of its machine again and again until there is a file, then commits it."""

    class State(DeltaState):
        _entity_type = "herald"
        places: list[str] = []

    resources = {"apart": 0.1}

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        place, gate = socket.gethostname(), Path(message["gate"])
        reply = await ctx.send_message("")
        while not gate.exists():
            await reply.stream_token(f"{place} ")
            await asyncio.sleep(PAUSE_S)
        await reply.stream_token(place, final=True)
        ctx.state.places.append(place)
        (ctx.workspace / "place").write_text(place)
        ctx.reply({"place": place})
