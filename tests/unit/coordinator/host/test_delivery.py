"""Deliveries over a host's socket: frames in order, errors as they were, and ends of either side."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import struct
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.errors import NotFound
from chronicle.ids import IdSource, MessageId
from chronicle.journal.memory import MemoryJournalStore
from coordinator.client_messages import Admission, Admitted, Arrival
from coordinator.host.delivery import DeliveryChannel, DeliveryServer, Notice
from coordinator.host.loop_watch import RUNNING_AGENT
from podium.address import Address
from podium.errors import AgentAsleep, HostDied, PodiumError
from podium.turn.busy import BusyPolicy
from podium.turn.journal.ledger import Offer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from podium.turn.stream import Frame

DEADLINE_S = 30


class UsersError(PodiumError):
    """An error of a class that a user derived from ours, which may not exist at the edge."""


ALICE, BOB = Address("greeter", "alice"), Address("greeter", "bob", "acme")
END: Frame = {"type": "turn_end", "turn": 1}


class Host:
    """Yields a frame for each permission, up to the terminal one; or raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pulled: dict[str, int] = {}
        self.ended: set[str] = set()
        self.receivers: dict[str, Address] = {}
        self.positions: dict[str, int | None] = {}
        self.offers: list[Offer | None] = []
        self.go_on = asyncio.Event()
        self.raises: Exception | None = None
        self.frames = 2
        self.server = DeliveryServer(self._deliver)

    async def start(self) -> DeliveryChannel:
        await self.server.start(self.path)
        return DeliveryChannel(self.path)

    async def closed(self, channel: DeliveryChannel) -> None:
        """Close both ends, and wait until the host has noticed that its peer is gone."""
        self.server.close()
        channel.close()
        await _until(lambda: not any("_serve" in repr(task) for task in asyncio.all_tasks()))

    async def _deliver(
        self, address: Address, message_id: MessageId, position: int | None, offer: Offer | None
    ) -> AsyncGenerator[list[Frame], None]:
        self.receivers[message_id] = address
        self.positions[message_id] = position
        self.offers.append(offer)
        try:
            if self.raises is not None:
                raise self.raises
            for number in range(self.frames):
                self.pulled[message_id] = number + 1
                yield [{"type": "message_update", "delta": f"{message_id}{number}"}]
            await self.go_on.wait()
            yield [END]
        finally:
            self.ended.add(message_id)


async def _all(channel: DeliveryChannel, name: str, address: Address = ALICE) -> list[Frame]:
    return [frame async for batch in channel.deliver(address, MessageId(name)) for frame in batch]


async def _until(true: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await asyncio.sleep(0.005)


async def test_deliveries_of_one_connection_do_not_mix(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    host.go_on.set()
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.gather(*(_all(channel, name) for name in "abc"))
    assert [[frame.get("delta") for frame in frames[:-1]] for frames in found] == [
        [f"{name}0", f"{name}1"] for name in "abc"
    ]
    assert all(frames[-1] == END for frames in found)
    await host.closed(channel)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (AgentAsleep("it is going to sleep"), AgentAsleep, "it is going to sleep"),
        (NotFound("no such message"), NotFound, "no such message"),
        (KeyError("x"), PodiumError, "KeyError: 'x'"),
        (ConnectionResetError("its store is gone"), PodiumError, "ConnectionResetError: its store is gone"),
        (UsersError("odd"), PodiumError, "UsersError: odd"),
    ],
)
async def test_errors_arrive_as_they_were(tmp_path: Path, raised: Exception, kind: type[Exception], text: str) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    host.raises = raised
    with pytest.raises(kind, match=text):
        await _all(channel, "a")
    await host.closed(channel)


async def test_a_host_that_is_gone_is_told_from_one_that_dies(tmp_path: Path) -> None:
    with pytest.raises(AgentAsleep):
        await _all(DeliveryChannel(tmp_path / "nobody"), "a")

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_unix_server(die, path=str(tmp_path / "dying"))
    channel = DeliveryChannel(tmp_path / "dying")
    with pytest.raises(HostDied):
        await _all(channel, "a")
    with pytest.raises(AgentAsleep):
        await _all(channel, "a")
    channel.close()
    server.close()


