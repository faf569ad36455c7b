"""The options and arguments that several subcommands of ``chronicle`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from chronicle.errors import InvalidInput
from chronicle.settings import STORE_VARIABLE

__all__ = [
    "DEFAULT_WORKSPACE",
    "JsonOption",
    "PathArgument",
    "StoreOption",
    "WorkspaceOption",
    "parse_directory",
]

DEFAULT_WORKSPACE: Final = "main"
"""The workspace of a command that names none."""

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", envvar=STORE_VARIABLE, metavar="STORE", help="A directory or URL; default: that of this mount."
    ),
]
WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace", "-w", metavar="NAME", help="A workspace of the store; default: that of this mount, else 'main'."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="Relative to this directory in a mount, else to the root.")
]


def parse_directory(text: str) -> Path:
    """Parse the argument that names a directory.

    Raises:
        InvalidInput: it is empty.
    """
    if not text:
        raise InvalidInput("a directory's name cannot be empty; '.' is the current one")
    return Path(text)
