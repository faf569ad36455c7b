"""The agents of `bench_cluster`: they say on which machine they are."""

from __future__ import annotations

import socket
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Placed(BaseAgent):
    """Keeps the latest text, and says where it is; on another machine than the service's."""

    class State(DeltaState):
        _entity_type = "placed"
        text: str = ""

    resources = {"apart": 0.001}
    idle_timeout_s = 3600
    max_attempts = 1000

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.text = message["text"]
        ctx.reply({"place": socket.gethostname()})


class Spread(Placed):
    """The same on any machine, in a process with others."""

    agent_type = "spread"
    isolation = "shared"
    resources = {}
