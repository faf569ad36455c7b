"""Texts of ``.chronicle`` that are generated while they are read: the log of operations, long histories, and diffs."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Final

from chronicle.system.raw_file import RawFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from chronicle.workspace.history.oplog import Operation
    from chronicle.workspace.port import Iteration

__all__ = ["GeneratedText", "log_lines", "query_pieces"]

_WINDOW_BYTES: Final = 1024 * 1024
"""Of a generated text that stay in memory. The kernel reads ahead 128 KiB."""


def log_lines(done: Iterable[Operation]) -> Iterator[bytes]:
    """Yield a JSON line for each operation."""
    for operation in done:
        line: dict[str, object] = {
            "seq": operation.seq,
            "timestamp": operation.timestamp_ms,
            "turn": operation.turn,
            "op": operation.op,
            "path": os.fsdecode(operation.path),
            "iteration": operation.iteration,
            "size": operation.size,
        }
        if operation.source is not None:
            line["source"] = os.fsdecode(operation.source)
        yield json.dumps(line).encode() + b"\n"


def query_pieces(history: Iterable[Iteration]) -> Iterator[bytes]:
    """Yield a JSON array of versions in pieces, an object for each version."""
    before = b"[\n"
    for item in history:
        # The same text as `Iteration.as_json`, in a quarter of the time.
        mode = f', "mode": "{item.mode:04o}"' if item.mode is not None else ""
        source = f', "source": {json.dumps(item.source)}' if item.source is not None else ""
        row = (
            f' {{"iteration": {item.iteration}, "timestamp": {item.timestamp}, "size": {item.size}, '
            f'"hash": "{item.hash}", "op": "{item.op}", "turn": {item.turn}{mode}{source}}}'
        )
        yield before + row.encode()
        before = b",\n"
    yield b"\n]\n"


class GeneratedText(RawFile):
    """A text that is generated while it is read.

    The last part that was read stays in memory, as the kernel may request pieces a little out of order. A read further
    back, or after an error, generates the text again from its beginning.

    Args:
        make: generates it, in pieces; always the same.
    """

    def __init__(self, make: Callable[[], Iterator[bytes]]) -> None:
        super().__init__()
        self._make = make
        self._begin()

    def _begin(self) -> None:
        self._pieces = self._make()
        self._window = bytearray()
        self._window_at = 0

    def _size(self) -> int:
        raise io.UnsupportedOperation("the end of a generated text is unknown")

    def _read(self, size: int) -> bytearray:
        """Return fewer bytes than requested only at the end."""
        if self._at < self._window_at:
            self._begin()
        try:
            self._read_up_to(self._at + size)
        except BaseException:
            self._begin()  # a generator that has raised yields nothing more: the text would seem to end there
            raise
        first = self._at - self._window_at
        return self._window[first : first + size]

    def _read_up_to(self, end: int) -> None:
        while self._window_at + len(self._window) < end:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._window += piece
            old = min(self._at - self._window_at, len(self._window)) - _WINDOW_BYTES
            if old >= _WINDOW_BYTES:
                del self._window[:old]
                self._window_at += old
