"""Progress of a transfer of files: one line on stderr with files and bytes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from chronicle.repository.checkout import Amount

__all__ = ["TransferProgress"]

_UPDATE_S: Final = 0.1
_LINE_S: Final = 1.0
"""Time between lines where a line cannot be overwritten."""
_MIB: Final = 1024 * 1024


class TransferProgress:
    """A line with the progress of a transfer; a terminal's line is overwritten. As a context manager it ends the line.

    Args:
        stream: the destination; stderr by default.
        clock_s: monotonic seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock_s = clock_s
        self._is_terminal = self._stream.isatty()
        self._interval_s = _UPDATE_S if self._is_terminal else _LINE_S
        self._total: Amount | None = None
        self._next_s = 0.0
        self._files = 0
        self._bytes = 0

    def start(self, total: Amount) -> None:
        """Begin a transfer of ``total``."""
        self._total = total
        self._next_s = self._clock_s()

    def advance(self, size_bytes: int, files: int) -> None:
        """Record that so much more is transferred."""
        self._bytes += size_bytes
        self._files += files
        now_s = self._clock_s()
        if now_s >= self._next_s:
            self._next_s = now_s + self._interval_s
            self._write("\r" if self._is_terminal else "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write("\n")

    def _write(self, end: str) -> None:
        total = self._total
        if total is None:  # The transfer has not begun.
            return
        line = f"{self._files} of {total.files} files, {self._bytes / _MIB:.1f} of {total.size_bytes / _MIB:.1f} MiB"
        self._stream.write(line + end)
        self._stream.flush()
