"""Progress of a command on stderr: a spinner on a terminal, a line for each step otherwise."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final, Self

from chronicle.cli_kit.terminal import say, strip_controls

if TYPE_CHECKING:
    from types import TracebackType

    from rich.status import Status

__all__ = ["Progress"]

_ELAPSED: Final = re.compile(r" \(\d+ s\)$")


class Progress:
    """The current step of a command. As a context manager it is cleared at the end.

    Args:
        lines: print each step as a line when stderr is not a terminal; if false, such steps are not shown.
    """

    def __init__(self, *, lines: bool = True) -> None:
        self._lines = lines
        self._said = ""
        self._status: Status | None = None

    def show(self, text: str, *, line: bool = False) -> None:
        """Replace the current step. An elapsed time in parentheses at its end does not make it a new one.

        Args:
            line: print it as a line when stderr is not a terminal, even if other steps are not shown there.
        """
        if not sys.stderr.isatty():
            step = _ELAPSED.sub("", text)
            if (self._lines or line) and step != self._said:
                self._said = step
                say(step if line else f"{step} …")
            return
        if self._status is None:
            from rich.console import Console  # noqa: PLC0415  a pipe needs no spinner
            from rich.status import Status  # noqa: PLC0415

            self._status = Status("", console=Console(stderr=True, highlight=False, markup=False))
            self._status.start()
        self._status.update(strip_controls(text))

    def clear(self) -> None:
        """Remove the spinner, if there is one; the cursor returns to its place."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()
