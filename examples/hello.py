"""The smallest agent: it counts its messages and remembers them, also after it was asleep.

podium run examples/hello.py:HelloAgent --key alice --message "good morning"
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class HelloAgent(BaseAgent):
    """Counts messages, keeps them in its state, and the last ones in a file."""

    idle_timeout_s = 30

    class State(DeltaState):
        _version = 1
        _entity_type = "hello"

        count: int = 0
        history: list[str] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        text = str(message.get("text", ""))
        # Tracked as it is made and committed with the turn: there is nothing to save.
        ctx.state.count += 1
        ctx.state.history.append(text)

        # An ordinary file; each turn that writes it makes a version of it.
        notes = Path(os.environ["AGENT_WORKSPACE"]) / "notes.txt"
        notes.write_text("".join(f"{number}. {line}\n" for number, line in enumerate(ctx.state.history, start=1)))

        msg = await ctx.send_message("")
        words = f"Hello! This is message {ctx.state.count}, and you said: {text}".split(" ")
        for index, word in enumerate(words):
            last = index == len(words) - 1
            await msg.stream_token(word if last else word + " ", final=last)

    async def on_idle_timeout(self, ctx: AgentContext[State]) -> bool:
        return True  # nothing is going on: go to zero until the next message
