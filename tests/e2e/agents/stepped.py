"""An agent whose turn has thirty steps with files, and that kills its own process after every fourth of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState

STEPS = 30


class Stepped(BaseAgent):
    """Its message names a directory outside of the workspace: there it notes which steps ran, and its deaths."""

    class State(DeltaState):
        done: list[int] = []
        between: int = 0

    max_attempts = 2 * STEPS

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        outside = Path(message["text"])
        with (ctx.workspace / "open all along").open("ab", buffering=0) as kept:
            for number in range(STEPS):
                ctx.state.between += 1
                found = await ctx.step("work", lambda number: work(ctx, outside, number), number)
                assert found == number * number
                kept.write(b"%d\n" % number)
                deadly = number % 4 == 3 and (outside / "deadly").exists()
                if deadly and not (outside / f"died after {number}").exists():
                    (outside / f"died after {number}").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        await ctx.send_message(f"{len(ctx.state.done)} done")


def work(ctx: AgentContext[Any], outside: Path, number: int) -> int:
    """Change state and files in one step, and note that it ran."""
    with (outside / "ran").open("a") as ran:
        ran.write(f"{number}\n")
    root = ctx.workspace
    ctx.state.done.append(number)
    with (root / "log").open("a") as log:
        log.write(f"step {number}\n")
    folder = root / f"d{number % 4}"
    folder.mkdir(exist_ok=True)
    (folder / f"f{number}").write_text(f"{number}\n" * 1000)
    if number % 5 == 4:
        (root / f"d{(number + 2) % 4}").rename(root / f"moved {number}")
    if number % 7 == 6:
        (root / "log").unlink()
    return number * number
