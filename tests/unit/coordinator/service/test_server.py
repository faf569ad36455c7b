"""The service's socket: in which order what a client sends is admitted, and what it is told if it cannot be."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from coordinator.channel import MAX_PACKET, from_json, pack, read_packet
from coordinator.ray.router import Router
from coordinator.registry.known_agents import KnownAgents
from coordinator.service.client import AgentRef, ServiceClient, ServiceRefused
from coordinator.service.connecting import connect
from coordinator.service.server import ServiceServer
from coordinator.settings import Settings
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from coordinator.client_messages import Admitted
    from coordinator.fleet.model import Code
    from coordinator.home import Home
    from podium.address import Address
    from podium.turn.stream import Frame

AGENT = AgentRef("/agents/hello.py", "Hello", "hello")
DEADLINE_S = 60


class Answering:
    """A router whose agents answer at once."""

    notice = None
    known = KnownAgents()

    async def prepare(self, address: Address, code: Code) -> None:
        await asyncio.sleep(0)

    def epoch_of(self, address: Address) -> None:
        """No agent is awake."""

    async def know(self, known: KnownAgents) -> None:
        await asyncio.sleep(0)

    async def deliver(self, address: Address, code: Code, message: Admitted) -> AsyncGenerator[list[Frame], None]:
        yield [{"type": "turn_end", "message_id": message.message_id}]


class Silent:
    """A coordinator that never answers."""

    prepare = know = remote = property(lambda self: self)

    def __call__(self, *_: object) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


def server_of(home: Home, agents: Answering, router: Router | None = None) -> ServiceServer:
    return ServiceServer(home, Settings(), router or cast("Router", agents), agents.deliver)


@asynccontextmanager
async def client_of(home: Home, agents: Answering, router: Router | None = None) -> AsyncIterator[ServiceClient]:
    async with asyncio.timeout(DEADLINE_S), server_of(home, agents, router).listening():
        client = ServiceClient(*await asyncio.open_unix_connection(home.socket_path))
        try:
            yield client
        finally:
            await client.close()


async def sent(client: ServiceClient, key: str, text: str) -> list[Any]:
    return [frame["type"] async for frame in client.send(AGENT, key, {"text": text})]


class SlowForTheFirst(Answering):
    """Prepares the first message to an agent once another agent has one: the next ones have the time to pass it."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.another = asyncio.Event()

    async def prepare(self, address: Address, code: Code) -> None:
        self.prepared.append(address.key)
        if address.key == "a" and self.prepared.count("a") == 1:
            await self.another.wait()

    async def deliver(self, address: Address, code: Code, message: Admitted) -> AsyncGenerator[list[Frame], None]:
        if address.key == "b":
            self.another.set()
        yield [{"type": "turn_end", "message_id": message.message_id}]


async def test_what_a_client_sends_to_an_agent_is_admitted_in_that_order(home: Home) -> None:
    router = SlowForTheFirst()
    async with client_of(home, router) as client, asyncio.TaskGroup() as tasks:
        for key, text in (("a", "one"), ("a", "two"), ("a", "three"), ("b", "other")):
            tasks.create_task(sent(client, key, text))
    with closing(home.journal()) as journal:
        (session,) = journal.sessions("hello/a")
        inbox = [message.body for message in journal.pending(session.session_id)]
    assert inbox == [b'{"text":"one"}', b'{"text":"two"}', b'{"text":"three"}']
    assert router.prepared == ["a", "b", "a", "a"], "messages to another agent do not wait"


async def test_a_message_that_was_not_admitted_is_not_said_to_be(home: Home) -> None:
    router = Router(home, Settings(wake_timeout_s=0.05))
    router._coordinator = Silent()
    async with client_of(home, Answering(), router) as client:
        with pytest.raises(ServiceRefused, match=r"not answered for 0\.05 s; nothing was done: try again"):
            await sent(client, "a", "one")
    with closing(home.journal()) as journal:
        assert journal.sessions() == []


