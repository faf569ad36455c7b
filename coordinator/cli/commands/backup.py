"""``podium backup``: a consistent copy of a home that is in use."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from chronicle.cli_kit.progress import Progress
from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command

__all__ = ["backup"]


@command
def backup(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory; it becomes a home.")],
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Copy a home as it is at one moment, while its agents go on, and verify the copy.

    The copy is a home: its agents, their histories and files, the messages in their inboxes, and the keys. Turns that
    run at that moment are not in it; their messages are.
    """
    from coordinator.backup import back_up  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.home import Home  # noqa: PLC0415

    with Progress(lines=False) as progress:
        made = back_up(Home(home).open(), directory, progress.show)
    if json:
        write_json({"directory": str(directory), **asdict(made)})
        return
    write_line(f"{directory}: {made.agents} agents, {made.events} events and {made.blobs} blobs, verified")
    say("to use it, give it with --home; only one of the two homes can have a service at a time")
