"""The messages of the control protocol, as MessagePack: requests, answers and errors.

A request is a map with ``op`` and the operation's arguments; its answer is ``{"ok": value}`` or
``{"error"}`` as `chronicle.error_wire` has it. Both ends are of one installation and one user, so the protocol has no
version of its own.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgpack

from chronicle.error_wire import error_from_wire, error_to_wire
from chronicle.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "LENGTH",
    "MAX_FRAME",
    "Ended",
    "Message",
    "answer_error",
    "answer_ok",
    "framed",
    "pack",
    "raise_error",
    "read_message",
    "unpack",
]

Message = dict[str, Any]
"""A frame's content."""
LENGTH: Final = struct.Struct(">I")
"""The length before the bytes of a message."""
MAX_FRAME: Final = 256 * 1024 * 1024
"""Bytes. Only a damaged stream has longer frames: the longest are histories, about 100 bytes an iteration."""


class Ended(Unavailable):
    """No process serves a socket: it has ended, or is ending and accepts no requests. Its mounts end with it.

    Not raised for a process that exists and does not answer: that may have been stopped.
    """


def pack(message: Message) -> bytes:
    """Return a message as MessagePack. Paths are ``str``, with surrogate escapes where their bytes are not UTF-8."""
    body: bytes = msgpack.packb(message, unicode_errors="surrogateescape")
    return body


def unpack(body: bytes) -> Message:
    """Return the message in MessagePack bytes."""
    message: Message = msgpack.unpackb(body, unicode_errors="surrogateescape")
    return message


def answer_ok(value: object = None) -> Message:
    """Return the answer to an operation that succeeded."""
    return {"ok": value}


def answer_error(error: Exception) -> Message:
    """Return the answer to an operation that failed. Errors that are no `ChronicleError` become `Unavailable`."""
    return {"error": error_to_wire(error, Unavailable)}


def raise_error(error: Message) -> NoReturn:
    """Raise the error of an answer."""
    raise error_from_wire(error, Unavailable)


def framed(message: Message) -> bytes:
    """Return a message as a frame."""
    body = pack(message)
    return LENGTH.pack(len(body)) + body


async def read_message(reader: asyncio.StreamReader, most: int = MAX_FRAME) -> Message:
    """Return the next message of a stream, of at most so many bytes.

    Raises:
        IncompleteReadError: the stream has ended.
        InvalidInput: the frame is too long.
    """
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > most:
        raise InvalidInput(f"a frame has {length} bytes, and at most {most}")
    return unpack(await reader.readexactly(length))
