"""The page of both command lines, from their parsers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from chronicle.cli.app import app as chronicle_app
from chronicle.cli.exits import EXITS as CHRONICLE_EXITS
from coordinator.cli.exits import EXITS as PODIUM_EXITS
from coordinator.cli.main import app_of
from tools.reference.markdown import code, document, from_docstring, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.cli_kit.exits import ExitTable

__all__ = ["page"]

_EVERYWHERE = frozenset({"--debug", "--help"})
"""Options of every command; `docs/cli.md` describes them once."""


def page() -> str:
    """Return the page."""
    return document(
        "Command reference",
        "Every command with its arguments and options. [The command line](../cli.md) and [chronicle](../chronicle.md) "
        "explain them, and say what they print.",
        *_program("podium", app_of(), PODIUM_EXITS),
        *_program("chronicle", chronicle_app, CHRONICLE_EXITS),
    )


def _program(name: str, app: typer.Typer, exits: ExitTable[Any]) -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    yield f"## {name}"
    yield from_docstring(group.help)
    for command_name, command in group.commands.items():
        yield from _command(f"{name} {command_name}", command)
    yield f"### Exit codes of {name}"
    yield table(("code", "meaning"), ((str(int(number)), meaning) for number, meaning in exits.meanings.items()))


def _command(name: str, command: Any) -> Iterator[str]:
    if subcommands := getattr(command, "commands", None):
        for sub_name, subcommand in subcommands.items():
            yield from _command(f"{name} {sub_name}", subcommand)
        return
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([name, *(_usage(argument) for argument in arguments)])
    yield f"### {usage}"
    yield from_docstring(command.help)
    yield table(("argument", "meaning"), ((code(_metavar(one)), one.help or "") for one in arguments if one.help))
    options = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden and not _EVERYWHERE & set(parameter.opts)
    ]
    yield table(("option", "default", "meaning"), map(_option, options))


def _usage(argument: Any) -> str:
    shown = _metavar(argument)
    shown = f"{shown}…" if argument.nargs != 1 else shown
    return shown if argument.required else f"[{shown}]"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).strip("[]")


def _option(option: Any) -> tuple[str, str, str]:
    names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
    if not option.is_flag:
        names = f"{names} {_value(option)}"
    default = option.default
    if isinstance(default, Enum):
        default = default.value
    shown = "" if default in {None, "", False} or default == () else code(str(default))
    if option.envvar:
        shown = f"{shown} or `${option.envvar}`" if shown else f"`${option.envvar}`"
    return names, shown, from_docstring(option.help)


def _value(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return code("|".join(str(member.value) for member in annotation))
    return code(str(option.metavar or "VALUE"))
