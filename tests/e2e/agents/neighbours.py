"""Agents that share a process, of which some end it."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from typing import Any

from podium.agent import AgentContext, BaseAgent


class Neighbours(BaseAgent):
    isolation = "shared"
    max_attempts = 2
    idle_timeout_s = 3600.0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        match message["do"]:
            case "wait":
                await ctx.emit("waiting")
                while not Path(message["for"]).exists():
                    await asyncio.sleep(0.01)
            case "cancel all":
                for task in asyncio.all_tasks():
                    task.cancel()
                await asyncio.sleep(0)
            case "exit":
                os._exit(3)
            case "crash":
                ctypes.string_at(0)
            case "crash later":
                await asyncio.sleep(0.5)
                ctypes.string_at(0)
        ctx.reply(os.getpid())
