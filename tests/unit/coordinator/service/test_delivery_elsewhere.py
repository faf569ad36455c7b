"""Deliveries of the service to hosts on another machine: through its door, which may close and open again."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.door import Door, DoorOptions, listening, piped_to
from coordinator.fleet.model import Code, Route
from coordinator.fleet.nodes.machines import Machine
from coordinator.home import Home
from coordinator.host.delivery import DELIVERIES, DeliveryServer
from coordinator.ray.route_cache import RouteCache
from coordinator.ray.router import Router
from coordinator.service.message_delivery import MessageDelivery
from coordinator.settings import Settings
from coordinator.store.links import StoreAccess
from podium.address import Address
from podium.errors import AgentAsleep
from podium.turn.stream import StreamHub
from tests.unit.coordinator.service.test_message_delivery import SILENCE_S, _message
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from pathlib import Path

    from coordinator.door import Serve
    from podium.turn.stream import Frame

DEADLINE_S = 30
ALICE, CODE = Address("greeter", "alice"), Code("greeter.py", "Greeter", "greeter")
FAR, NEAR = Route("host_far", 1, 0, machine="gpu-7"), Route("host_near", 2, 0)
START: Frame = {"type": "turn_start", "turn": 1, "attempt": 1, "event_id": "ev_1"}
END: Frame = {"type": "turn_end", "turn": 1}


class Elsewhere(Router):
    """A router whose coordinator answers what it is given, and whose hosts live unless they are said to be dead."""

    def __init__(self, home: Home) -> None:
        super().__init__(home, Settings())
        self.door: Door | None = None
        self.dead: set[str] = set()
        self.woken: deque[Route] = deque()
        self.probed = 0
        self.routes = RouteCache(home.run_dir / DELIVERIES, find_machine=self._machine)

    def _machine(self, hostname: str) -> Machine | None:
        if self.door is None:
            return None
        paths: dict[str, Any] = dict.fromkeys(("home", "home_identity", "run_dir", "models", "logs", "workspaces"), "")
        return Machine(hostname, "1", self.door, StoreAccess("", ""), **paths, presentation="dir", fuse_transport="raw")

    async def wake(self, address: Address, code: Code, lost: Route | None, *, may_be_early: bool) -> Route:
        return self.woken.popleft() if len(self.woken) > 1 else self.woken[0]

    async def probe_host(self, route: Route) -> None:
        self.probed += 1
        if route.host_id in self.dead:
            raise AgentAsleep("Ray says so")


class Fleet:
    """A host here and one elsewhere, which tell what is published."""

    def __init__(self, home: Home) -> None:
        self.sockets = home.make_run_dir() / DELIVERIES
        self.sockets.mkdir()
        self.router = Elsewhere(home)
        self.hubs = {route.host_id: StreamHub() for route in (FAR, NEAR)}
        self.servers = {host_id: DeliveryServer(self._deliver_of(hub)) for host_id, hub in self.hubs.items()}

    def _deliver_of(self, hub: StreamHub) -> Any:
        async def deliver(address: Address, message_id: str, *_: object) -> AsyncGenerator[list[Frame], None]:
            with hub.subscribe(message_id) as subscription:
                async for batch in subscription.batches():
                    yield batch

        return deliver

    @contextlib.asynccontextmanager
    async def door(self) -> AsyncIterator[None]:
        """Have the machine's door open."""

        async def find(asked: Mapping[str, Any]) -> Serve:
            return await piped_to(self.sockets / asked["host"])

        async with listening(DoorOptions(("127.0.0.1", 0)), "secret", find) as door:
            self.router.door = door
            yield

    def tell(self, route: Route, *frames: Frame) -> None:
        for frame in frames:
            self.hubs[route.host_id].publish("msg_1", frame)

    def delivered(self) -> AsyncGenerator[list[Frame], None]:
        return MessageDelivery(self.router, SILENCE_S).deliver(ALICE, CODE, _message("msg_1"))


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    home = Home(tmp_path / "home").create()
    fleet = Fleet(home)
    for host_id, server in fleet.servers.items():
        await server.start(fleet.sockets / host_id)
    async with asyncio.timeout(DEADLINE_S):
        yield fleet
        for server in fleet.servers.values():
            server.close()
        for route in (FAR, NEAR):
            fleet.router.routes.lose(route.host_id)
        await until(lambda: not any("_serve" in repr(task) for task in asyncio.all_tasks()))
    home.remove_run_dir()


def text_of(frames: list[Frame]) -> str:
    return "".join(frame["delta"] for frame in frames if frame["type"] == "message_update")


