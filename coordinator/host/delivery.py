"""Delivery of messages to an agent's host, and of their frames back, over a Unix socket of the host.

A streaming Ray call costs three round trips through Ray for a turn with two batches of frames, 1 to 2 ms each; the
socket costs 0.1 ms per batch. Once the route is known, a message bypasses Ray; the host's liveness is still probed
through Ray.

Each side sends packets of `coordinator.channel`. The edge has one connection to a host for the deliveries of all its
agents, which it numbers:

``{"id", "agent", "message_id", "position", "offer"}``
    delivers a message that is in the inbox of an agent, at a position that may be null; one that was admitted a moment
    ago goes along (`_to_wire`; else null), so that the host need not read it. Answered by ``{"id", "frames"}``
    repeatedly, the last batch ending with a terminal frame, or by ``{"id", "error"}`` as in `chronicle.error_wire`;
``{"id", "taken": true}``
    acknowledges a batch: at most `_WINDOW` batches are unacknowledged, so the text for a slow reader is merged in the
    host instead of queued;
``{"id": 0, "agent", "epoch", "turn", "config"}``
    tells that the activation of an agent under a lease begins, with the number of its turns and its configuration, or,
    with ``turn`` null, that it has ended (`Notice`). The edge then neither waits for the coordinator to tell it the
    way to the agent, nor delivers a message to an activation that is over;
``{"id", "end": true}``
    cancels a delivery whose reader has disconnected. The message is handled nevertheless.

Both ends belong to the same installation and user: the protocol has no version. An object that cannot be read ends its
delivery with an error; one without an id ends the connection.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from contextlib import aclosing, suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.error_wire import error_from_wire, error_to_wire
from chronicle.errors import InvalidInput
from chronicle.journal.records import InboxMessage, MessageStatus
from chronicle.system.permissions import let_group_connect
from coordinator.channel import BatchedWriter, PacketTooLong, from_json, id_of, pack, read_packet
from coordinator.fleet.liveness import until_ended
from podium.address import Address
from podium.errors import AgentAsleep, HostDied, PodiumError
from podium.tasks import BackgroundTasks
from podium.turn.journal.ledger import Offer
from podium.turn.stream import TERMINAL_FRAMES
from podium.turn.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from chronicle.ids import MessageId
    from podium.turn.stream import Frame

__all__ = ["DELIVERIES", "DeliveryChannel", "DeliveryServer", "Notice", "WayLost"]

DELIVERIES: Final = "hosts"
"""Directory below the home's ``run_dir`` with one socket per host."""
_WINDOW: Final = 4
"""Limit of unacknowledged batches per delivery."""
_NO_DELIVERY: Final = 0
"""The number of what is about no delivery."""
_BACKLOG: Final = 64
"""Backlog of connections while the agent's code blocks the event loop; each edge has one."""

_log = structlog.stdlib.get_logger("coordinator.host.delivery")


class WayLost(HostDied):
    """The connection to a host on another machine has ended, or cannot be made: the host may be alive."""


@dataclass(frozen=True, slots=True)
class Notice:
    """The begin or the end of an activation of an agent on a host."""

    address: Address
    epoch: int
    """Of its lease."""
    turn: int | None
    """Turns committed when it began; ``None`` if it has ended."""
    config: str | None = None
    """The configuration that the agent has, as canonical JSON, at the begin."""