async def test_a_connection_that_its_host_ended_is_closed_without_a_delivery(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def sleep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack(">I", await reader.readexactly(4))
        number = json.loads(await reader.readexactly(length))["id"]
        answer = json.dumps({"id": number, "frames": [END]}).encode()
        writer.write(struct.pack(">I", len(answer)) + answer)
        writer.write_eof()
        assert await reader.read() == b""  # returns when the edge has closed its end
        ended.set()
        writer.close()

    server = await asyncio.start_unix_server(sleep, path=str(tmp_path / "host"))
    channel = DeliveryChannel(tmp_path / "host")
    assert await _all(channel, "a") == [END]
    async with asyncio.timeout(DEADLINE_S):
        await ended.wait()
    with pytest.raises(AgentAsleep):
        await _all(channel, "b")
    channel.close()
    server.close()


@pytest.mark.parametrize("sent", [b"{", b"[]", b"\xff", b'{"frames": []}'])
async def test_what_is_not_of_the_protocol_ends_the_connection(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    malformed = struct.pack(">I", len(sent)) + sent

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(malformed)
        await reader.read()  # until the edge has closed its end
        writer.close()

    server = await asyncio.start_unix_server(babble, path=str(tmp_path / "babbling"))
    channel = DeliveryChannel(tmp_path / "babbling")
    with pytest.raises(HostDied):
        await _all(channel, "a")
    channel.close()
    await _until(lambda: not any("babble" in repr(task) for task in asyncio.all_tasks()))
    server.close()

    host = Host(tmp_path / "host")
    channel = await host.start()
    reader, writer = await asyncio.open_unix_connection(str(host.path))
    writer.write(malformed)
    async with asyncio.timeout(DEADLINE_S):
        assert await reader.read() == b""
    writer.close()
    host.go_on.set()
    assert (await _all(channel, "a"))[-1] == END, "another connection goes on"
    await host.closed(channel)
    gc.collect()  # an exception that no caller retrieves is reported when its task goes
    assert not unhandled
    assert "delivery_malformed" in caplog.text


async def test_a_host_is_not_taken_for_gone_when_this_process_cannot_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()

    async def refuse(_: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "open_unix_connection", refuse)
        with pytest.raises(PodiumError, match="Too many open files") as refused:
            await _all(channel, "a")
    assert refused.type is PodiumError, "not `AgentAsleep`, for which the host would be ended"
    host.go_on.set()
    assert (await _all(channel, "a"))[-1] == END
    await host.closed(channel)


async def test_nothing_is_passed_on_of_an_agent_that_another_host_has(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    of_bob = asyncio.ensure_future(_all(channel, "b", BOB))
    frames = channel.deliver(ALICE, MessageId("a"))
    await anext(frames)
    await _until(lambda: host.pulled["a"] == 2)  # the second batch has been sent, and may have come
    channel.abort(ALICE)
    with pytest.raises(HostDied):
        await anext(frames)
    await _until(lambda: "a" in host.ended)
    host.go_on.set()
    async with asyncio.timeout(DEADLINE_S):
        assert (await of_bob)[-1] == END, "the host's other agents go on"
    assert host.receivers == {"a": ALICE, "b": BOB}
    await host.closed(channel)


async def test_a_slow_reader_delays_only_its_own_delivery(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    host.frames = 100
    host.go_on.set()
    async with asyncio.timeout(DEADLINE_S), aclosing(channel.deliver(ALICE, MessageId("slow"))) as slow:
        await anext(slow)
        assert len(await _all(channel, "quick")) == 101
        assert host.pulled["slow"] < 10
        assert len([batch async for batch in slow]) == 100
    await host.closed(channel)


async def test_a_reader_that_goes_ends_its_delivery(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    async with aclosing(channel.deliver(ALICE, MessageId("a"))) as frames:
        await anext(frames)
    await _until(lambda: "a" in host.ended)
    await host.closed(channel)


async def test_a_waiting_reader_gets_an_empty_batch_after_each_interval(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    batches: list[list[Frame]] = []
    async with asyncio.timeout(DEADLINE_S):
        async for batch in channel.deliver(ALICE, MessageId("a"), 7, tick_s=0.01):
            batches.append(batch)
            if batches.count([]) == 2:
                host.go_on.set()
    assert [frame for batch in batches for frame in batch][-1] == END
    assert batches.count([]) >= 2
    assert host.positions == {"a": 7}
    await host.closed(channel)


async def test_a_message_that_was_admitted_a_moment_ago_goes_along_as_it_is_in_the_inbox(tmp_path: Path) -> None:
    store, ids = MemoryJournalStore(), IdSource()
    admission = Admission(store, MemoryBlobStore(), ids, SystemClock(), inbox_limit=10)
    host = Host(tmp_path / "host")
    host.go_on.set()
    channel = await host.start()
    trace = "00-" + "1" * 32 + "-" + "2" * 16
    bodies = [encode({"text": text}) for text in ("naïve \0", "x" * 20_000, "y", "z")]
    arrivals = [
        Arrival(ALICE, bodies[0], "first", BusyPolicy.ENQUEUE, trace, 7),
        *(Arrival(ALICE, body, None, BusyPolicy.ENQUEUE, None, 8) for body in bodies[1:3]),
        Arrival(ALICE, bodies[3], None, BusyPolicy.ENQUEUE),
        Arrival(ALICE, bodies[0], "first", BusyPolicy.ENQUEUE, None, 7),
    ]
    messages = [message for message in admission.admit_many(arrivals) if isinstance(message, Admitted)]
    for message in messages:
        delivering = channel.deliver(ALICE, message.message_id, message.receipt.position, message.offer)
        assert [frame for batch in [batch async for batch in delivering] for frame in batch][-1] == END
    stored = store.pending(store.session(ALICE.name).session_id)
    assert host.offers == [message.offer for message in messages]
    assert host.offers == [Offer(stored[0], 7), None, Offer(stored[2], 8), None, None]
    await host.closed(channel)


async def test_text_and_numbers_that_not_every_encoder_writes_arrive_as_they_were(tmp_path: Path) -> None:
    odd: Frame = {"type": "turn_end", "turn": 1, "data": ["\ud800", 2**70, -(2**63), 0.1, {"é": None}]}

    async def deliver(*_: object) -> AsyncGenerator[list[Frame], None]:
        yield [odd]

    server = DeliveryServer(deliver)
    await server.start(tmp_path / "host")
    channel = DeliveryChannel(tmp_path / "host")
    assert await _all(channel, "a") == [odd]
    server.close()
    channel.close()
    await _until(lambda: not any("_serve" in repr(task) for task in asyncio.all_tasks()))


async def test_the_edge_is_told_of_the_begin_and_the_end_of_an_activation(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    await host.start()
    noticed: list[Notice] = []
    channel = DeliveryChannel(host.path, on_notice=noticed.append)
    host.go_on.set()
    assert (await _all(channel, "a", BOB))[-1] == END
    host.server.tell(begin := Notice(BOB, 3, 7, '{"a":1}'))
    host.server.tell(end := Notice(BOB, 3, None))
    assert (await _all(channel, "b"))[-1] == END, "the connection goes on"
    assert noticed == [begin, end]
    await host.closed(channel)


async def test_closing_lets_running_deliveries_end(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    running = asyncio.ensure_future(_all(channel, "a"))
    await _until(lambda: host.pulled.get("a") == 2)
    channel.close()
    host.go_on.set()
    async with asyncio.timeout(DEADLINE_S):
        assert (await running)[-1] == END
    await host.closed(channel)


async def test_deliveries_run_in_no_context_of_the_agent_that_was_activated_first(tmp_path: Path) -> None:
    seen: list[Address | None] = []

    async def deliver(*_: object) -> AsyncGenerator[list[Frame], None]:
        seen.append(RUNNING_AGENT.get())
        yield [END]

    server = DeliveryServer(deliver)
    RUNNING_AGENT.set(ALICE)
    await server.start(tmp_path / "host")
    channel = DeliveryChannel(tmp_path / "host")
    assert await _all(channel, "a", BOB) == [END]
    assert seen == [None]
    server.close()
    channel.close()
    await _until(lambda: not any("_serve" in repr(task) for task in asyncio.all_tasks()))


@pytest.mark.parametrize("begins", [True, False])
async def test_code_that_cancels_the_task_of_a_connection_ends_the_connection(tmp_path: Path, begins: bool) -> None:
    """As code of an agent does that cancels all tasks, perhaps in the moment in which an edge has connected."""
    host = Host(tmp_path / "host")
    channel = await host.start()
    before = asyncio.all_tasks()
    delivering = asyncio.ensure_future(_all(channel, "a"))

    def served() -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() - before if "._serve()" in repr(task)]

    async with asyncio.timeout(DEADLINE_S):
        while not served():  # in each iteration of the event loop
            await asyncio.sleep(0)
        if begins:
            await _until(lambda: host.pulled.get("a") == 2)
        for task in served():
            task.cancel()
        with pytest.raises(HostDied, match="closed its connection"):
            await delivering
    await host.closed(channel)


@pytest.mark.usefixtures("caplog")
async def test_an_object_that_cannot_be_read_ends_its_own_delivery_only(tmp_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            asked = json.loads(await reader.readexactly(length))
            last = b'"looks":1e999' if asked["message_id"] == "a" else b'"type":"turn_end"'
            for answer in (b'{"id":0,"turn":NaN}', b'{"id":%d,"frames":[{%b}]}' % (asked["id"], last)):
                writer.write(struct.pack(">I", len(answer)) + answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(babble, path=str(tmp_path / "babbling"))
    channel = DeliveryChannel(tmp_path / "babbling")
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(PodiumError, match="cannot be read"):
            await _all(channel, "a")
        assert await _all(channel, "b") == [{"type": "turn_end"}]
    channel.close()
    await _until(lambda: not any("babble" in repr(task) for task in asyncio.all_tasks()))
    server.close()

    host = Host(tmp_path / "host")
    channel = await host.start()
    reader, writer = await asyncio.open_unix_connection(str(host.path))
    for request in (b'{"id":7,"message_id":NaN}', b'{"id":8,"agent":5,"message_id":"m"}'):
        writer.write(struct.pack(">I", len(request)) + request)
    async with asyncio.timeout(DEADLINE_S):
        for number in (7, 8):
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            answer = json.loads(await reader.readexactly(length))
            assert answer["id"] == number
            assert "error" in answer
    writer.close()
    await host.closed(channel)
