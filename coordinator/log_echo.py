"""Copying what the processes of a home log to the standard error of one of them, for who collects that of containers.

The files stay as they are: commands show their ends, and they are there when nobody collects.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["echoed"]

NAMES: Final = ("service", "coordinator", "store", "models", "gateway", "machine", "node", "audit")
"""The logs of podium itself. Those of agents, which may have what users said, are not among them."""
_POLL_S: Final = 0.5
"""Interval of looks at the files."""
_PIECE: Final = 64 * 1024
"""Bytes that are read at a time; a longer line is cut into several."""


@contextmanager
def echoed(directory: Path) -> Iterator[None]:
    """Write to stderr what is appended to logs while the context lasts, line by line, each after the log's name.

    Args:
        directory: of the logs.
    """
    ending = threading.Event()
    logs = [_Log(directory, name) for name in NAMES]

    def copy() -> None:
        while not ending.wait(_POLL_S):
            for log in logs:
                log.copy()

    thread = threading.Thread(target=copy, name="log-echo", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        for log in logs:
            log.copy()


class _Log:
    """One log, which is truncated when it is rotated; what was there before is left out."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.log"
        self._name = name
        self._at = self._size()

    def copy(self) -> None:
        """Write the lines that are new."""
        size = self._size()
        if size < self._at:
            self._at = 0
        while self._at < size:
            try:
                with self._path.open("rb") as file:
                    file.seek(self._at)
                    piece = file.read(_PIECE)
            except OSError:  # it is tried again
                return
            whole = piece[: piece.rfind(b"\n") + 1] or (piece if len(piece) == _PIECE else b"")
            if not whole:  # the rest of the line is still to come
                return
            self._at += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                sys.stderr.write(f"{self._name}: {line}\n")
        sys.stderr.flush()

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0
