"""The server on the home's Unix socket: admission, streams, administration. The protocol is :mod:`.protocol`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import structlog

from chronicle.blobs.gc.collector import GRACE_S
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, InvalidInput, Unavailable
from chronicle.ids import IdSource, MessageId
from coordinator.access.quotas import MessageQuotaExceeded, Quotas
from coordinator.access.stored_quotas import StoredQuotas
from coordinator.channel import BatchedWriter, PacketTooLong, id_of, pack, read_packet
from coordinator.client_messages import Admission, Arrival, position_of
from coordinator.fleet.nodes.nodes import NodeId
from coordinator.fleet.services.handover import HandedOver
from coordinator.homes.opening import open_records
from coordinator.process_environment import ProcessEnvironment
from coordinator.registry.deploying import deployed_registry
from coordinator.registry.registry import Registry
from coordinator.service.agent_types import AgentTypes
from coordinator.service.deliveries import Deliveries
from coordinator.service.group_admission import GroupAdmission
from coordinator.service.metrics import ServiceMetrics
from coordinator.service.protocol import PROTOCOL
from coordinator.service.requests import (
    address_in,
    addresses_in,
    content_in,
    message_in,
    parse_request,
    switch_in,
    timeout_in,
)
from coordinator.service.service_tracing import ServiceTracing
from coordinator.telemetry.snapshots import to_wire
from podium.agent_record import find_session
from podium.errors import AgentAwake, InvalidMessage, PodiumError
from podium.events import PARTS
from podium.history.branching import plan_rewind, rewind_agent
from podium.messages.inbox import is_open, message_of
from podium.state import StateError
from podium.tasks import BackgroundTasks
from podium.turn.upload import change_file, upload_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coordinator.client_messages import Admitted
    from coordinator.fleet.model import Code
    from coordinator.home import Home
    from coordinator.models.supervisor import ModelProcess
    from coordinator.ray.router import Router
    from coordinator.service.deliveries import Deliver
    from coordinator.settings import Settings
    from podium.address import Address
    from podium.turn.stream import Frame

__all__ = ["ServiceServer"]

_UPLOAD_WAIT_S: Final = GRACE_S / 2
"""Timeout of the running turn's end before a file is changed: the content is in the blob store already, and must be
committed within the grace period of garbage collection."""

_log = structlog.stdlib.get_logger(__name__)


class ServiceServer:
    """The service's socket.

    Args:
        home: the home of the service.
        settings: the settings of this process.
        router: a started router.
        deliver: as of `Deliveries`.
        surroundings: the environment that agents inherit; by default the current one of this process.
        models: the model gateway, for its metrics; the caller starts and ends it.
        awaits_registration: whether the client that started the service is about to register agent classes.
    """

    def __init__(
        self,
        home: Home,
        settings: Settings,
        router: Router,
        deliver: Deliver,
        surroundings: ProcessEnvironment | None = None,
        models: ModelProcess | None = None,
        *,
        awaits_registration: bool = False,
    ) -> None:
        self._home = home
        self._settings = settings
        self._router = router
        self._store = home.journal()
        self._blobs = home.blobs()
        self._clock = SystemClock()
        self._ids = IdSource()
        self._quotas = StoredQuotas(open_records(home).quotas)
        quotas = Quotas(self._quotas, self._store, self._blobs, self._clock)
        self._check_read = quotas.check_read
        self._admission = Admission(
            self._store,
            self._blobs,
            self._ids,
            self._clock,
            settings.inbox_limit,
            quotas.check,
        )
        self._group_admission = GroupAdmission(self._admission, quotas.limited)
        self._surroundings = surroundings or ProcessEnvironment.of_this_process()
        self._types = AgentTypes(
            router, partial(deployed_registry, self._store, self._blobs), awaits_registration=awaits_registration
        )
        self._deliveries = Deliveries(deliver, self._types)
        self._metrics = ServiceMetrics(router, self._store, self._clock, models)
        self._tracing = ServiceTracing()
        self._clients: set[_Client] = set()
        self._pinned = False
        self._ending = False
        self.is_ordered_away = False
        """Whether the service ends because another one is to have the home."""
        self.stop_timeout_s = settings.stop_timeout_s
        """Timeout of the agents' end, which a client may set when it ends the service."""
        self._changed = asyncio.Event()
        """Set when a client has connected or disconnected, or the service is to end."""
        self._tasks = BackgroundTasks()
        self._socket: asyncio.Server | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accept clients while the context lasts.

        Raises:
            ChronicleError: the current deploy cannot be read.
        """
        await self._types.read_deploy()
        path = self._home.socket_path
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._socket = await asyncio.start_unix_server(self.serve, path=str(path))
        try:
            yield
        finally:
            self.admit_no_more()
            for client in self._clients:
                client.hang_up()
            await self._tasks.close()
            await self._deliveries.cancel()
            await self._tracing.flush()
            self._group_admission.close()
            self._quotas.close()
            self._store.close()
            self._blobs.close()

    async def wait_unused(self, first_client_s: float) -> None:
        """Return when the service is to end.

        That is after `end`, and, unless a client has pinned it, when the last client has disconnected, or none
        connected in time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(first_client_s):
                await self._changed.wait()
        while not self._ending and (self._pinned or self._clients):
            self._changed.clear()
            await self._changed.wait()

    def end(self, *, ordered_away: bool = False) -> None:
        """Have `wait_unused` return.

        Args:
            ordered_away: whether another service is to have the home, so that `hand_over` is called next.
        """
        self.is_ordered_away = self.is_ordered_away or (ordered_away and not self._ending)
        self._ending = True
        self._changed.set()

    def admit_no_more(self) -> None:
        """Accept no further clients and no further messages. Streams continue; new clients wait for another service."""
        self.end()
        if self._socket is not None:
            self._home.socket_path.unlink(missing_ok=True)
            self._socket.close()
            self._socket = None

    def hand_over(self) -> None:
        """Accept no further clients and messages, as another service has the home.

        Streams of running turns continue. Clients are told, and those that wait for an agent to be woken, too.
        """
        self.admit_no_more()
        self._router.leave()
        for client in list(self._clients):
            client.tell_left()

    # -- one client -----------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client at the other end of a connection, and close it at last."""
        client = _Client(writer)
        if self._ending:  # accepted just before the socket was closed: the client retries with the next service
            client.hang_up()
            return
        self._clients.add(client)
        self._changed.set()
        try:
            while (data := await read_packet(reader)) is not None:
                try:
                    self._spawn(client, parse_request(data))
                except InvalidInput as error:
                    refusal = {"type": "InvalidInput", "message": str(error)}
                    await client.say({"id": id_of(data)}, error=refusal)
        except PacketTooLong as error:
            _log.warning("client_dropped", error=str(error))
        finally:
            client.hang_up()
            self._clients.discard(client)
            self._changed.set()

    async def _answer(self, client: _Client, request: dict[str, Any]) -> None:
        try:
            match request.get("op"):
                case "send":
                    await self._send(client, request)
                case "follow":
                    address, message_id = address_in(request), MessageId(str(request.get("message_id")))
                    message = await asyncio.to_thread(self._admission.find, address, message_id)
                    await self._follow(client, request, address, message)
                case "admit":
                    address, code, message = await self._admit(client, request)
                    self._deliveries.begin(address, code, message)
                    await client.say(request, result={**_receipt(message), "repeated": message.receipt.repeated})
                case _:
                    await client.say(request, result=await self._result(request))
        except (PodiumError, ChronicleError, StateError, TimeoutError) as error:
            text = str(error) or "the operation timed out; the message stays in the inbox"
            described: dict[str, str | int] = {"type": type(error).__name__, "message": text}
            if isinstance(error, InvalidMessage):
                described["param"] = error.param
            if isinstance(error, MessageQuotaExceeded):
                described["retry_after_s"] = error.retry_after_s
            await client.say(request, error=described)
        except Exception as error:  # noqa: BLE001  a bug: reported to the client, with its traceback in the log
            _log.exception("request_failed")
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
            case "nodes":
                return {"nodes": await self._router.nodes()}
            case "drain":
                await self._router.drain(NodeId(str(request.get("node"))), undo=bool(switch_in(request, "undo")))
                return {}
            case "awake":
                return {"agents": await self._router.awake(addresses_in(request))}
            case "facts":
                return {"facts": await self._router.facts(address_in(request))}
            case "position":
                turn, waits = await asyncio.to_thread(position_of, self._store, address_in(request))
                return {"turn": turn, "waits": waits}
            case "cancel":
                await self._cancel(address_in(request), MessageId(str(request.get("message_id"))))
                return {}
            case "poke":
                return {"looks": await self._router.poke(address_in(request))}
            case "forget":
                await self._router.forget(address_in(request))
                return {}
            case "passivate":
                async with self._router.asleep(address_in(request)):
                    return {}
            case "read":
                return await self._read(request)
            case "rewind":
                return await self._rewind(request)
            case "change_file":
                return await self._change_file(request)
            case "register":
                return await self._register(request)
            case "redeploy":
                return await self._redeploy()
            case "pin":
                self._pinned = True
                return {}
            case "down":
                self.stop_timeout_s = timeout_in(request) or self.stop_timeout_s
                self.end()
                return {}
            case "status":
                return await self._status()
            case "types":
                return {"types": self._types.types()}
            case "metrics":
                return {"metrics": to_wire(await self._metrics.snapshot())}
            case unknown:
                raise PodiumError(f"unknown operation {unknown!r}")

    async def _send(self, client: _Client, request: dict[str, Any]) -> None:
        address, code, message = await self._admit(client, request)
        await client.say_frames(request, [{"type": "accepted", **_receipt(message)}])
        self._deliveries.begin(address, code, message)
        await self._follow(client, request, address, message)

    async def _admit(self, client: _Client, request: dict[str, Any]) -> tuple[Address, Code, Admitted]:
        sent = message_in(request)
        async with client.in_order(sent.address):
            if self.is_ordered_away:
                raise HandedOver
            if self._ending:
                raise Unavailable("the service is ending; send the message again")
            code, epoch = await self._types.prepare(sent.address, sent.agent)
            try:
                await self._types.check(sent.address, sent.agent, request["message"])
            except InvalidMessage:  # the class may have been deployed since it was admitted
                arrival = Arrival(sent.address, sent.body, sent.idempotency_key, sent.when_busy)
                if (message := await asyncio.to_thread(self._admission.repeated, arrival)) is None:
                    raise
                return sent.address, code, message
            with self._tracing.sending(sent.address, sent.trace) as span:
                message = await self._group_admission.admit(
                    Arrival(
                        sent.address,
                        sent.body,
                        sent.idempotency_key,
                        sent.when_busy,
                        span.traceparent,
                        epoch,
                        sent.caller,
                    )
                )
                span.set("messaging.message.id", message.message_id)
        if not message.receipt.repeated:
            self._metrics.admitted(sent.address)
        return sent.address, code, message

    async def _follow(self, client: _Client, request: dict[str, Any], address: Address, message: Admitted) -> None:
        async with aclosing(self._deliveries.follow(address, message)) as batches:
            async for batch in batches:
                if not await client.say_frames(request, batch):
                    return

    async def _register(self, request: dict[str, Any]) -> dict[str, Any]:
        registry = Registry.from_wire(request.get("agents"))
        reload, follow_edits = switch_in(request, "reload"), switch_in(request, "follow_edits")
        moving = await self._types.register(registry, reload=bool(reload), follow_edits=follow_edits)
        return {"types": list(registry.types), "reloaded": sorted(map(str, moving))}

    async def _redeploy(self) -> dict[str, Any]:
        return {"reloaded": sorted(map(str, await self._types.redeploy()))}

    async def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "protocol": PROTOCOL,
            "pinned": self._pinned,
            "clients": len(self._clients),
            "delivering": len(self._deliveries),
            "registry": await self._types.describe(),
        }

    async def _cancel(self, address: Address, message_id: MessageId) -> None:
        session = await asyncio.to_thread(find_session, self._store, address)
        if is_open(await asyncio.to_thread(message_of, self._store, session, message_id)):
            await self._router.cancel(address, message_id)

    async def _read(self, request: dict[str, Any]) -> dict[str, Any]:
        address, message = address_in(request), request.get("message")
        if not isinstance(message, dict):
            raise InvalidInput(f"a message must be a JSON object, not {type(message).__name__}")
        await asyncio.to_thread(find_session, self._store, address)  # one that never got a message is not made for it
        code = await self._types.code_of(address.agent_type)
        await self._types.check(address, None, message, read=True)
        await asyncio.to_thread(self._check_read, address)
        found = await self._router.read(address, code, message)
        return {"turn": found.turn, "data": found.data}

    async def _rewind(self, request: dict[str, Any]) -> dict[str, Any]:
        address, turn, only = address_in(request), request.get("turn"), request.get("only")
        if not isinstance(turn, int) or not (
            only is None or (isinstance(only, list) and all(part in PARTS for part in only))
        ):
            raise InvalidInput(f"'turn' must be a number, and 'only' null or a list of {', '.join(PARTS)}")
        # A turn that does not exist is refused before the agent is put to sleep.
        await asyncio.to_thread(plan_rewind, self._store, self._blobs, address, turn, only)
        async with self._router.asleep(address):
            now_ms = self._clock.now_ms()
            plan, head = await asyncio.to_thread(
                rewind_agent, self._store, self._blobs, address, turn, only, self._ids, now_ms
            )
        return {"from": plan.now.turn, "turn": head.turn if head is not None else None}

    async def _change_file(self, request: dict[str, Any]) -> dict[str, Any]:
        address, content = address_in(request), content_in(request)
        path = upload_path(str(request.get("path")))
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_UPLOAD_WAIT_S) as waiting:
                    await stack.enter_async_context(self._router.asleep(address))
            except TimeoutError:
                if not waiting.expired():
                    raise
                raise AgentAwake(
                    f"the running turn of {address} did not end within {_UPLOAD_WAIT_S:g} s; try again later"
                ) from None
            now_ms = self._clock.now_ms()
            changed = await asyncio.to_thread(
                change_file, self._store, self._blobs, address, path, content, self._ids, now_ms
            )
        return asdict(changed)

    def _spawn(self, client: _Client, request: dict[str, Any]) -> None:
        task = self._tasks.start(self._answer(client, request), "request")
        if request.get("op") in {"change_file", "passivate", "rewind"}:
            client.ends_with(task)


