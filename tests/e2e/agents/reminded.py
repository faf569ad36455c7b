"""An agent that is reminded as its messages say: JSON objects, the arguments of `AgentContext.remind`."""

from __future__ import annotations

import json
from typing import Any

from podium.agent import AgentContext, BaseAgent, DeltaState, Reminder


class Reminded(BaseAgent):
    """Remembers which reminders came."""

    idle_timeout_s = 0.2

    class State(DeltaState):
        _version = 1
        _entity_type = "reminded"

        heard: list[str] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        order = json.loads(message["text"])
        if "cancel" in order:
            ctx.reply(await ctx.cancel_reminder(order["cancel"]))
        else:
            ctx.reply((await ctx.remind(**order)).isoformat())

    async def on_reminder(self, ctx: AgentContext[State], reminder: Reminder) -> None:
        ctx.state.heard.append(reminder.name)
