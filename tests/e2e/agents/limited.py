"""Agents that meet the quotas of their tenant."""

from __future__ import annotations

from typing import Any

from podium.agent import AgentContext, AskRefused, BaseAgent, DeltaState


class Limited(BaseAgent):
    """Writes, tells and asks as its message says; replies with what it heard, and why it could not ask."""

    idle_timeout_s = 600.0

    class State(DeltaState):
        heard: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.heard.append(message["text"])
        if "write" in message:
            (ctx.workspace / "written").write_bytes(bytes(message["write"]))
        for receiver, text in message.get("tell", ()):
            await ctx.tell(receiver, {"text": text})
        refused = None
        if "ask" in message:
            try:
                await ctx.ask(message["ask"], {"text": "asked"})
            except AskRefused as error:
                refused = str(error)
        ctx.reply({"heard": list(ctx.state.heard), "refused": refused})
