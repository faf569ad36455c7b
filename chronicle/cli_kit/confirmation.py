"""Asking the user before something that cannot be undone."""

from __future__ import annotations

import sys

import typer

from chronicle.cli_kit.exits import ExitCode
from chronicle.cli_kit.terminal import say, shown
from chronicle.errors import InvalidInput

__all__ = ["confirm"]


def confirm(question: str, *, without_terminal: str) -> None:
    """Return if the user answers yes.

    Args:
        question: the prompt, which names the operation.
        without_terminal: the message of the refusal if stdin is not a terminal.

    Raises:
        InvalidInput: stdin is not a terminal.
        typer.Exit: any other answer, or none; the command ends with `ExitCode.ERROR`.
    """
    if not sys.stdin.isatty():
        raise InvalidInput(without_terminal)
    sys.stderr.write(shown(f"{question} [y/N]: ", tty=sys.stderr.isatty()))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        say("nothing was changed")
        raise typer.Exit(ExitCode.ERROR)
