"""An agent that ends its own process in the way that its message says, or tries to."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any

from podium.agent import AgentContext, BaseAgent


class Odd(BaseException):
    """Not an `Exception`."""


class Deaths(BaseAgent):
    turn_timeout_s = 2.0
    max_attempts = 2

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        match message["text"]:
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "crash":
                ctypes.string_at(0)
            case "raise":
                raise Odd("by itself")
            case "block":
                time.sleep(600)  # noqa: ASYNC251  as told
