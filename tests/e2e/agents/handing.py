"""An agent that hands things out."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState

PICTURE_BYTES = 3_000_000


class Handing(BaseAgent):
    """Hands out a note, a file of its workspace and that file's first version; ``hang`` waits afterwards."""

    class State(DeltaState):
        _entity_type = "handing"
        made: list[str] = []

    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text = message["text"]
        picture = Path(os.environ["AGENT_WORKSPACE"]) / "picture.png"
        picture.write_bytes(b"first draft")
        picture.write_bytes(random.Random(text).randbytes(PICTURE_BYTES))
        await ctx.add_artifact("note.md", f"# {text}")
        ctx.state.made.append(await ctx.add_artifact("picture.png", picture))
        draft = (await ctx.history("picture.png"))[-2].iteration
        await ctx.add_artifact("draft.png", Path(f".chronicle/at/{draft}/picture.png"))
        reply = await ctx.send_message("")
        await reply.stream_token(f"{os.getpid()}")
        if text.startswith("hang until "):
            while not Path(text.removeprefix("hang until ")).exists():
                await asyncio.sleep(0.05)
