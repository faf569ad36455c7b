"""Agents that the end-to-end tests run."""

from __future__ import annotations

import asyncio
import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.models import LLMMessage

WORKSPACE = Path(os.environ["AGENT_WORKSPACE"])


class Worker(BaseAgent):
    """Does what its message says."""

    class State(DeltaState):
        _version = 1
        _entity_type = "worker"
        count: int = 0
        said: list[str] = []
        ratio: float = 0.5

    idle_timeout_s = 1.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text = message["text"]
        ctx.state.count += 1
        ctx.state.said.append(text)
        (WORKSPACE / "out.txt").write_text(f"{ctx.state.count} {text}\n")
        reply = await ctx.send_message("")
        await reply.stream_token(f"{os.getpid()}")
        if text.startswith("tell "):
            await ctx.tell(text.split()[1], {"text": f"from {ctx.agent_id}"})
        if text == "hang":
            await asyncio.Event().wait()
        while text.startswith("wait for ") and not Path(text.removeprefix("wait for ")).exists():
            await asyncio.sleep(0.05)
        if text == "remind":
            await ctx.remind("soon", at=datetime.now(UTC) + timedelta(seconds=1), message={"text": "reminded"})
        if text == "step":
            await ctx.step("double", lambda n: 2 * n, ctx.state.count)
        if text == "model":
            await ctx.llm("echo").answer([LLMMessage("user", "hello")])
        if text == "where":
            await reply.stream_token(f" {os.environ['AGENT_WORKSPACE']}")
        if text == "print":
            for number in range(1000):
                print(f"{'a line ' * 5}, said before line {number}")
        if text == "fail":
            raise ValueError("as told")
        if text == "nan":
            ctx.state.ratio = float("nan")
        await reply.stream_token(f" {ctx.state.count}", final=True)


class Patient(Worker):
    """The same, but it stays awake."""

    class State(Worker.State):
        _entity_type = "patient"

    idle_timeout_s = 600.0


class Hoarder(BaseAgent):
    """Writes as many bytes as its message says, and says how that ended."""

    class State(DeltaState):
        _entity_type = "hoarder"

    workspace_quota_bytes = 100_000
    workspace_quota_files = 3
    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        name, size = message["text"].split()
        try:
            (WORKSPACE / name).write_bytes(bytes(int(size)))
            said = "written"
        except OSError as error:
            said = errno.errorcode[error.errno or 0]
        reply = await ctx.send_message("")
        await reply.stream_token(said, final=True)


class NoOnMessage(BaseAgent):
    """Refused when it is loaded."""


class NotAnAgent:
    """Refused when it is loaded."""