def update(text: str) -> Frame:
    return {"type": "message_update", "reply_id": "r1", "delta": text}


@pytest.mark.usefixtures("caplog")
async def test_a_stream_goes_on_where_it_was_when_the_door_was_closed_for_a_while(fleet: Fleet) -> None:
    fleet.router.woken.append(FAR)
    found: list[Frame] = []
    async with aclosing(fleet.delivered()) as batches:
        async with fleet.door():
            fleet.tell(FAR, START, {"type": "message_start", "reply_id": "r1"}, update("a"))
            while text_of(found) != "a":
                found += await anext(batches)
        fleet.tell(FAR, update("b"))
        waiting = asyncio.ensure_future(anext(batches))
        await until(lambda: fleet.router.probed > 2)
        async with fleet.door():
            found += await waiting
            fleet.tell(FAR, update("c"), {"type": "message_end", "reply_id": "r1", "text": "abc"}, END)
            found += [frame for batch in [each async for each in batches] for frame in batch]
    kinds = [frame["type"] for frame in found]
    assert text_of(found) == "abc"
    assert kinds.count("turn_start") == kinds.count("message_start") == kinds.count("agent_start") == 1
    assert kinds[-2:] == ["message_end", "turn_end"]


@pytest.mark.usefixtures("caplog")
async def test_nothing_of_a_host_that_was_lost_with_its_node_reaches_a_client(fleet: Fleet) -> None:
    fleet.router.woken.extend([FAR, NEAR])
    found: list[Frame] = []
    async with fleet.door(), aclosing(fleet.delivered()) as batches:
        fleet.tell(FAR, START, update("a"))
        while text_of(found) != "a":
            found += await anext(batches)
        fleet.tell(FAR, update(" stale"))  # the cable is whole again, and the node is not used any more
        [delivery] = fleet.router.routes._channels[FAR.host_id]._deliveries.values()
        await until(lambda: delivery._answers, "it does not come")
        fleet.router.routes.lose(FAR.host_id)
        fleet.tell(NEAR, {**START, "event_id": "ev_2", "attempt": 2}, update("new"))
        rest = await anext(batches)
        while text_of(rest) != "new":
            rest += await anext(batches)
        fleet.tell(NEAR, END)
        rest += [frame for batch in [each async for each in batches] for frame in batch]
    assert "stale" not in text_of(found + rest)
    assert fleet.router.probed == 0, "nobody has to be asked"


async def test_a_host_that_has_ended_behind_its_door_is_replaced_without_a_probe(fleet: Fleet) -> None:
    fleet.router.woken.extend([Route("host_gone", 1, 0, machine="gpu-7"), NEAR])
    fleet.tell(NEAR, START)
    async with fleet.door(), aclosing(fleet.delivered()) as batches:
        fleet.tell(NEAR, START)
        kinds: list[str] = []
        while "turn_start" not in kinds:
            kinds += [frame["type"] for frame in await anext(batches)]
    assert fleet.router.probed == 0


@pytest.mark.usefixtures("caplog")
async def test_a_host_on_a_machine_that_is_gone_is_replaced_when_ray_says_so(fleet: Fleet) -> None:
    fleet.router.woken.extend([FAR, NEAR])
    fleet.router.dead.add(FAR.host_id)
    fleet.tell(NEAR, START)
    async with aclosing(fleet.delivered()) as batches:  # no door is told of
        kinds: list[str] = []
        while "turn_start" not in kinds:
            kinds += [frame["type"] for frame in await anext(batches)]
    assert fleet.router.probed == 1


@pytest.mark.usefixtures("caplog")
async def test_an_attempt_to_reach_a_machine_ends_when_ray_takes_it_for_dead(fleet: Fleet) -> None:
    """As through a cut cable, where nothing is answered for seconds."""
    held: list[asyncio.StreamWriter] = []

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    fleet.router.woken.extend([FAR, NEAR])
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server, aclosing(fleet.delivered()) as batches:
        fleet.router.door = Door("127.0.0.1", server.sockets[0].getsockname()[1], "secret")
        fleet.tell(NEAR, START)
        assert (await anext(batches))[0]["type"] == "agent_start"
        waiting = asyncio.ensure_future(anext(batches))
        await until(lambda: held)
        fleet.router.routes.lose(FAR.host_id)
        kinds = [frame["type"] for frame in await waiting]
        while "turn_start" not in kinds:
            kinds += [frame["type"] for frame in await anext(batches)]
        held[0].close()
    assert fleet.router.probed == 0
