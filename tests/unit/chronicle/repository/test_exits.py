"""Exit codes and commands of ``chronicle``, and that the documentation has them all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

import chronicle.errors
from chronicle.cli import ExitCode, app
from chronicle.cli import main as chronicle_main
from chronicle.cli.exits import EXITS
from coordinator.cli.exits import ExitCode as PodiumCode
from coordinator.cli.main import main as podium_main

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = (Path(__file__).parents[4] / "docs" / "chronicle.md").read_text(encoding="utf-8")


def test_the_documentation_has_every_command_and_option() -> None:
    command = typer.main.get_command(app)
    for name, found in command.commands.items():  # type: ignore[attr-defined]
        (section,) = re.findall(rf"^## chronicle {name}\b.*?(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
        for parameter in found.params:
            for option in parameter.opts:
                if option.startswith("--") and option not in ("--store", "--workspace", "--json", "--help"):
                    assert option in section, (name, option)


@pytest.mark.parametrize(("name", "command"), [("chronicle", chronicle_main), ("podium", podium_main)])
def test_both_commands_say_their_version(
    name: str, command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["--version"]) == ExitCode.OK
    assert re.fullmatch(rf"{name} \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_the_documentation_has_the_table() -> None:
    table = [line for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]
    assert table == EXITS.markdown_rows()


def test_codes_are_those_of_podium() -> None:
    for code in set(ExitCode) - {ExitCode.TOO_NEW}:
        assert PodiumCode[code.name].value == code.value


def test_no_error_of_ours_is_a_bug() -> None:
    for kind in (getattr(chronicle.errors, name) for name in chronicle.errors.__all__):
        assert EXITS.code(kind.__new__(kind)) is not ExitCode.BUG
    assert EXITS.code(ZeroDivisionError()) is ExitCode.BUG
    assert EXITS.code(PermissionError()) is ExitCode.OS_ERROR
