"""``podium drain``: moving all agents away from a node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import command
from coordinator.cli.target import Target

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations import objects

__all__ = ["drain"]

_POLL_S: Final = 0.5


@command
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="As `podium nodes` shows it.")],
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Use a drained node again.")] = False,
    target: Target,
) -> None:
    """Move the agents of a node to other nodes, and keep it empty.

    Each ends after its running turn, which counts no attempt, and wakes elsewhere with its next message. The command
    returns when the node is empty; it stays drained, also if the command is interrupted.
    """

    async def empty(podium: AsyncPodium) -> objects.Node:
        found = await podium.drain(node, undo=undo)
        while not undo and (found.agents or found.assigned or found.starting):
            await asyncio.sleep(_POLL_S)
            found = next((each for each in await podium.nodes() if each.node == node), found)
        return found

    found = target.ask(f"waiting for the agents of {node} to end their turns", empty, waits=True)
    if target.json:
        write_json(found.as_json())
    else:
        say(f"{node} is used again" if undo else f"{node} is drained: it has no agents, and none come")
