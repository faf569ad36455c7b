"""The options and arguments that several subcommands of ``podium`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from chronicle.cli_kit.options import DebugOption

__all__ = [
    "DEFAULT_HOME",
    "AgentArgument",
    "BlobsUrlOption",
    "DebugOption",
    "HomeOption",
    "JsonOption",
    "MomentArgument",
]

DEFAULT_HOME: Final = Path(".podium")

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
