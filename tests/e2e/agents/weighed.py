"""An agent that tells which libraries its process has loaded."""

from __future__ import annotations

import sys
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Weighed(BaseAgent):
    """Names those of its message that are loaded, or all of them."""

    class State(DeltaState):
        pass

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        asked = list(sys.modules) if message["text"] == "all" else message["text"].split()
        await ctx.send_message(" ".join(name for name in asked if name in sys.modules))