class Starting:
    """A process of a service that is on its way."""

    def __init__(self, commands: list[list[str]], command: list[str], **_: object) -> None:
        commands.append(command)

    def poll(self) -> int | None:
        return None


async def test_of_several_clients_one_starts_the_service(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr("coordinator.service.connecting.subprocess.Popen", partial(Starting, commands))
    waiting: list[str] = []
    served = asyncio.Event()

    async def attach(name: str) -> None:
        async with connect(home, lambda _: waiting.append(name), lambda _: None):
            pass

    async def serve() -> None:
        await until(lambda: set(waiting) == {"a", "b", "c", "d"})
        async with server_of(home, Answering()).listening():
            await served.wait()

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        server = tasks.create_task(serve())
        async with asyncio.TaskGroup() as clients:
            for name in "abcd":
                clients.create_task(attach(name))
        served.set()
        await server
    assert len(commands) == 1


def test_a_client_that_starts_a_service_and_dies_lets_another_one(home: Home) -> None:
    first = home.start_alone()
    assert first is not None
    assert home.start_alone() is None
    first.close()
    second = home.start_alone()
    assert second is not None
    second.close()


def framed(data: bytes) -> bytes:
    """Any bytes as a packet."""
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "value", ["9" * 5000, "[" * 199 + "]" * 199, "[" * 2000 + "]" * 2000, "NaN", "1e999", '"\\ud800"', "{"]
)
async def test_a_packet_that_cannot_be_used_costs_its_own_request_only(home: Home, value: str) -> None:
    message = f'"agent":"hello/a","message":{{"n":{value}}}'.encode()
    async with asyncio.timeout(DEADLINE_S), server_of(home, Answering()).listening():
        reader, writer = await asyncio.open_unix_connection(home.socket_path)
        for line in (b'{"id":1,"op":"admit",' + message + b"}", b'{"id":2,"op":"ping"}', b"{", b'{"id":3,"op":"ping"}'):
            writer.write(framed(line))
        answers = {}
        for _ in range(4):
            answer = from_json(await read_packet(reader) or b"")
            answers[answer["id"]] = answer
        writer.close()
    assert answers[1]["error"]["type"] == answers[None]["error"]["type"] == "InvalidInput"
    assert answers[2]["result"] == answers[3]["result"] == {}


class Unreadable(Answering):
    """A router whose agents emit what a line cannot carry."""

    async def deliver(self, address: Address, code: Code, message: Admitted) -> AsyncGenerator[list[Frame], None]:
        text = "x" * MAX_PACKET if address.key == "long" else ""
        yield [{"type": "turn_end", "message_id": message.message_id, "data": text}]


async def test_an_answer_that_is_too_long_costs_its_own_request_only(home: Home) -> None:
    async with client_of(home, Unreadable()) as client:
        with pytest.raises(ServiceRefused, match="at most 67108864"):
            await sent(client, "long", "one")
        assert await sent(client, "short", "two") == ["accepted", "turn_end"]


async def test_an_answer_that_cannot_be_read_costs_its_own_request_only(tmp_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await read_packet(reader):
            request = from_json(data)
            broken = {"poke": [b'{"id":%d,"result":{"looks":NaN}}' % request["id"]], "ping": [b"{}", b"[]", b"{"]}
            for each in broken.get(request["op"], []):
                writer.write(framed(each))
            writer.write(pack({"id": request["id"], "result": {"pid": 7}}))
        writer.close()

    server = await asyncio.start_unix_server(babble, path=str(tmp_path / "service"))
    client = ServiceClient(*await asyncio.open_unix_connection(tmp_path / "service"))
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ServiceRefused, match="cannot be read"):
            await client.poke("hello/a")
        assert await client.status() == {"pid": 7}
        assert not client.is_lost
        await client.close()
    server.close()
