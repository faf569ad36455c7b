"""An agent that shares its process with others, and does what its message says."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent, DeltaState

ROUNDS: Counter[str] = Counter()
"""Of work, by the agents of this process that are busy."""
GROWN: list[bytes] = []
"""A leak."""


class Gathering(BaseAgent):
    isolation = "shared"
    max_attempts = 2
    turn_timeout_s = 60.0

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        answer: object = ctx.state.count
        match message["text"]:
            case text if text.startswith("busy "):
                await ctx.emit("waiting")
                answer = await work(ctx.key, Path(text.removeprefix("busy ")))
            case "grow":
                GROWN.append(b"x" * (100 << 20))
            case "write":
                with (ctx.workspace / "log").open("a") as file:
                    file.write(f"{ctx.agent_id} {ctx.state.count}\n")
                answer = (ctx.workspace / "log").read_text()
            case "variable":
                answer = os.environ["AGENT_WORKSPACE"]
            case text if text.startswith("block until "):
                while not Path(text.removeprefix("block until ")).exists():
                    time.sleep(0.01)  # noqa: ASYNC251  as told
            case text if text.startswith("wait for "):
                await ctx.emit("waiting")
                while not Path(text.removeprefix("wait for ")).exists():
                    await asyncio.sleep(0.01)
        ctx.reply({"pid": os.getpid(), "answer": answer})


async def work(key: str, until: Path) -> tuple[int, int]:
    """Work and await in turn until a file is there.

    Returns:
        the rounds, and the most rounds that another agent had between two of them.
    """
    most = 0
    while not until.exists():
        sum(range(10_000))
        ROUNDS[key] += 1
        before = ROUNDS.copy()
        await asyncio.sleep(0)
        most = max([most, *(ROUNDS[other] - before[other] for other in ROUNDS if other != key)])
    return ROUNDS[key], most
