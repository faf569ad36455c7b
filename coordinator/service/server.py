"""Serving clients over the home's Unix socket: admission, streams, cancellation. The protocol is :mod:`.protocol`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, InvalidInput, NotFound
from chronicle.ids import IdSource, MessageId
from chronicle.journal.records import NewMessage
from coordinator.model import Code
from coordinator.service.protocol import MAX_LINE, PROTOCOL
from podium.address import Address
from podium.errors import PodiumError
from podium.state import StateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.journal.records import Receipt
    from coordinator.config import Settings
    from coordinator.home import Home
    from coordinator.ray.fleet import Fleet

__all__ = ["ServiceServer"]

_log = logging.getLogger(__name__)


class ServiceServer:
    """The service's socket.

    Args:
        home: whose.
        settings: of this process.
        fleet: started.
    """

    def __init__(self, home: Home, settings: Settings, fleet: Fleet) -> None:
        self._home = home
        self._settings = settings
        self._fleet = fleet
        self._store = home.journal()
        self._clock = SystemClock()
        self._ids = IdSource()
        self._clients: set[_Client] = set()
        self._ending = False
        self._came_or_went = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: dict[str, Code] = {}
        """What the coordinator was told last, by agent type."""
        self._cancelled: set[str] = set()
        self._addresses: dict[str, Address] = {}

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accept clients while the context lasts."""
        path = self._home.socket_path
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        server = await asyncio.start_unix_server(self._serve, path=str(path), limit=MAX_LINE)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            server.close()
            self._ending = True
            for client in self._clients:
                client.hang_up()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._store.close()

    async def wait_unused(self, stopping: asyncio.Event, first_client_s: float) -> None:
        """Return when the last client has gone, or ``stopping`` is set, or no client came in time at first."""
        stop = asyncio.ensure_future(stopping.wait())
        try:
            timeout_s: float | None = first_client_s
            while not stop.done():
                self._came_or_went.clear()
                changed = asyncio.ensure_future(self._came_or_went.wait())
                await asyncio.wait({stop, changed}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not self._clients:
                    return
                timeout_s = None
        finally:
            stop.cancel()

    # -- one client -----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(writer)
        if self._ending:  # it was accepted just before the socket closed: let it look for another service
            client.hang_up()
            return
        self._clients.add(client)
        self._came_or_went.set()
        try:
            while line := await reader.readline():
                self._spawn(self._answer(client, _request(line)), "request")
        except (ConnectionError, ValueError, RecursionError) as error:
            _log.warning("client dropped: %s", error)
        finally:
            client.hang_up()
            self._clients.discard(client)
            self._came_or_went.set()

    async def _answer(self, client: _Client, request: dict[str, Any]) -> None:
        try:
            match request.get("op"):
                case "hello":
                    await client.say(request, result={"protocol": PROTOCOL, "notice": self._fleet.notice})
                case "send":
                    await self._send(client, request)
                case "cancel":
                    await self._cancel(MessageId(str(request.get("message_id"))))
                    await client.say(request, result={})
                case "ps":
                    await client.say(request, result={"hosts": await self._fleet.running()})
                case unknown:
                    raise PodiumError(f"unknown operation {unknown!r}")
        except (PodiumError, ChronicleError, StateError, TimeoutError) as error:
            message = str(error) or "it took too long; the message stays in the inbox"
            await client.say(request, error={"type": type(error).__name__, "message": message})
        except Exception as error:  # noqa: BLE001  a bug: the client is told, the log has the trace
            _log.exception("request failed")
            await client.say(request, error={"type": type(error).__name__, "message": str(error)})

    async def _send(self, client: _Client, request: dict[str, Any]) -> None:
        code, address, body = _sent(request)
        if self._known.get(code.agent_type) != code:
            await self._fleet.register(code)
            self._known[code.agent_type] = code
        receipt = await asyncio.to_thread(self._admit, address, body, request.get("idempotency_key"))
        message_id = receipt.message_id
        self._addresses[message_id] = address
        try:
            accepted = {"type": "accepted", "message_id": message_id, "position": receipt.position}
            await client.say(request, frame=accepted)
            frames = self._fleet.deliver(address, code, message_id, lambda: message_id in self._cancelled)
            async for frame in frames:
                await client.say(request, frame=frame)
        finally:
            self._addresses.pop(message_id, None)
            self._cancelled.discard(message_id)

    def _admit(self, address: Address, body: bytes, idempotency_key: str | None) -> Receipt:
        now_ms = self._clock.now_ms()
        session = self._store.ensure_session(str(address), self._ids.session(now_ms), self._ids.branch(now_ms), now_ms)
        message = NewMessage(
            message_id=self._ids.message(now_ms), body=body, admitted_ms=now_ms, idempotency_key=idempotency_key
        )
        return self._store.admit(session.session_id, message, limit=self._settings.inbox_limit)

    async def _cancel(self, message_id: MessageId) -> None:
        address = self._addresses.get(message_id)
        if address is None:
            raise NotFound(f"message {message_id} is not under way: it was answered already, or never sent here")
        self._cancelled.add(message_id)
        await self._fleet.cancel(address, message_id)

    def _spawn(self, coroutine: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _request(line: bytes) -> dict[str, Any]:
    """Read a client's line.

    Raises:
        ValueError: it is no request: nothing could be answered to it.
    """
    request = json.loads(line)
    if not isinstance(request, dict) or "id" not in request:
        raise ValueError("a request is a JSON object with an id")
    return request


def _sent(request: dict[str, Any]) -> tuple[Code, Address, bytes]:
    """Return what a ``send`` asks for: the agent's code and address, and the message as it is stored.

    Raises:
        InvalidInput: a part is missing or of another type.
        InvalidAddress: the agent's type or key cannot be used.
    """
    agent, key, message = request.get("agent"), request.get("key"), request.get("message")
    names = [agent.get(name) for name in ("file", "class", "agent_type")] if isinstance(agent, dict) else []
    file, class_name, agent_type = (*names, None, None, None)[:3]
    if not (isinstance(file, str) and isinstance(class_name, str) and isinstance(agent_type, str)):
        raise InvalidInput("'agent' is an object with the strings file, class and agent_type")
    if not isinstance(key, str):
        raise InvalidInput("'key' is a string")
    if not isinstance(message, dict):
        raise InvalidInput(f'a message is a JSON object such as {{"text": ...}}, not {type(message).__name__}')
    return Code(file, class_name, agent_type), Address(agent_type, key), encode(message)


class _Client:
    """The way back to one client. What is said to a client that has gone is dropped."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.gone = False

    def hang_up(self) -> None:
        """Close the connection; for the client: the service has ended."""
        self.gone = True
        self._writer.close()

    async def say(self, request: dict[str, Any], **answer: object) -> None:
        if self.gone:
            return
        line = json.dumps({"id": request["id"], **answer}, ensure_ascii=False, separators=(",", ":"))
        try:
            self._writer.write(line.encode("utf-8", "surrogatepass") + b"\n")
            await self._writer.drain()
        except ConnectionError:
            self.gone = True
