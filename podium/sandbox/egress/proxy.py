"""The proxy itself: tunnels to allowed hosts, and requests of plain HTTP, for one command.

A tunnel carries TLS to the host that it is for, and nothing else: its first message has to name that host. A request of
plain HTTP goes on alone on its connection, without what could be a second one; to a host with credentials it goes by
TLS, with them. Names are resolved here, and what is connected to is the very address that was checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from podium.sandbox.egress.client_hello import MAX_HELLO_BYTES, NotTls, server_name
from podium.sandbox.egress.heads import Head, Refused, parse_head
from podium.sandbox.egress.outside import is_public, of_this_machine
from podium.tasks import BackgroundTasks, joined_beside

if TYPE_CHECKING:
    import socket

    from podium.sandbox.egress.allow_list import Proxied
    from podium.sandbox.egress.outside import Outside

__all__ = ["Denied", "OnDenied", "Proxy"]

_MAX_HEAD_BYTES: Final = 16 << 10
_HEAD_S: Final = 10.0
"""For a head, and for the first message of TLS: who sends them slowly holds a connection."""
_DIAL_S: Final = 10.0
"""To resolve a name and to connect."""
_LINGER_S: Final = 1.0
"""For a client to read why it is refused, while it may still be sending."""
_MAX_CONNECTIONS: Final = 100
"""At once; each has two descriptors of this process, whose bound is often 1,024."""
_MAX_DENIED: Final = 100
"""Distinct denials that are told of one command."""
_CHUNK: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Denied:
    """What a command was kept from."""

    host: str
    port: int
    reason: str

    def __str__(self) -> str:
        return f"denied egress {self.host}:{self.port}: {self.reason}"


OnDenied = Callable[[Denied], Awaitable[None]]


class Proxy:
    """Serves one command, from a socket in its network."""

    def __init__(self, network: Proxied, outside: Outside, on_denied: OnDenied) -> None:
        self._network = network
        self._outside = outside
        self._on_denied = on_denied
        self._told: set[Denied] = set()
        self._connections = BackgroundTasks()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until it is cancelled; then no connection is left. The socket is closed."""
        server = await asyncio.start_server(self._connected, sock=listener, limit=_MAX_HEAD_BYTES)
        try:
            async with server:
                await server.serve_forever()
        finally:
            await self._connections.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.write(_answer(Refused(503, "too many connections at once")))
            writer.close()
            return
        self._connections.spawn(self._handle(reader, writer), "connection of a sandbox")

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                head = parse_head(await _head(reader))
                await self._carry_out(head, reader, writer)
            except Refused as refused:
                writer.write(_answer(refused))
                writer.write_eof()
                async with asyncio.timeout(_LINGER_S):
                    while await reader.read(_CHUNK):
                        pass
        except (OSError, EOFError, TimeoutError):  # of one of the two ends
            pass
        finally:
            writer.close()

    async def _carry_out(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        credentials = self._network.credentials.get(head.host, {}) if head.target and head.port == 80 else {}
        port = 443 if credentials else head.port
        if not self._network.allows(head.host, port):
            raise await self._denied(head.host, port, "it is not on the list")
        theirs, upstream = await self._dial(head.host, port)
        try:
            if head.target:
                if credentials:
                    async with asyncio.timeout(_DIAL_S):
                        await upstream.start_tls(self._outside.tls, server_hostname=head.host)
                upstream.write(head.sent_on(credentials))
                async with joined_beside(_copy(reader, upstream, head.body_bytes)):
                    await _copy(theirs, writer, None)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                upstream.write(await self._hello(head, reader))
                async with joined_beside(_copy(theirs, writer, None)) as answers:
                    await _copy(reader, upstream, None)
                    await answers
        finally:
            upstream.close()

    async def _dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(_DIAL_S):
                found = await self._outside.resolve(host, port)
                addresses = [each for each in found if is_public(each) and not of_this_machine(each)]
                if found and not addresses:
                    raise await self._denied(host, port, "its address is none of the public internet")
                for address in addresses:
                    with suppress(OSError):
                        return await self._outside.connect(address, port)
        except TimeoutError:
            raise Refused(504, f"{host}:{port} did not answer in {_DIAL_S:.0f} seconds") from None
        except (OSError, UnicodeError):
            raise Refused(502, f"the name {host} cannot be resolved") from None
        raise Refused(502, f"{host}:{port} cannot be reached")

    async def _hello(self, head: Head, reader: asyncio.StreamReader) -> bytes:
        """Read the first message of a tunnel; raise if it is not for the host of the tunnel."""
        received, name = b"", None
        try:
            async with asyncio.timeout(_HEAD_S):
                while name is None:
                    if len(received) > MAX_HELLO_BYTES:
                        raise NotTls("it is too long")
                    if not (piece := await reader.read(_CHUNK)):
                        raise EOFError
                    received += piece
                    name = server_name(received)
        except NotTls as error:
            await self._denied(head.host, head.port, f"a tunnel carries TLS only ({error})")
            raise EOFError from error
        if name.removesuffix(".") != head.host:
            await self._denied(head.host, head.port, f"its tunnel was used for {name[:253] or 'no name'}")
            raise EOFError
        return received

    async def _denied(self, host: str, port: int, reason: str) -> Refused:
        denied = Denied(host, port, reason)
        if denied not in self._told and len(self._told) < _MAX_DENIED:
            self._told.add(denied)
            await self._on_denied(denied)
        return Refused(403, str(denied))


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_HEAD_S):
            return (await reader.readuntil(b"\r\n\r\n"))[:-4]
    except asyncio.LimitOverrunError:
        raise Refused(431, "the head of the request is longer than 16 KiB") from None
    except TimeoutError:
        raise Refused(408, f"the head of the request did not come in {_HEAD_S:.0f} seconds") from None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int | None) -> None:
    """Copy some bytes, or all; at the end of all the other side is told."""
    while size is None or size > 0:
        piece = await reader.read(_CHUNK if size is None else min(_CHUNK, size))
        if not piece:
            break
        writer.write(piece)
        await writer.drain()
        size = None if size is None else size - len(piece)
    if size is None and writer.can_write_eof():
        writer.write_eof()


def _answer(refused: Refused) -> bytes:
    text = f"podium: {refused}\n"
    lines: Mapping[str, object] = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": len(text.encode()),
        "Connection": "close",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}\r\n{head}\r\n{text}".encode()
