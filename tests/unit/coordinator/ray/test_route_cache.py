"""What the service keeps of agents: a route and a connection while they are awake, and nothing of those that sleep."""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Self

import pytest

from chronicle.ids import MessageId
from coordinator.fleet.model import Route
from coordinator.host.delivery import DeliveryServer, Notice
from coordinator.ray.route_cache import RouteCache
from podium.address import Address
from podium.errors import AgentAsleep, HostDied
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from podium.turn.stream import Frame

ALICE = Address("greeter", "alice")
END = {"type": "turn_end", "turn": 1}


class Host:
    """Answers each message with the end of its turn, until it sleeps."""

    def __init__(self, sockets: Path, host_id: str) -> None:
        self.route = Route(host_id, 1, 0)
        self._path = sockets / host_id
        self._sleeps = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, path=str(self._path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sleep()
        self._server.close()

    def sleep(self) -> None:
        """End: no further connections, and none of the present ones."""
        self._path.unlink(missing_ok=True)
        self._sleeps.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def answer() -> None:
            while header := await reader.read(4):
                number = json.loads(await reader.readexactly(struct.unpack(">I", header)[0]))["id"]
                body = json.dumps({"id": number, "frames": [END]}).encode()
                writer.write(struct.pack(">I", len(body)) + body)

        answering = asyncio.ensure_future(answer())
        await self._sleeps.wait()
        answering.cancel()
        writer.close()


async def deliver(cache: RouteCache, address: Address, route: Route) -> None:
    with cache.in_use(address):
        cache.put(address, route)
        async with aclosing(cache.channel(address, route).deliver(address, MessageId("m"))) as batches:
            assert [batch async for batch in batches] == [[END]]


async def test_agents_that_sleep_are_forgotten(tmp_path: Path) -> None:
    cache = RouteCache(tmp_path)
    async with AsyncExitStack() as running:
        hosts = [await running.enter_async_context(Host(tmp_path, f"host_{number}")) for number in range(20)]
        for number, host in enumerate(hosts):
            await deliver(cache, Address("greeter", str(number)), host.route)
        assert len(cache) == 20
        assert cache.get(Address("greeter", "7")) == hosts[7].route, "its next message goes to its host at once"
        for host in hosts[:15]:
            host.sleep()
        await until(lambda: len(cache) <= 5)
        assert cache.get(Address("greeter", "19")) == hosts[19].route
    await until(lambda: len(cache) == 0)


async def test_a_route_without_a_host_is_forgotten_after_its_use(tmp_path: Path) -> None:
    cache = RouteCache(tmp_path)
    with pytest.raises(AgentAsleep):
        await deliver(cache, ALICE, Route("host_gone", 1, 0))
    with cache.in_use(ALICE):
        cache.put(ALICE, Route("host_of_a_client_that_left", 1, 0))
    assert len(cache) == 0


async def test_the_host_that_is_used_now_stays_when_an_earlier_one_ends(tmp_path: Path) -> None:
    cache = RouteCache(tmp_path)
    async with Host(tmp_path, "host_old") as old, Host(tmp_path, "host_new") as new:
        await deliver(cache, ALICE, old.route)
        new.route = Route("host_new", 2, 0)
        with cache.in_use(ALICE):
            stale = cache.channel(ALICE, old.route).deliver(ALICE, MessageId("m"))
            cache.put(ALICE, new.route)
            current = cache.channel(ALICE, new.route)
            assert [batch async for batch in current.deliver(ALICE, MessageId("m"))] == [[END]]
            with pytest.raises((HostDied, AgentAsleep)):
                await anext(stale)
            cache.drop(ALICE, old.route)
            old.sleep()
        assert cache.get(ALICE) == new.route
        assert cache.channel(ALICE, new.route) is current
    await until(lambda: len(cache) == 0)


async def test_the_epochs_of_an_agent_that_was_deleted_in_its_sleep_begin_anew(tmp_path: Path) -> None:
    async def answer(*_: object) -> AsyncGenerator[list[Frame], None]:
        yield [END]

    server, cache = DeliveryServer(answer), RouteCache(tmp_path)
    await server.start(tmp_path / "host_many")
    await deliver(cache, ALICE, Route("host_many", 5, 0))
    for other in (Notice(ALICE, 4, None), Notice(Address("greeter", "bob"), 5, None), Notice(ALICE, 5, None)):
        assert cache.get(ALICE) == Route("host_many", 5, 0)
        server.tell(other)
        await deliver(cache, Address("greeter", "carol"), Route("host_many", 1, 0))  # so the notice has come
    assert cache.get(ALICE) is None
    await deliver(cache, ALICE, Route("host_many", 1, 0))
    server.close()
    for address in (ALICE, Address("greeter", "carol")):
        cache.drop(address, Route("host_many", 1, 0))
    await until(lambda: not any("_serve" in repr(task) for task in asyncio.all_tasks()))


async def test_the_agents_of_a_host_share_its_connection(tmp_path: Path) -> None:
    cache = RouteCache(tmp_path)
    agents = [Address("greeter", str(number)) for number in range(3)]
    async with Host(tmp_path, "host_many") as many, Host(tmp_path, "host_other") as other:
        for address in agents:
            await deliver(cache, address, many.route)
        shared = cache.channel(agents[0], many.route)
        assert [cache.channel(address, many.route) for address in agents] == [shared] * 3
        other.route = Route("host_other", 2, 0)
        await deliver(cache, agents[0], other.route)
        with cache.in_use(agents[1]):
            cache.drop(agents[1], many.route)
        assert cache.get(agents[1]) is None
        await deliver(cache, agents[2], many.route)
        assert shared.connected, "for the agent that is left"
        assert cache.get(agents[0]) == other.route
        with cache.in_use(agents[2]):
            cache.drop(agents[2], many.route)
        await until(lambda: not shared.connected)
        assert len(cache) == 1
    await until(lambda: len(cache) == 0)


async def test_of_agents_of_a_shared_host_that_may_sleep_the_latest_are_kept(tmp_path: Path) -> None:
    cache = RouteCache(tmp_path, most_idle=3)
    agents = [Address("greeter", str(number)) for number in range(10)]
    async with Host(tmp_path, "host_many") as many:
        with cache.in_use(agents[0]):
            for address in agents:
                await deliver(cache, address, many.route)
            assert [address for address in agents if cache.get(address) is not None] == [agents[0], *agents[7:]]
            assert cache.channel(agents[0], many.route).connected
        assert [address for address in agents if cache.get(address) is not None] == [agents[0], *agents[8:]]
        await deliver(cache, agents[3], many.route)
        assert len(cache) == 3
    await until(lambda: len(cache) == 0)
