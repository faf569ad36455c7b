"""``podium reminders``: the reminders of an agent, and cancelling one."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_json, write_line
from coordinator.cli.options import AgentArgument, command
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, collect, say_rest
from coordinator.cli.target import Target
from coordinator.cli.views.messages import show_reminders

__all__ = ["reminders"]


@command
def reminders(
    agent: AgentArgument,
    *,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="NAME", help="Cancel this reminder instead of listing them.")
    ] = None,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    target: Target,
) -> None:
    """List the reminders that an agent has set, or cancel one.

    A message that a cancelled reminder has sent already stays in the inbox. An agent sets reminders with ctx.remind.
    """
    if cancel is not None:
        target.ask(f"cancelling {cancel}", lambda podium: podium.cancel_reminder(agent, cancel), agent, writes=True)
        if target.json:
            write_json({"agent": agent, "name": cancel})
        else:
            write_line(f"{cancel} is cancelled")
        return
    wanted = bounds(limit, cursor, everything=everything, target=target)
    found, rest = target.ask(
        f"reading the reminders of {agent}",
        lambda podium: collect(
            lambda limit, cursor: podium.pages().reminders(agent, limit=limit, cursor=cursor), wanted
        ),
        agent,
    )
    if target.json:
        write_json({"agent": agent, "reminders": found, **rest})
        return
    show_reminders(agent, found)
    say_rest(rest)
