"""The options of a command itself, before any subcommand: ``--debug`` and ``--version``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_line

__all__ = ["DebugOption", "Invocation", "global_options"]


@dataclass(slots=True)
class Invocation:
    """The options that hold for the whole process, whatever the subcommand."""

    debug: bool = False
    """Print the traceback of an error."""


def _set_debug(ctx: typer.Context, value: bool) -> bool:
    """Record ``--debug``, given before the subcommand or after it."""
    if value:
        ctx.ensure_object(Invocation).debug = True
    return value


def _show_version(ctx: typer.Context, value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely needed

        # The distribution that has this package.
        write_line(f"{ctx.command_path} {version('podium')}")
        raise typer.Exit


DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_set_debug, is_eager=True)
]


def global_options(
    *,
    debug: DebugOption = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Accept the options that stand before the subcommand; their callbacks act on them."""
