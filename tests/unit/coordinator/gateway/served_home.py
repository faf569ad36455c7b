"""A home whose agents run in the test's process, and a gateway over it: no Ray, no socket.

The journal and the blobs are the home's own, on disk. `HarnessFleet` stands for the home's service: it runs each agent
in an `AgentHarness`, which handles messages by the code of production.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from chronicle.clock import ManualClock
from coordinator.access.administration import KeyAdministration
from coordinator.access.audit import Audit
from coordinator.access.caller import OpenAccess
from coordinator.access.key_access import KeyAccess
from coordinator.gateway.app import create_app
from coordinator.home import Home
from coordinator.operations.agents import HomeAgents
from podium.address import Address
from podium.agent import BaseAgent
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.port import JournalStore
    from coordinator.access.key_store import KeyStore

__all__ = ["HarnessFleet", "ServedHome", "served_home"]


class HarnessFleet:
    """The agents of a home, each in a harness, behind the interface of a link to the home's service."""

    def __init__(self, home: Home, clock: ManualClock, *classes: type[BaseAgent]) -> None:
        self.store: JournalStore = home.journal()
        self.blobs: BlobStore = home.blobs()
        self.clock = clock
        self._classes = {kind.agent_type: kind for kind in classes}
        self._harnesses: dict[str, AgentHarness] = {}

    async def client(self) -> Any:
        return self

    async def harness(self, agent: str) -> AgentHarness:
        """Return the harness of an agent, which is awake."""
        found = self._harnesses.get(agent)
        if found is None:
            address = Address.parse(agent)
            found = AgentHarness(
                self._classes[address.agent_type],
                address.key,
                store=self.store,
                blobs=self.blobs,
                clock=self.clock,
                tenant=address.tenant,
            )
            self._harnesses[agent] = await found.__aenter__()
        return found

    async def sleep(self, agent: str) -> None:
        """End an agent's activation in order."""
        found = self._harnesses.pop(agent, None)
        if found is not None:
            await found.__aexit__(None, None, None)

    async def close(self) -> None:
        for agent in list(self._harnesses):
            await self.sleep(agent)
        self.store.close()
        self.blobs.close()


@dataclass(frozen=True)
class ServedHome:
    """A gateway's client, and what is behind it."""

    http: httpx.AsyncClient
    fleet: HarnessFleet
    agents: HomeAgents
    app: Any

    async def send(self, agent: str, *texts: str) -> AgentHarness:
        """Have an agent handle messages, past the gateway."""
        harness = await self.fleet.harness(agent)
        for text in texts:
            exchange = await harness.send({"text": text})
            assert exchange.ok, exchange.error
        return harness

    async def get(self, path: str, status: int = 200, **parameters: Any) -> Any:
        """GET a path below ``/v1``; return the JSON of the answer."""
        answer = await self.http.get(f"/v1{path}", params=parameters)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def error(self, method: str, path: str, status: int, **request: Any) -> dict[str, Any]:
        """Return the error of a request that is refused."""
        answer = await self.http.request(method, path, **request)
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert {"message", "type", "code", "param"} <= error.keys()
        return error


@asynccontextmanager
async def served_home(
    path: Path, *classes: type[BaseAgent], keys: KeyStore | None = None, **limits: int
) -> AsyncIterator[ServedHome]:
    """Serve a new home with agents of some classes; with keys, callers need one of them."""
    home = Home(path).create()
    clock = ManualClock()
    fleet = HarnessFleet(home, clock, *classes)
    agents = HomeAgents(home, fleet, clock)
    access = KeyAccess(keys, clock) if keys is not None else OpenAccess()
    administration = KeyAdministration(keys, Audit(home.logs, clock), clock) if keys is not None else None
    app = create_app(agents, access, None, keys_of_home=administration, **limits)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield ServedHome(http, fleet, agents, app)
    finally:
        await asyncio.shield(fleet.close())
        if isinstance(access, KeyAccess):
            await access.close()
        agents.close()
