"""The options that commands share, and what one invocation of ``podium`` was told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

__all__ = [
    "DEFAULT_HOME",
    "AgentArgument",
    "BlobsUrlOption",
    "DebugOption",
    "HomeOption",
    "Invocation",
    "JsonOption",
    "MomentArgument",
]

DEFAULT_HOME: Final = Path(".podium")


@dataclass(slots=True)
class Invocation:
    """What holds for the whole process, whatever the command."""

    debug: bool = False
    """Show the traceback of an error."""


def _note_debug(ctx: typer.Context, value: bool) -> bool:
    """Keep ``--debug`` wherever it stands, before the command or after it."""
    if value:
        ctx.ensure_object(Invocation).debug = True
    return value


DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_note_debug, is_eager=True)
]
HomeOption = Annotated[
    Path,
    typer.Option("--home", metavar="DIR", envvar="PODIUM_HOME", help="Where the agents are kept.", show_default=True),
]
BlobsUrlOption = Annotated[str, typer.Option("--blobs-url", envvar="PODIUM_BLOBS_URL", hidden=True)]
"""`coordinator.settings.Settings.blobs_url`, read from the environment without its library, which is slow to import."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
MomentArgument = Annotated[
    str, typer.Argument(metavar="AGENT[@TURN]", help="Such as hello/alice, or hello/alice@3 after turn 3.")
]
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="An agent's address, such as hello/alice.")]
