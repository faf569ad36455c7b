"""A command from its arguments to its exit code, whatever its subcommands do."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import pytest
import typer

from chronicle.cli_kit.confirmation import confirm
from chronicle.cli_kit.errors import ErrorPrinter
from chronicle.cli_kit.exits import CHRONICLE_ERRORS, ExitCode, ExitTable
from chronicle.cli_kit.hints import CHRONICLE_HINTS, HintTable
from chronicle.cli_kit.main import new_app, run
from chronicle.cli_kit.terminal import say, write_line
from chronicle.errors import (
    BlobMissing,
    BranchInUse,
    IdempotencyConflict,
    InvalidInput,
    NotFound,
    UnsupportedFormat,
    UnusableFormat,
)
from chronicle.ids import BranchId

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = ExitTable(
    meanings={ExitCode.OK: "done", ExitCode.NOT_FOUND: "not there"},
    errors={**CHRONICLE_ERRORS, "tests.Slow": ExitCode.UNAVAILABLE, BrokenPipeError: ExitCode.OK},
    bug=ExitCode.BUG,
)
HINTS = HintTable({**CHRONICLE_HINTS, IdempotencyConflict: "`kit do --key {key}` repeats it", BranchInUse: "{missing}"})


class Slow(Exception):
    """Named in the table, not imported by it."""


Slow.__module__, Slow.__qualname__ = "tests", "Slow"


def ended(raises: Callable[[], object], *arguments: str) -> int:
    """Run a command whose only subcommand is ``do``; return its exit code."""
    app = new_app("kit", "A command.", TABLE.help_text())

    def do(name: Annotated[str, typer.Option("--name")] = "") -> None:
        write_line(f"did {name}")
        raises()

    app.command()(do)
    app.command("other")(do)
    return run(app, ErrorPrinter("kit", TABLE.code, say, HINTS.hint), arguments)


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotFound("no a"), ExitCode.NOT_FOUND, "kit: no a\n"),
        (ExceptionGroup("group", [NotFound("no a")]), ExitCode.NOT_FOUND, "kit: no a\n"),
        (FileNotFoundError(2, "No such file", "/x"), ExitCode.OS_ERROR, "kit: /x: No such file\n"),
        (Slow("gone"), ExitCode.UNAVAILABLE, "kit: gone\n"),
        (
            ZeroDivisionError("z"),
            ExitCode.BUG,
            "kit: unexpected ZeroDivisionError: z; run it again with --debug and report it\n",
        ),
        (BrokenPipeError(), ExitCode.OK, ""),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, ""),
        (typer.Exit(7), 7, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_is_a_line_and_an_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(raising(error), "do", "--name", "it") == code
    assert capsys.readouterr() == ("did it\n", said)


@pytest.mark.parametrize("error", [NotFound("no a"), KeyboardInterrupt()], ids=["failure", "interrupt"])
def test_debug_shows_where_an_error_was_raised(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    ended(raising(error), "--debug", "do")
    assert "in fail" in capsys.readouterr().err


def test_a_command_line_that_cannot_be_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(lambda: None, "do", "--nam") == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("kit: No such option: --nam")


def test_without_arguments_the_help_has_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(lambda: None) == ExitCode.OK
    assert capsys.readouterr().out.rstrip().endswith("Exit codes:\n    0  done\n   22  not there")


def test_the_nearest_ancestor_decides() -> None:
    class Missing(BlobMissing):
        pass

    assert TABLE.code(Missing.__new__(Missing)) is ExitCode.DAMAGED
    assert TABLE.code(Slow()) is ExitCode.UNAVAILABLE
    assert TABLE.markdown_rows() == ["| 0 | done |", "| 22 | not there |"]


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_only_yes_confirms(
    answer: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(answer))
    assert ended(lambda: confirm("Delete it?", without_terminal="add --yes"), "do") == code
    assert capsys.readouterr().err == "Delete it? [y/N]: " + ("nothing was changed\n" if code else "")


def test_a_question_that_nobody_can_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InvalidInput, match="add --yes"):
        confirm("Delete it?", without_terminal="add --yes")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (UnsupportedFormat("a pack has format 9"), "; upgrade podium"),
        (UnusableFormat("a journal has format 0"), ""),
        (IdempotencyConflict("a"), "; `kit do --key a` repeats it"),
        (IdempotencyConflict("a b"), "; `kit do --key 'a b'` repeats it"),
        (BranchInUse(BranchId("b"), ()), ""),
        (OSError(5, "no hint for it"), ""),
    ],
)
def test_a_hint_follows_the_message(error: Exception, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended(raising(error), "do")
    text = ErrorPrinter.text_of(error)
    assert capsys.readouterr().err == f"kit: {text}{hint}\n"


def test_an_error_known_by_name_has_a_hint_without_fields() -> None:
    assert HINTS.hint_by_name("UnsupportedFormat") == "upgrade podium"
    assert HINTS.hint_by_name("UnusableFormat") is None
    assert HINTS.hint_by_name("IdempotencyConflict") is None
    assert HINTS.hint_by_name("ValueError") is None
