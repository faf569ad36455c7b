"""What the connections between the processes of a home share: JSON as bytes, and writes in batches."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import orjson

__all__ = ["BatchedWriter", "from_json", "to_json"]

_DIGITS_TO_ZERO: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG_INTEGER: Final = b"0" * 19
"""orjson reads integers of more than 64 bits as floats."""
_MOST_PENDING: Final = 64 * 1024
"""Bytes that wait for the end of an iteration of the event loop, before a `BatchedWriter.drain` writes them."""


def to_json(value: object) -> bytes:
    """Return a value as JSON, in one line.

    What orjson refuses, such as lone surrogates and integers of more than 64 bits, Python's own encoder writes.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deeply.
    """
    if _LONG_INTEGER not in data.translate(_DIGITS_TO_ZERO):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # such as a lone surrogate
    return json.loads(data)


class BatchedWriter:
    """Writes to a connection: what is written in one iteration of the event loop goes out by one system call.

    Many agents of a host answer in the same iteration, when their commits have shared a sync to disk.

    Args:
        writer: of the connection; nothing else writes to it.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Write bytes, at the latest in the next iteration of the event loop."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        self._size += len(data)

    async def drain(self) -> None:
        """Wait while the connection has much to send.

        Raises:
            ConnectionError: it has ended.
        """
        if self._size > _MOST_PENDING:
            self._flush()
        await self._writer.drain()

    def close(self) -> None:
        """Write what is pending, and close the connection."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._pending:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self._pending.clear()
            self._size = 0
            if not self._writer.is_closing():
                self._writer.write(data)
