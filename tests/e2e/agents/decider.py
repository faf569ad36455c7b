"""An agent that asks before it spends, and naps."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from podium.agent import AgentContext, BaseAgent, DeltaState


class Verdict(BaseModel):
    """What a person says."""

    verdict: Literal["yes", "no"]


class Decider(BaseAgent):
    """Asks for each price."""

    idle_timeout_s = 2.0

    class State(DeltaState):
        """What it has done."""

        steps: int = 0
        done: list[str] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        """Buy, nap, or say hello."""
        match message["text"].split():
            case ["buy", price, *more]:
                ctx.state.steps = await ctx.step("count", lambda: 1)
                (ctx.workspace / "order.txt").write_text(price)
                await ctx.send_message(f"it costs {price}")
                verdict = await ctx.decide(Verdict, reason=f"pay {price}?")
                if more == ["dies"] and not (first := Path(os.environ["PODIUM_TEST_HOME"]) / "died").exists():
                    first.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                ctx.state.done.append(f"{verdict.verdict} to {(ctx.workspace / 'order.txt').read_text()}")
                ctx.reply({"verdict": verdict.verdict})
            case ["nap", seconds]:
                await ctx.sleep(float(seconds))
                ctx.state.done.append("napped")
            case words:
                ctx.state.done.append(" ".join(words))
