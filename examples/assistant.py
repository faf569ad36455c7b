"""An assistant with two tools, which remembers the conversation, also after it was asleep.

podium run --project examples/podium.toml examples/assistant.py:Assistant --key ann --message "Buy milk"

Which model answers is said in ``podium.toml``; without a change it is a script, ``assistant.json``.
"""

from __future__ import annotations

from podium.agent import AgentContext, ModelAgent
from podium.tools import ToolRouter, tool

router = ToolRouter()


@tool(router=router, mode="read")
def shopping_list(ctx: AgentContext) -> list[str]:
    """Tells what is to be bought."""
    path = ctx.workspace / "shopping.txt"
    return path.read_text().splitlines() if path.exists() else []


@tool(router=router)
def add_to_list(ctx: AgentContext, item: str) -> None:
    """Adds an item to the shopping list."""
    with (ctx.workspace / "shopping.txt").open("a") as file:
        file.write(f"{item}\n")


class Assistant(ModelAgent):
    """Keeps a shopping list."""

    model = "assistant"
    instructions = "You keep the user's shopping list."
    router = router
