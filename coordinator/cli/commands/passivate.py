"""``podium passivate``: ending the activation of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import AgentArgument, command
from coordinator.cli.target import Target

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium

__all__ = ["passivate"]


@command
def passivate(agent: AgentArgument, *, target: Target) -> None:
    """Put an agent to sleep after its current turn, and return when it sleeps.

    Its next message wakes it again, at once if one already waits.
    """
    has_service = target.has_service()

    async def put_to_sleep(podium: AsyncPodium) -> None:
        if has_service:
            await podium.passivate(agent)
        else:
            await podium.agent(agent)

    target.ask(f"waiting for {agent} to end its turn", put_to_sleep, agent, waits=True)
    if target.json:
        write_json({"agent": agent, "service": has_service})
    else:
        say(f"{agent} sleeps" if has_service else f"{agent} sleeps: no service is running")