class DeliveryServer:
    """The host's end of deliveries.

    Args:
        deliver: yields the frames of an agent's message in batches, up to the terminal one; it gets the message's
            position in the inbox, if that is known, and the message, if it was admitted a moment ago. It is closed
            when the reader disconnects.
    """

    def __init__(
        self,
        deliver: Callable[[Address, MessageId, int | None, Offer | None], AsyncGenerator[list[Frame], None]],
    ) -> None:
        self._deliver = deliver
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._connections: set[BatchedWriter] = set()
        self._serving = BackgroundTasks()

    async def start(self, path: Path, group: int | None = None) -> None:
        """Listen at a path, unless it listens already. The caller removes the socket at the end.

        Args:
            group: of other users that may connect.

        Raises:
            OSError: the socket cannot be created.
        """
        async with self._starting:
            if self._server is None:  # not in the context of the caller: its tasks serve all agents
                await asyncio.get_running_loop().create_task(self._start(path, group), context=Context())

    async def _start(self, path: Path, group: int | None) -> None:
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, path=str(path), backlog=_BACKLOG)
        if group is not None:  # else its directory lets nobody else in
            let_group_connect(path, group)

    def close(self) -> None:
        """Accept no further connections; running deliveries continue."""
        if self._server is not None:
            self._server.close()

    def tell(self, notice: Notice) -> None:
        """Tell the edges of the begin or the end of an activation."""
        about = {"agent": str(notice.address), "epoch": notice.epoch, "turn": notice.turn, "config": notice.config}
        for connection in self._connections:
            connection.write(pack({"id": _NO_DELIVERY, **about}))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, and close it at the end: also if code of an agent cancels the task before it begins."""
        answers = BatchedWriter(writer)
        serving = self._serving.start(self._serve(reader, answers), "deliveries")
        serving.add_done_callback(lambda _: answers.close())

    async def _serve(self, reader: asyncio.StreamReader, answers: BatchedWriter) -> None:
        tasks = BackgroundTasks()
        running: dict[int, tuple[asyncio.Task[None], asyncio.Semaphore]] = {}
        self._connections.add(answers)
        try:
            while (request := await _receive(reader)) is not None:
                number = request["id"]
                if "malformed" in request:
                    answers.write(pack(_error(number, InvalidInput(request["malformed"]))))
                elif "message_id" in request:
                    window = asyncio.Semaphore(_WINDOW)
                    delivering = self._send(request, window, answers)
                    task = tasks.start(delivering, "delivery")
                    running[number] = task, window
                    task.add_done_callback(lambda _, number=number: running.pop(number, None))  # type: ignore[misc]
                elif number in running:
                    task, window = running[number]
                    window.release() if "taken" in request else task.cancel()
        finally:
            tasks.cancel()
            self._connections.discard(answers)

    async def _send(self, request: dict[str, Any], window: asyncio.Semaphore, writer: BatchedWriter) -> None:
        number = request["id"]
        try:
            address, offer = Address.parse(request["agent"]), _from_wire(request)
            frames = self._deliver(address, request["message_id"], request["position"], offer)
            async with aclosing(frames) as batches:
                async for batch in batches:
                    await window.acquire()
                    writer.write(pack({"id": number, "frames": batch}))
                    with suppress(ConnectionError):  # `_serve` ends with the connection, and cancels this task
                        await writer.drain()
        except Exception as error:  # noqa: BLE001  raised again at the edge
            writer.write(pack(_error(number, error)))


@dataclass(slots=True, eq=False)
class _Delivery:
    """A running delivery at the edge."""

    address: Address
    aborted: bool = False
    """Whether answers that have come are to be dropped."""
    _answers: deque[dict[str, Any] | None] = field(default_factory=deque)
    """The host's answers; ``None`` at the end of the connection."""
    _ready: Wakeup = field(default_factory=Wakeup)

    def add(self, answer: dict[str, Any] | None) -> None:
        """Add an answer, or ``None`` if none comes any more."""
        self._answers.append(answer)
        self._ready.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for an answer, or for the end; return whether there is one."""
        while not self._answers:
            if not await self._ready.wait(timeout_s):
                return False
        return True

    def next_answer(self) -> dict[str, Any] | None:
        """Return the next answer; ``None`` if none comes any more. Call it after `wait`."""
        answer = self._answers.popleft()
        return None if self.aborted else answer


class DeliveryChannel:
    """The edge's end of deliveries: one connection to a host, for all of its agents, opened with the first delivery.

    Args:
        path: the host's socket.
        on_end: called when a connection has ended, such as with the host.
        on_notice: called when an agent's activation begins or has ended.
        through: opens a connection to the host, if it is on another machine; raises `FileNotFoundError` if it has ended
            there, and another `OSError` or `TimeoutError` if that is not known.
    """

    def __init__(
        self,
        path: Path,
        on_end: Callable[[], None] = lambda: None,
        on_notice: Callable[[Notice], None] = lambda _: None,
        through: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] | None = None,
    ) -> None:
        self._path = path
        self._through = through
        self._on_end = on_end
        self._on_notice = on_notice
        self._numbers = itertools.count(_NO_DELIVERY + 1)
        self._deliveries: dict[int, _Delivery] = {}
        self._connecting = asyncio.Lock()
        self._writer: BatchedWriter | None = None
        self._tasks = BackgroundTasks()
        self._lost = False
        self._dead = asyncio.Event()
        """Set when the host is known to be lost, so that nothing of it is to be believed."""
        self.closing = False
        """Whether `close` was called."""

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return self._writer is not None and not self._lost

    @property
    def is_over(self) -> bool:
        """Whether there can be no further deliveries: `close` was called, or the connection has ended."""
        return self.closing or self._lost

    async def deliver(
        self,
        address: Address,
        message_id: MessageId,
        position: int | None = None,
        offer: Offer | None = None,
        *,
        tick_s: float | None = None,
    ) -> AsyncGenerator[list[Frame], None]:
        """Yield the frames of an agent's message in batches, up to its terminal frame.

        Args:
            position: of the message in the inbox, if known.
            offer: the message, if it was admitted a moment ago.
            tick_s: yield an empty batch after each interval without frames, in seconds; ``None``: yield none.

        Raises:
            AgentAsleep: the activation is ending, or the host has ended; deliver to the next activation.
            HostDied: the host ended during the delivery.
            WayLost: the connection to another machine did, or cannot be made.
            PodiumError, ChronicleError: the host cannot be reached, or cannot determine the outcome of the message.
        """
        writer = await self._connected()
        number = next(self._numbers)
        delivery = self._deliveries[number] = _Delivery(address)
        ended = False
        try:
            about = {"agent": str(address), "message_id": message_id, "position": position}
            writer.write(pack({"id": number, **about, "offer": _to_wire(offer)}))
            while not ended:
                if not await delivery.wait(tick_s):
                    yield []
                    continue
                answer = delivery.next_answer()
                ended = answer is None or "error" in answer or answer["frames"][-1]["type"] in TERMINAL_FRAMES
                if answer is None and (self._through is None or self._dead.is_set() or delivery.aborted):
                    raise HostDied(f"host {self._path.name} closed its connection")
                if answer is None:
                    raise WayLost(f"the connection to host {self._path.name} has ended")
                if "error" in answer:
                    raise error_from_wire(answer["error"], PodiumError)
                yield answer["frames"]
                if not ended:
                    writer.write(pack({"id": number, "taken": True}))
        finally:
            del self._deliveries[number]
            if (not ended or delivery.aborted) and not self._lost:
                writer.write(pack({"id": number, "end": True}))
            self._close_if_unused()

    def close(self) -> None:
        """Close the connection after the running deliveries."""
        self.closing = True
        self._close_if_unused()

    def abort(self, address: Address) -> None:
        """End the deliveries of an agent at once: they raise `HostDied`. For an agent that another host has."""
        for delivery in self._deliveries.values():
            if delivery.address == address:
                delivery.aborted = True
                delivery.add(None)

    def cut(self) -> None:
        """End all deliveries at once, and the connection: they raise `HostDied`. For a host that is lost."""
        self._dead.set()
        self._lost = True
        for delivery in self._deliveries.values():
            delivery.aborted = True
            delivery.add(None)
        self._tasks.cancel()
        if self._writer is not None:
            self._writer.close()

    async def _connected(self) -> BatchedWriter:
        async with self._connecting:
            if self._writer is None and not self._lost:
                reader, writer = await until_ended(self._open(), self._dead)
                self._writer = BatchedWriter(writer)
                listening = self._listen(reader, self._writer)
                _ = self._tasks.start(listening, "frames")
        if self._writer is None or self._lost:
            if self._writer is not None:
                self._writer.close()
            raise AgentAsleep(f"host {self._path.name} is gone")
        return self._writer

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._through is not None:
            try:
                return await self._through()
            except FileNotFoundError as error:
                raise AgentAsleep(f"host {self._path.name} is gone") from error
            except (OSError, TimeoutError) as error:
                why = str(error) or "it does not answer"
                raise WayLost(f"the machine of host {self._path.name} cannot be reached: {why}") from error
        try:
            return await asyncio.open_unix_connection(str(self._path))
        except (FileNotFoundError, ConnectionError) as error:
            raise AgentAsleep(f"host {self._path.name} is gone") from error
        except OSError as error:  # of this process, such as too many open files: no reason to replace the host
            raise PodiumError(f"host {self._path.name} cannot be reached: {error}") from error

    async def _listen(self, reader: asyncio.StreamReader, writer: BatchedWriter) -> None:
        """Dispatch the host's answers to the deliveries, until the connection ends; then close this end of it."""
        try:
            while (answer := await _receive(reader)) is not None:
                delivery = self._deliveries.get(answer["id"])
                if "malformed" in answer:
                    if delivery is not None:
                        unreadable = PodiumError(f"the host's answer cannot be read: {answer['malformed']}")
                        delivery.add(_error(answer["id"], unreadable))
                elif answer["id"] == _NO_DELIVERY:
                    address = Address.parse(answer["agent"])
                    self._on_notice(Notice(address, answer["epoch"], answer["turn"], answer["config"]))
                elif delivery is not None:
                    delivery.add(answer)
        finally:
            self._lost = True
            writer.close()  # also without a running delivery: the agent may have fallen asleep
            for delivery in self._deliveries.values():
                delivery.add(None)
            self._on_end()

    def _close_if_unused(self) -> None:
        if self.closing and not self._deliveries and self._writer is not None:
            self._lost = True
            self._tasks.cancel()
            self._writer.close()


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read the next object; ``None`` at the end of the connection, or if the object is malformed and has no id.

    Of a malformed one that has an id, it returns the id, and why it is ``malformed``.
    """
    try:
        data = await read_packet(reader)
    except PacketTooLong as error:
        _log.warning("delivery_malformed", error=str(error))
        return None
    if data is None:
        return None
    try:
        message: Any = from_json(data)
    except InvalidInput as error:
        _log.warning("delivery_malformed", error=str(error))
        number = id_of(data)
        return {"id": number, "malformed": str(error)} if number is not None else None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int):
        _log.warning("delivery_malformed", error="not an object with an id")
        return None
    return message


def _to_wire(offer: Offer | None) -> dict[str, Any] | None:
    """Return an offered message, except what its delivery has anyway."""
    if offer is None:
        return None
    message = offer.message
    assert message.body is not None, "it is pending"
    return {
        "epoch": offer.epoch,
        "session_id": message.session_id,
        "key": message.idempotency_key,
        "sender": message.sender,
        "body": message.body.decode(),
        "admitted_ms": message.admitted_ms,
        "headers": message.headers,
    }


def _from_wire(request: dict[str, Any]) -> Offer | None:
    sent = request["offer"]
    if sent is None:
        return None
    message = InboxMessage(
        sent["session_id"],
        request["position"],
        request["message_id"],
        sent["key"],
        sent["sender"],
        sent["body"].encode(),
        sent["admitted_ms"],
        0,
        MessageStatus.PENDING,
        sent["headers"],
    )
    return Offer(message, sent["epoch"])


def _error(number: int, error: Exception) -> dict[str, Any]:
    return {"id": number, "error": error_to_wire(error, PodiumError)}
