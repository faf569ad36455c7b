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
    "ProjectOption",
]

DEFAULT_HOME: Final = Path(".podium")


def _home(context: typer.Context, value: Path) -> Path:
    """Return the home of a command: the one that was given, else that of the project, else the default."""
    from coordinator.registry.project import home_of_project  # noqa: PLC0415  --help does not need it

    source = context.get_parameter_source("home")
    given = source is not None and source.name != "DEFAULT"
    return value if given else home_of_project() or value


HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        metavar="DIR",
        envvar="PODIUM_HOME",
        help="Where the agents are kept.",
        show_default=True,
        callback=_home,
    ),
]
ProjectOption = Annotated[
    Path | None, typer.Option("--project", metavar="FILE", help="The podium.toml; default: the nearest one upwards.")
]
BlobsUrlOption = Annotated[str, typer.Option("--blobs-url", envvar="PODIUM_BLOBS_URL", hidden=True)]
"""`coordinator.settings.Settings.blobs_url`, read from the environment without its library, which is slow to import."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
MomentArgument = Annotated[
    str, typer.Argument(metavar="AGENT[@TURN]", help="Such as hello/alice, or hello/alice@3 after turn 3.")
]
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="An agent's address, such as hello/alice.")]
