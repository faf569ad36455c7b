"""``podium erase``: removing the content of messages, replies, results and artifacts permanently."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import AgentArgument, YesOption, command
from coordinator.cli.target import Target
from coordinator.cli.views.archives import show_erased

__all__ = ["erase"]


@command
def erase(
    agent: AgentArgument,
    events: Annotated[
        list[str], typer.Argument(metavar="EVENT_ID...", help="As podium log --json shows them, or art_…")
    ],
    *,
    yes: YesOption = False,
    target: Target,
) -> None:
    """Erase the content of messages, replies, results and artifacts permanently.

    Their events stay, and the chain verifies. It cannot be undone. Copies that the agent made in its state or its files
    are not erased: see podium fold.
    """
    if not yes:
        target.confirm(agent, f"Erase {len(set(events))} messages of {agent}", f"erasing messages of {agent}")
    erased = target.ask(f"erasing messages of {agent}", lambda podium: podium.erase(agent, events), agent, writes=True)
    found = {**erased.as_json(), "agent": agent}
    if target.json:
        write_json(found)
    else:
        show_erased(found["erased"])
