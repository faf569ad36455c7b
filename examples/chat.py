"""A chat with a language model, which remembers the conversation, also after it was asleep.

podium run --project examples/podium.toml examples/chat.py:ChatAgent --key alice --message "good morning"

Which model answers, and with which key, is said in ``podium.toml``; without a change it is a script, ``answers.json``.
"""

from __future__ import annotations

from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.models import Collector, LLMMessage, TextDelta, message_from_json, message_to_json

INSTRUCTIONS = "You are a friendly assistant. Answer in a few sentences."


class ChatAgent(BaseAgent):
    """Answers each message with what a model says to the conversation so far."""

    idle_timeout_s = 60

    class State(DeltaState):
        _version = 1
        _entity_type = "chat"

        messages: list[dict[str, Any]] = []  # as the model gave them: also what only its provider understands

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        asked = LLMMessage("user", str(message.get("text", "")))
        before = [message_from_json(dict(each)) for each in ctx.state.messages]
        reply = await ctx.send_message("")
        answer = Collector()

        # One step of the turn: after a crash, or in a further attempt, the model is not asked again.
        model = ctx.llm(ctx.get_config("model", "chat"))
        async for chunk in model.stream([LLMMessage("system", INSTRUCTIONS), *before, asked]):
            answer.add(chunk)
            if isinstance(chunk, TextDelta):
                await reply.stream_token(chunk.text)

        ctx.state.messages += [message_to_json(asked), message_to_json(answer.answered().message)]
