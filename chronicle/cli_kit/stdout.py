"""Standard output of a command: written whole or not at all, and every failure told by the command itself.

Python leaves two gaps. With ``PYTHONUNBUFFERED`` it takes a write that wrote only a part for a whole one, so what a
signal, a slow pipe or a full disk cut short is lost unseen. And what could not be written is tried once more when the
process ends, with a complaint and an exit code of Python's own.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["whole_stdout"]


@contextmanager
def whole_stdout() -> Iterator[None]:
    """Put a buffer under ``sys.stdout`` for a while, if it has none, and leave nothing in it for Python to write.

    Whoever needs to know that all was written flushes inside, and reports the `OSError`; what cannot be written then is
    dropped at the end. What must be seen at once must be flushed.
    """
    before = sys.stdout
    buffered = _buffered(before)
    if buffered is not None:
        sys.stdout = buffered
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            _drop(sys.stdout)
        sys.stdout = before


def _buffered(stdout: TextIO) -> TextIO | None:
    """Return a buffered stream to the same place; ``None`` if it is buffered already, or no file."""
    raw = getattr(stdout, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return None
    # A file object of its own that closes nothing: the descriptor is not ours.
    own = io.FileIO(raw.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(own), stdout.encoding, stdout.errors, write_through=True)


def _drop(stdout: TextIO) -> None:
    """Send what is left in the buffer, and all that comes, to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, stdout.fileno())
    os.close(nowhere)
    stdout.flush()
