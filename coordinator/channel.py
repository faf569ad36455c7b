"""The channel between processes of a home: service, deliveries and model gateway speak it.

Each side sends packets: a length (4 bytes, big-endian), and an object of so many bytes of JSON, at most `MAX_PACKET`.
Where a connection carries several requests, an object begins with the ``id`` of its own, so that one that cannot be
read costs its request and not the connection. A packet that is cut off or too long ends the connection.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from typing import Any, Final

import orjson

from chronicle.canonical import decode
from chronicle.errors import InvalidInput

__all__ = ["MAX_PACKET", "BatchedWriter", "PacketTooLong", "from_json", "id_of", "pack", "read_packet", "to_json"]

MAX_PACKET: Final = 64 * 1024 * 1024
"""Longest packet that either side sends or reads, bytes of JSON: images are in it."""
_LENGTH: Final = struct.Struct(">I")

_ID: Final = re.compile(rb'\{"id": ?([0-9]{1,18})[,}]')
_MAX_PENDING: Final = 64 * 1024
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
    """Return the value of a JSON text that another process of the home has written.

    It may hold lone surrogates: names of files and of variables are bytes, and need not be UTF-8.

    Raises:
        InvalidInput: it is not JSON.
    """
    try:
        return decode(data)
    except InvalidInput:
        if b"\\u" not in data:
            raise
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}") from error


class PacketTooLong(InvalidInput):
    """A packet is longer than `MAX_PACKET`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it has {size} bytes, and a packet at most {MAX_PACKET}")


def pack(value: object) -> bytes:
    """Return a value as a packet.

    Raises:
        PacketTooLong: it is.
    """
    data = to_json(value)
    if len(data) > MAX_PACKET:
        raise PacketTooLong(len(data))
    return _LENGTH.pack(len(data)) + data


async def read_packet(reader: asyncio.StreamReader, limit: int = MAX_PACKET) -> bytes | None:
    """Return the JSON of the next packet; ``None`` at the end of the connection, also in the middle of a packet.

    Args:
        limit: bytes of the longest packet.

    Raises:
        PacketTooLong: it is; the connection cannot be read any further.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > limit:
            raise PacketTooLong(length)
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


def id_of(data: bytes) -> int | None:
    """Return the id at the begin of an object that cannot be read; ``None`` if there is none."""
    found = _ID.match(data)
    return int(found[1]) if found is not None else None


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
        if self._size > _MAX_PENDING:
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
