"""``podium state``: an agent's state, now or after an earlier turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import json_text, say, write, write_json
from coordinator.cli.options import MomentArgument, command
from coordinator.cli.target import Target, moment_of

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.objects import State

__all__ = ["state"]


@command
def state(moment: MomentArgument, *, target: Target) -> None:
    """Show an agent's state, now or after a turn.

    The committed state is shown; a running agent may be in the middle of a later turn.
    """

    async def read(podium: AsyncPodium) -> tuple[str, State]:
        at = await moment_of(podium, moment)
        return at.agent, await podium.state(at.agent, at=at.turn)

    agent, found = target.ask(f"reading {moment}", read, moment)
    if target.json:
        write_json({**found.as_json(), "agent": agent})
        return
    say(f"{agent} after turn {found.turn}")
    write(json_text(found.state, indent=2) + "\n")
