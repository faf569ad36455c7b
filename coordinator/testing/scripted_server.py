"""An HTTP/1.1 server on the loopback interface that answers each request with the next response of a script.

It writes to the socket itself, so that a test can break a connection at any byte, which no web framework allows.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from chronicle.canonical import decode
from coordinator.testing.scripted_sse import Cut, ScriptedResponse, Wait
from podium.tasks import BackgroundTasks, beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from chronicle.canonical import Json

__all__ = ["ScriptedRequest", "ScriptedServer"]

_NONE_LEFT: Final = ScriptedResponse.json(
    {"error": {"type": "api_error", "code": "script_ended", "message": "the script has no further response"}}, 500
)
_NO_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """A request that the server got."""

    method: str
    target: str
    """The path and the query, as they were sent."""
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    connection: int
    """The number of its connection, from 1."""

    @property
    def json(self) -> Json:
        """The body as a JSON value."""
        return decode(self.body)


class ScriptedServer:
    """A server for the duration of its context.

    Args:
        script: the responses, in the order of the requests; or a function from a request to its response.
        port: a free one by default.

    Attributes:
        requests: all requests so far.
    """

    def __init__(
        self,
        script: Iterable[ScriptedResponse] | Callable[[ScriptedRequest], ScriptedResponse],
        port: int = 0,
    ) -> None:
        responses = iter(()) if callable(script) else iter(script)
        self._answer = script if callable(script) else lambda _: next(responses, _NONE_LEFT)
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections = BackgroundTasks()
        self._accepted = itertools.count(1)
        self.requests: list[ScriptedRequest] = []

    @property
    def port(self) -> int:
        """Its port."""
        assert self._server is not None, "the server runs in its context"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    @property
    def url(self) -> str:
        """Its base."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._connections.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task of our own: Python 3.11 reports a cancelled one of its own as an error."""
        _ = self._connections.start(self._serve(reader, writer), "scripted connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(self._accepted)
        try:
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                if not await _write_response(reader, writer, self._answer(request)):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The client left.
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> ScriptedRequest | None:
    """Return the next request of a connection; ``None`` at its end."""
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ScriptedRequest(method, target, headers, body, connection)


async def _write_response(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: ScriptedResponse
) -> bool:
    """Write a response; return whether the connection can be used further."""
    has_body = response.status not in _NO_BODY
    headers = {**response.headers, **({"Transfer-Encoding": "chunked"} if has_body else {})}
    head = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
    await writer.drain()
    for step in response.steps:
        match step:
            case Cut():
                return False
            case Wait():
                if not await _waited(step.until, reader):
                    return False
            case bytes() if step:
                writer.write(b"%x\r\n%b\r\n" % (len(step), step))
                await writer.drain()
    if has_body:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    return True


async def _waited(until: asyncio.Event, reader: asyncio.StreamReader) -> bool:
    """Wait until an event is set; return false if the client left before."""
    with beside(until.wait()) as setting, beside(reader.read(1)) as leaving:
        await asyncio.wait((setting, leaving), return_when=asyncio.FIRST_COMPLETED)
        return not leaving.done()
