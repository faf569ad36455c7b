"""The name in the first message of TLS: whom a client says that it speaks with. Pure; RFC 8446, 4.1.2; RFC 6066, 3."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_HELLO_BYTES", "NotTls", "server_name"]

MAX_HELLO_BYTES: Final = 16 << 10
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class NotTls(Exception):
    """These bytes are no beginning of TLS."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise NotTls("a message ends in its middle")
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def vector(self, size_of_length: int) -> _Reader:
        return _Reader(self.take(self.number(size_of_length)))


def server_name(received: bytes) -> str | None:
    """Return the name in the first message, in lower case and empty if it has none; ``None`` while there is more of it.

    Raises:
        NotTls: this is no beginning of TLS, or names are given twice.
    """
    message, at = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        record = received[at : at + 5]
        if record[:1] not in (b"", bytes([_HANDSHAKE])) or record[1:2] not in (b"", b"\3"):
            raise NotTls("no record of a handshake")
        length = int.from_bytes(record[3:5], "big")
        if len(record) < 5 or len(received) < at + 5 + length:
            return None
        if not length:
            raise NotTls("an empty record")
        message += received[at + 5 : at + 5 + length]
        at += 5 + length
    return _name(_Reader(message))


def _name(hello: _Reader) -> str:
    if hello.number(1) != _CLIENT_HELLO:
        raise NotTls("no first message of a client")
    hello = hello.vector(3)
    hello.take(2 + 32)  # version, random
    for size in (1, 2, 1):  # session, ciphers, compressions
        hello.vector(size)
    names: list[str] = []
    extensions = hello.vector(2) if hello else _Reader(b"")
    while extensions:
        kind, extension = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            entries = extension.vector(2)
            while entries:
                if entries.number(1) != _HOST_NAME:
                    raise NotTls("a name of no known kind")
                names.append(entries.vector(2).rest().decode("ascii", "replace").lower())
    if len(names) > 1:
        raise NotTls("more than one name")
    return names[0] if names else ""
