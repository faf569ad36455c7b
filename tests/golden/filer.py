"""An agent for golden homes: its messages are commands on its files, each of which it also remembers in its state."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Filer(BaseAgent):
    """Does what a message says: ``write PATH TEXT``, ``move PATH PATH``, ``remove PATH``, ``fill PATH BYTES``."""

    class State(DeltaState):
        _version = 1
        _entity_type = "filer"

        done: list[dict[str, str]] = []
        sizes: dict[str, int] = {}

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        text = str(message["text"])
        verb, path, *rest = text.split(" ", 2)
        at = Path(ctx.workspace, path)
        if verb == "write":
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(rest[0] + "\n")
        elif verb == "fill":
            at.write_bytes(bytes(n * n % 251 for n in range(int(rest[0]))))
        elif verb == "move":
            at.rename(Path(ctx.workspace, rest[0]))
        elif verb == "remove":
            rmtree(at) if at.is_dir() else at.unlink()
        ctx.state.done.append({"verb": verb, "path": path})
        if at.is_file():
            ctx.state.sizes[path] = at.stat().st_size
        reply = await ctx.send_message("")
        await reply.stream_token(f"did {text}", final=True)
