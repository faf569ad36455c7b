"""Standard output of a command: no partial write goes unnoticed, and the command itself reports every failure.

Python has two gaps. With ``PYTHONUNBUFFERED`` it takes a short write for a complete one, so output that a signal, a
slow pipe or a full disk cut off is lost silently. And at exit it retries output that could not be written, with a
message and an exit code of its own.
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
    """Give ``sys.stdout`` a buffer for the duration of the context, if it has none, and leave it empty at the end.

    To learn whether everything was written, flush inside the context and handle the `OSError`; what is still unwritten
    at the end is dropped. Output that must appear immediately has to be flushed.
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
    """Return a buffered stream to the same descriptor; ``None`` if it is buffered already, or not a file."""
    raw = getattr(stdout, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return None
    # A file object that does not close the descriptor, which belongs to the old stream.
    own = io.FileIO(raw.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(own), stdout.encoding, stdout.errors, write_through=True)


def _drop(stdout: TextIO) -> None:
    """Discard the rest of the buffer, and all later output."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, stdout.fileno())
    os.close(nowhere)
    stdout.flush()
