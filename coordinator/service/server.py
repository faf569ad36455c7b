"""The server on the home's Unix socket: admission, streams, cancellation. The protocol is :mod:`.protocol`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, InvalidInput
from chronicle.ids import IdSource, MessageId
from coordinator.client_messages import Admission
from coordinator.fleet.model import Code
from coordinator.process_environment import ProcessEnvironment
from coordinator.service.protocol import MAX_LINE, PROTOCOL
from podium.address import Address
from podium.agent_record import find_session
from podium.errors import PodiumError
from podium.history.branching import plan_rewind, rewind_agent
from podium.messages.inbox import is_open, message_of
from podium.state import StateError
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coordinator.home import Home
    from coordinator.ray.router import Router
    from coordinator.settings import Settings

__all__ = ["ServiceServer"]

_log = logging.getLogger(__name__)


class ServiceServer:
    """The service's socket.

    Args:
        home: the home of the service.
        settings: the settings of this process.
        router: a started router.
        surroundings: the environment that agents inherit; by default the current one of this process.
    """

    def __init__(
        self, home: Home, settings: Settings, router: Router, surroundings: ProcessEnvironment | None = None
    ) -> None:
        self._home = home
        self._settings = settings
        self._router = router
        self._store = home.journal()
        self._blobs = home.blobs()
        self._clock = SystemClock()
        self._ids = IdSource()
        self._admission = Admission(self._store, self._blobs, self._ids, self._clock, settings.inbox_limit)
        self._surroundings = surroundings or ProcessEnvironment.of_this_process()
        self._clients: set[_Client] = set()
        self._ending = False
        self._came_or_went = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

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
            self._blobs.close()

    async def wait_unused(self, stopping: asyncio.Event, first_client_s: float) -> None:
        """Return when the last client has disconnected, or ``stopping`` is set, or no client connected in time."""
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
        if self._ending:  # accepted just before the socket was closed: the client retries with the next service
            client.hang_up()
            return
        self._clients.add(client)
        self._came_or_went.set()
        try:
            while line := await reader.readline():
                self._spawn(client, _request(line))
        except (ConnectionError, ValueError, RecursionError) as error:
            _log.warning("client dropped: %s", error)
        finally:
            client.hang_up()
            self._clients.discard(client)
            self._came_or_went.set()

    async def _answer(self, client: _Client, request: dict[str, Any]) -> None:
        try:
            if request.get("op") == "send":
                await self._send(client, request)
            else:
                await client.say(request, result=await self._result(request))
        except (PodiumError, ChronicleError, StateError, TimeoutError) as error:
            message = str(error) or "the operation timed out; the message stays in the inbox"
            await client.say(request, error={"type": type(error).__name__, "message": message})
        except Exception as error:  # noqa: BLE001  a bug: reported to the client, with its traceback in the log
            _log.exception("request failed")
            await client.say(request, error={"type": type(error).__name__, "message": str(error)})

    async def _result(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("op"):
            case "hello":
                surroundings = self._surroundings.to_wire()
                return {"protocol": PROTOCOL, "notice": self._router.notice, "surroundings": surroundings}
            case "ping":
                return {}
            case "ps":
                return {"hosts": await self._router.running()}
            case "cancel":
                await self._cancel(_address(request), MessageId(str(request.get("message_id"))))
                return {}
            case "poke":
                return {"looks": await self._router.poke(_address(request))}
            case "passivate":
                async with self._router.asleep(_address(request)):
                    return {}
            case "rewind":
                return await self._rewind(request)
            case unknown:
                raise PodiumError(f"unknown operation {unknown!r}")

    async def _send(self, client: _Client, request: dict[str, Any]) -> None:
        code, address, body, when_busy = _sent(request)
        key = request.get("idempotency_key")
        async with client.in_order(address):
            await self._router.prepare(address, code)
            message = await asyncio.to_thread(self._admission.admit, address, body, key, when_busy)
        accepted = {
            "type": "accepted",
            "message_id": message.message_id,
            "position": message.receipt.position,
            "before": message.before,
        }
        await client.say(request, frame=accepted)
        async with aclosing(self._router.deliver(address, code, message)) as frames:  # closed at a disconnect, too
            async for frame in frames:
                await client.say(request, frame=frame)

    async def _cancel(self, address: Address, message_id: MessageId) -> None:
        session = await asyncio.to_thread(find_session, self._store, address)
        if is_open(await asyncio.to_thread(message_of, self._store, session, message_id)):
            await self._router.cancel(address, message_id)

    async def _rewind(self, request: dict[str, Any]) -> dict[str, Any]:
        address, turn, only = _address(request), request.get("turn"), request.get("only")
        if not isinstance(turn, int) or only not in {None, "state", "files"}:
            raise InvalidInput("'turn' must be a number, and 'only' must be 'state', 'files' or null")
        # A turn that does not exist is refused before the agent is put to sleep.
        await asyncio.to_thread(plan_rewind, self._store, self._blobs, address, turn, only)
        async with self._router.asleep(address):
            now_ms = self._clock.now_ms()
            plan, head = await asyncio.to_thread(
                rewind_agent, self._store, self._blobs, address, turn, only, self._ids, now_ms
            )
        return {"from": plan.now.turn, "turn": head.turn if head is not None else None}

    def _spawn(self, client: _Client, request: dict[str, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(client, request), name="request")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if request.get("op") in {"passivate", "rewind"}:
            client.ends_with(task)


def _request(line: bytes) -> dict[str, Any]:
    """Parse a client's line.

    Raises:
        ValueError: it is not a request, and has no id for an answer.
    """
    request = json.loads(line)
    if not isinstance(request, dict) or "id" not in request:
        raise ValueError("a request must be a JSON object with an id")
    return request


def _address(request: dict[str, Any]) -> Address:
    """Return the address in a request's ``agent``.

    Raises:
        InvalidAddress: it is not an address.
    """
    return Address.parse(str(request.get("agent")))


def _sent(request: dict[str, Any]) -> tuple[Code, Address, bytes, BusyPolicy]:
    """Parse a ``send``: the agent's code and address, the message in its stored encoding, and the policy.

    Raises:
        InvalidInput: a part is missing or of a wrong type.
        InvalidAddress: the agent's type or key is invalid.
    """
    agent, key, message = request.get("agent"), request.get("key"), request.get("message")
    names = [agent.get(name) for name in ("file", "class", "agent_type")] if isinstance(agent, dict) else []
    file, class_name, agent_type = (*names, None, None, None)[:3]
    if not (isinstance(file, str) and isinstance(class_name, str) and isinstance(agent_type, str)):
        raise InvalidInput("'agent' must be an object with the strings file, class and agent_type")
    if not isinstance(key, str):
        raise InvalidInput("'key' must be a string")
    if not isinstance(message, dict):
        raise InvalidInput(f'a message must be a JSON object such as {{"text": ...}}, not {type(message).__name__}')
    try:
        when_busy = BusyPolicy(request.get("when_busy") or BusyPolicy.ENQUEUE)
    except ValueError:
        raise InvalidInput(f"'when_busy' must be one of {', '.join(BusyPolicy)}") from None
    return Code(file, class_name, agent_type), Address(agent_type, key), encode(message), when_busy


class _Client:
    """The connection to one client. Answers to a client that has disconnected are dropped."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()
        self._admitting: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()
        self.gone = False

    def in_order(self, address: Address) -> asyncio.Lock:
        """Return the lock that keeps the client's messages to an agent in the order in which they were sent."""
        return self._admitting.setdefault(address, asyncio.Lock())

    def ends_with(self, task: asyncio.Task[None]) -> None:
        """Cancel a request's task when the client disconnects: only the client needs its result."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def hang_up(self) -> None:
        """Close the connection, which tells the client that the service has ended."""
        self.gone = True
        self._writer.close()
        for task in self._tasks:
            task.cancel()

    async def say(self, request: dict[str, Any], **answer: object) -> None:
        if self.gone:
            return
        line = json.dumps({"id": request["id"], **answer}, ensure_ascii=False, separators=(",", ":"))
        try:
            self._writer.write(line.encode("utf-8", "surrogatepass") + b"\n")
            await self._writer.drain()
        except ConnectionError:
            self.gone = True