class _Client:
    """The connection to one client. Answers to a client that has disconnected are dropped."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = BatchedWriter(writer)
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

    def tell_left(self) -> None:
        """Tell the client that another service has the home; what it follows here goes on."""
        if not self.gone:
            with contextlib.suppress(ConnectionError):
                self._writer.write(pack({"id": None, "left": True}))

    async def say(self, request: dict[str, Any], **answer: object) -> None:
        await self._write(_packet(request, **answer))

    async def say_frames(self, request: dict[str, Any], frames: list[Frame]) -> bool:
        """Send frames; return whether the client is still there.

        It waits while the connection has much to send. The followers' texts are merged meanwhile, and each then has one
        batch to send.
        """
        try:
            packets = pack({"id": request["id"], "frames": frames})
        except PacketTooLong:
            packets = b"".join(_packet(request, frames=[frame]) for frame in frames)
        return await self._write(packets)

    async def _write(self, packets: bytes) -> bool:
        if not self.gone:
            try:
                self._writer.write(packets)
                await self._writer.drain()
            except ConnectionError:
                self.gone = True
        return not self.gone


def _packet(request: dict[str, Any], **answer: object) -> bytes:
    try:
        return pack({"id": request["id"], **answer})
    except PacketTooLong as error:  # the client could not read it, and would lose its connection
        refusal = {"type": "InvalidInput", "message": f"the answer is too long: {error}"}
        return pack({"id": request["id"], "error": refusal})


def _receipt(message: Admitted) -> dict[str, Any]:
    return {
        "message_id": message.message_id,
        "position": message.receipt.position,
        "before": message.before,
    }
