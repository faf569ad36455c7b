"""An agent that says where its workspace is, and leaves processes behind, for the end-to-end tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState

AT_IMPORT = os.environ["AGENT_WORKSPACE"]

WRITER = """
import os, pathlib, sys, time

def write(places, gate, started):
    pathlib.Path(started).write_text(str(os.getpid()))
    while True:
        for place in places if pathlib.Path(gate).exists() else ():
            try:
                pathlib.Path(place, f"ghost-{os.getpid()}").write_text("written by path")
            except OSError:
                pass
        time.sleep(0.001)

if __name__ == "__main__":
    write(sys.argv[3:], *sys.argv[1:3])
"""


class Placed(BaseAgent):
    """Does what its message says."""

    class State(DeltaState):
        _version = 1
        _entity_type = "placed"
        noted: str = ""

    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        what, *arguments = message["text"].split()
        (ctx.workspace / "said.txt").write_text(message["text"])
        answer = getattr(self, what)(ctx, *arguments)
        await ctx.send_message(f"{os.getpid()} {answer}")

    def where(self, ctx: AgentContext[Any]) -> str:
        """The paths by which the workspace can be known, and whether they lead there."""
        ctx.state.noted = ctx.state.noted or str(ctx.workspace)
        paths = (os.environ["AGENT_WORKSPACE"], ctx.workspace, ctx.state.noted, AT_IMPORT)
        there = {Path(path, "said.txt").read_text() for path in paths}
        return f"{there == {'where'}} {ctx.workspace} {AT_IMPORT}"

    def files(self, ctx: AgentContext[Any]) -> str:
        """The names in the workspace."""
        return " ".join(sorted(path.name for path in ctx.workspace.iterdir()))

    def script(self, ctx: AgentContext[Any]) -> str:
        """Make what a virtual environment's bin has: a script that names its interpreter by the full path."""
        interpreter = ctx.workspace / "venv-python"
        interpreter.symlink_to(sys.executable)
        script = ctx.workspace / "script"
        script.write_text(f"#!{interpreter}\nprint('it runs')\n")
        script.chmod(0o700)
        return "made"

    def run(self, ctx: AgentContext[Any]) -> str:
        """Run that script."""
        return subprocess.run([ctx.workspace / "script"], capture_output=True, text=True, check=True).stdout.strip()

    def leave(self, ctx: AgentContext[Any], way: str, gate: str, started: str) -> str:
        """Leave a process behind that writes into the workspace by path as soon as there is a gate."""
        paths = [str(ctx.workspace), AT_IMPORT]
        if way == "exec":
            writer = [sys.executable, "-c", WRITER, gate, started, *paths]
            subprocess.run(["setsid", "--fork", "env", "-i", *writer], check=True)
        elif os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 1024)
                scope: dict[str, Any] = {"__name__": "writer"}
                exec(WRITER, scope)
                scope["write"](paths, gate, started)
            os._exit(0)
        while not (Path(started).exists() and Path(started).read_text()):
            time.sleep(0.01)
        return "left"
