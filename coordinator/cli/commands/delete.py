"""``podium delete``: removing an agent permanently."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import AgentArgument, YesOption, command
from coordinator.cli.target import Target

__all__ = ["delete"]


@command
def delete(
    agent: AgentArgument,
    *,
    yes: YesOption = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Detach forks first; they lose the history that they inherited.")
    ] = False,
    target: Target,
) -> None:
    """Delete an agent permanently: its events, state, files and messages.

    It cannot be undone; podium export makes a copy. The agent must sleep. Blobs that nothing else needs are freed by
    the next podium gc.
    """
    if not yes:
        target.confirm(agent, f"Delete {agent}", f"deleting {agent}")
    deleted = target.ask(f"deleting {agent}", lambda podium: podium.delete(agent, detach=detach), agent, writes=True)
    if target.json:
        write_json({**deleted.as_json(), "agent": agent})
        return
    for name in deleted.detached:
        write_line(f"{name} is detached")
    write_line(f"{agent} is deleted: {deleted.events} events")
    say("podium gc frees the blobs that nothing else needs")
