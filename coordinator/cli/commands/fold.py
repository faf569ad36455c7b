"""``podium fold``: dropping the older history of an agent."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import AgentArgument, command
from coordinator.cli.target import Target
from coordinator.cli.views.archives import show_folded

__all__ = ["fold"]


@command
def fold(
    agent: AgentArgument,
    *,
    keep_turns: Annotated[
        int | None, typer.Option("--keep-turns", metavar="N", min=1, help="Keep the last N turns at least.")
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", metavar="D", help="Keep what is younger than D days at least.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    target: Target,
) -> None:
    """Drop the older history of an agent; without options, all history before now.

    History can begin at a mark, an event that holds the whole state. A mark is made where one is needed; with --keep-…
    the history before it is dropped by a later call, once the mark is old enough. The agent must sleep. The versions of
    its files are kept.
    """
    folded = target.ask(
        f"folding {agent}",
        lambda podium: podium.fold(agent, keep_turns=keep_turns, keep_days=keep_days, dry_run=dry_run),
        agent,
        writes=True,
    )
    shown = {**folded.as_json(), "agent": agent}
    if target.json:
        write_json(shown)
    else:
        show_folded(shown, dry_run=dry_run)
