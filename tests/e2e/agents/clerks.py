"""Agents that keep a record of each message in four places, and note outside of them which steps ran and ended."""

from __future__ import annotations

import os
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


def note(path: str, line: str) -> None:
    """Append a line outside of what is rolled back; whole, as other processes append to the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


class Clerk(BaseAgent):
    """Records each message in a step, in its state and in a file."""

    class State(DeltaState):
        _entity_type = "clerk"
        numbers: list[str] = []
        stepped: list[str] = []

    max_attempts = 1000
    idle_timeout_s = 0.5

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        number, notes = message["number"], message["notes"]

        def work() -> str:
            note(notes, f"ran {number}")
            ctx.state.stepped.append(number)
            return str(number)

        ctx.state.numbers.append(number)
        assert await ctx.step("work", work) == number
        note(notes, f"ended {number}")
        if message["writes"]:
            with (ctx.workspace / "numbers").open("a") as file:
                file.write(f"{number}\n")
        ctx.reply({"number": number, "count": len(ctx.state.numbers)})


class SharedClerk(Clerk):
    """The same in a process with others."""

    agent_type = "sharedclerk"
    isolation = "shared"
