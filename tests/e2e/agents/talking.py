"""An agent that asks two models: one that answers at once, and one that takes its time."""

from __future__ import annotations

import os
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.models import LLMMessage, TextDelta


class Talker(BaseAgent):
    max_attempts = 20

    class State(DeltaState):
        planned: list[str] = []
        said: str = ""
        sees_key: bool = True

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        asked = LLMMessage("user", str(message["text"]))
        answered = await ctx.llm("quick").answer([asked])
        ctx.state.planned.append(answered.message.text)
        ctx.state.sees_key = "SECRET_MODEL_KEY" in os.environ
        reply = await ctx.send_message("")
        async for chunk in ctx.llm("slow").stream([asked, answered.message, LLMMessage("user", "go on")]):
            if isinstance(chunk, TextDelta):
                ctx.state.said += chunk.text
                await reply.stream_token(chunk.text)
