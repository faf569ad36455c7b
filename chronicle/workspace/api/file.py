"""An open file of the api presentation, with the interface of Python's file objects."""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, Any, Final

from chronicle.errors import InvalidInput
from chronicle.system.raw_file import RawFile

if TYPE_CHECKING:
    import threading

    from chronicle.workspace.layer.layer import Handle, Layer

__all__ = ["LayerFile", "Mode", "wrapped"]

_BUFFER_BYTES: Final = 256 * 1024
"""A call into a layer costs some microseconds, whatever its size."""


class Mode:
    """A parsed mode string of `open`.

    Raises:
        InvalidInput: it is malformed.
    """

    def __init__(self, text: str) -> None:
        kinds = [letter for letter in text if letter in "rwax"]
        rest = sorted(letter for letter in text if letter not in "rwax")
        if len(kinds) != 1 or len(set(rest)) != len(rest) or not set(rest) <= set("bt+") or {"b", "t"} <= set(rest):
            raise InvalidInput(f"mode {text!r} is not one of open(): r, w, a or x, with + and b or t")
        self.kind = kinds[0]
        self.text = "b" not in rest
        self.reads = self.kind == "r" or "+" in rest
        self.writes = self.kind != "r" or "+" in rest


class LayerFile(RawFile):
    """An open file. Closing it makes a version if it was written to.

    Args:
        layer: its layer.
        handle: the open file; released when this is closed.
        mode: the permitted operations.
        lock: held around each call into the layer.
        name: its path.
    """

    def __init__(self, layer: Layer, handle: Handle, mode: Mode, lock: threading.RLock, name: str) -> None:
        super().__init__()
        self._layer = layer
        self._handle = handle
        self._mode = mode
        self._lock = lock
        self.name = name

    def readable(self) -> bool:
        """Whether it is open for reading."""
        return self._mode.reads

    def writable(self) -> bool:
        """Whether it is open for writing."""
        return self._mode.writes

    def _size(self) -> int:
        return self._handle.node.length

    def _read(self, size: int) -> bytes:
        self._check(self._mode.reads, "reading")
        with self._lock:
            return self._layer.read(self._handle, self._at, size)

    def write(self, data: Any) -> int:
        """Write at the position; at the end if the file is open for appending."""
        self._check(self._mode.writes, "writing")
        with self._lock:
            if self._mode.kind == "a":
                self._at = self._handle.node.length
            written = self._layer.write(self._handle, self._at, bytes(data))
        self._at += written
        return written

    def truncate(self, size: int | None = None) -> int:
        """Set the size; without one, to the position."""
        self._check(self._mode.writes, "writing")
        size = self._at if size is None else size
        with self._lock:
            self._layer.truncate(self._handle.node, size, self._handle)
        return size

    def close(self) -> None:
        """Make the version and release the handle."""
        if not self.closed:
            super().close()
            with self._lock:
                self._layer.flush(self._handle)
                self._layer.release(self._handle)

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("the file is closed")
        if not allowed:
            raise io.UnsupportedOperation(f"the file is not open for {what}")


def wrapped(raw: LayerFile, mode: Mode, encoding: str | None, errors: str | None, newline: str | None) -> IO[Any]:
    """Return a buffered file, a text file if the mode says so."""
    buffered: io.BufferedReader | io.BufferedWriter | io.BufferedRandom
    if mode.reads and mode.writes:
        buffered = io.BufferedRandom(raw, _BUFFER_BYTES)
    elif mode.writes:
        buffered = io.BufferedWriter(raw, _BUFFER_BYTES)
    else:
        buffered = io.BufferedReader(raw, _BUFFER_BYTES)
    if mode.kind == "a":
        buffered.seek(0, os.SEEK_END)
    return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline) if mode.text else buffered
