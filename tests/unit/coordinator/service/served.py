"""A home whose service is the test itself, with agents that do what the test says."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from coordinator.registry.known_agents import KnownAgents
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.service.client import AgentRef, ServiceClient
from coordinator.service.protocol import TERMINAL_FRAMES
from coordinator.service.server import ServiceServer
from coordinator.settings import Settings
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from coordinator.client_messages import Admitted
    from coordinator.fleet.model import Code
    from coordinator.home import Home
    from coordinator.ray.router import Router
    from podium.turn.journal.ledger import Offer
    from podium.turn.stream import Frame

AGENT = AgentRef("/agents/hello.py", "Hello", "hello")
HELLO = Registry([RegisteredAgent("hello", AGENT.file, AGENT.class_name)])
DEADLINE_S = 60


class Agents:
    """A router: its agents say what is put into `said`, by message; an exception there is the failure of a wake."""

    notice = None

    def __init__(self) -> None:
        self.said: defaultdict[str, asyncio.Queue[Frame | Exception]] = defaultdict(asyncio.Queue)
        self.delivered: list[tuple[Address, Code, str]] = []
        self.offers: list[Offer | None] = []
        self.prepared: list[Code] = []
        self.epochs: dict[Address, int] = {}
        self.known = KnownAgents()
        self.told: list[KnownAgents] = []
        self.reloads = 0
        self.broken: dict[str, str] = {}

    async def prepare(self, address: Address, code: Code) -> None:
        self.prepared.append(code)

    def epoch_of(self, address: Address) -> int | None:
        return self.epochs.get(address)

    async def know(self, known: KnownAgents) -> None:
        self.told.append(known)

    async def reload(self) -> list[Address]:
        self.reloads += 1
        return [Address("hello", "awake")]

    def leave(self) -> None:
        """What waits to be woken is told by `said`."""

    async def problems(self) -> dict[str, str]:
        return self.broken

    async def deliver(self, address: Address, code: Code, message: Admitted) -> AsyncGenerator[list[Frame], None]:
        self.delivered.append((address, code, message.message_id))
        self.offers.append(message.offer)
        while True:
            said = await self.said[message.message_id].get()
            if isinstance(said, Exception):
                raise said
            yield [{"message_id": message.message_id, **said}]
            if said["type"] in TERMINAL_FRAMES:
                return

    def say(self, message_id: str, *frames: dict[str, Any] | Exception) -> None:
        for frame in frames:
            self.said[message_id].put_nowait(frame)


@asynccontextmanager
async def serving(home: Home, agents: Agents, *, awaits_registration: bool = False) -> AsyncIterator[ServiceServer]:
    """Serve a home as its service does."""
    router = cast("Router", agents)
    server = ServiceServer(home, Settings(), router, agents.deliver, awaits_registration=awaits_registration)
    async with asyncio.timeout(DEADLINE_S), server.listening():
        yield server


@asynccontextmanager
async def client_of(home: Home) -> AsyncIterator[ServiceClient]:
    """A client of the service."""
    client = ServiceClient(*await asyncio.open_unix_connection(home.socket_path))
    try:
        yield client
    finally:
        await client.close()
