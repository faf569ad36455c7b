"""How a command reports an error: a line or two on stderr, and with ``--debug`` the traceback."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from chronicle.cli_kit.exits import ExitCode
from chronicle.cli_kit.hints import with_hint
from chronicle.system.os_errors import os_error_text

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

__all__ = ["ErrorPrinter", "single_error"]


class ErrorPrinter:
    """Prints the error that ended a command, and says with which exit code. Commands override how an error reads.

    Args:
        name: the command's, which begins each message.
        exit_code: returns the exit code of an error.
        say: writes a message to stderr.
        hint: returns the command line that mends what an error reports; see `chronicle.cli_kit.hints`.
    """

    def __init__(
        self,
        name: str,
        exit_code: Callable[[BaseException], int],
        say: Callable[[str], None],
        hint: Callable[[BaseException], str | None],
    ) -> None:
        self.name = name
        self.say = say
        self._exit_code = exit_code
        self._hint = hint

    def report(self, error: Exception, *, debug: bool) -> int:
        """Print an error; return its exit code. A reader of stdout that went away is no message."""
        code = self._exit_code(error)
        if isinstance(error, BrokenPipeError):
            return code
        if debug:
            self.print_traceback(error)
        if code == ExitCode.BUG:
            self.print_bug(error)
        else:
            self.print_failure(error)
        return code

    def print_usage(self, error: typer.TyperException) -> None:
        """Print why the command line cannot be understood."""
        self.say(f"{self.name}: {error.format_message()}")

    def print_failure(self, error: Exception) -> None:
        """Print an error that the command expects."""
        self.say(f"{self.name}: {self.with_hint(self.text_of(error), error)}")

    def print_bug(self, error: Exception) -> None:
        """Print an error that only a bug explains."""
        self.say(f"{self.name}: unexpected {type(error).__name__}: {error}; run it again with --debug and report it")

    def print_traceback(self, error: Exception) -> None:
        """Print where an error was raised, for ``--debug``."""
        traceback.print_exception(error)

    def with_hint(self, message: str, error: Exception) -> str:
        """Return the message of an error, followed by its hint if it has one."""
        return with_hint(message, self._hint(error))

    @staticmethod
    def text_of(error: Exception) -> str:
        """Return the message of an error; of the operating system's, path and reason."""
        return os_error_text(error) if isinstance(error, OSError) else str(error)


def single_error(error: Exception) -> Exception:
    """Return the one error that a task group wrapped, or the error itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
