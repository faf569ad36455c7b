"""Agents that tell their process: many that share one, and one that has it for itself."""

from __future__ import annotations

import os
from typing import Any

from podium.agent import AgentContext, BaseAgent, DeltaState


class Alone(BaseAgent):
    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        del message
        ctx.state.count += 1
        ctx.reply([os.getpid(), ctx.state.count])


class Sharing(Alone):
    isolation = "shared"
