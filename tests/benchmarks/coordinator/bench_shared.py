"""What an awake agent of a shared host costs in memory: very many of them, each with a small state and one turn.

The host's parts are put together as in a host, in this process and without Ray, so that what is measured is the
activations' alone: the growth of the process's proportional set size from the first agents on.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.journal.records import NewMessage
from chronicle.journal.sqlite import SqliteJournalStore
from coordinator.host.host_config import HostConfig
from coordinator.host.host_models import HostModels
from coordinator.host.host_telemetry import HostTelemetry
from coordinator.host.hosted_agent import HostedAgent
from coordinator.host.stores import HostStores
from coordinator.host.surroundings import HostParts, ManyAgents
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.blocking import at_once
from podium.messages.asking import StoreAsker
from podium.turn.activation import Activation
from tests.benchmarks.__main__ import Row

AGENTS: Final = 5000
FIRST: Final = 100
"""Agents before the first reading: they load modules, and fill caches."""
LEASE_MS: Final = 10**9


class Small(BaseAgent):
    """Has a small state."""

    isolation = "shared"
    idle_timeout_s = 1e6

    class State(DeltaState):
        count: int = 0
        notes: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        ctx.state.notes.append(message["text"])


class Host:
    """The parts of a shared host, and its agents."""

    def __init__(self, directory: Path) -> None:
        paths = {name: directory / name for name in ("logs", "layers", "path_locks", "workspaces")}
        for path in paths.values():
            path.mkdir()
        values: dict[str, Any] = {field.name: "" for field in fields(HostConfig)}
        values |= {name: str(path) for name, path in paths.items()}
        values |= {"presentation": "dir", "lease_ttl_s": LEASE_MS / 1000, "report_interval_s": 0.0, "inbox_limit": 1000}
        config = HostConfig(**values)
        self._store = SqliteJournalStore(directory / "journal.db")
        self._clock, self._ids = SystemClock(), IdSource()
        blobs = PackBlobStore(f"file://{directory / 'blobs'}")
        telemetry = HostTelemetry(config, _report)
        asker = StoreAsker(self._store, blobs, self._ids, asyncio.to_thread, _wake)
        models = HostModels(directory / "models.sock", self._ids, self._clock)
        stores = HostStores(self._store, blobs, asker, at_once)
        parts = HostParts(config, stores, self._clock, self._ids, _nothing, _nothing, models, telemetry)
        self._surroundings = ManyAgents(parts, Small, "small")
        self._agents: list[HostedAgent] = []
        self._tasks: list[asyncio.Task[Any]] = []

    async def wake(self, count: int) -> None:
        """Wake so many further agents, each with a message, and wait until these are handled."""
        for number in range(len(self._agents), len(self._agents) + count):
            await self._wake(Address("small", str(number)))
        while any(not agent.activation.turn for agent in self._agents[-count:]):
            await asyncio.sleep(0.01)

    async def _wake(self, address: Address) -> None:
        store, ids = self._store, self._ids
        session = store.ensure_session(address.name, ids.session(0), ids.branch(0), 0)
        store.admit(session.session_id, NewMessage(ids.message(0), b'{"text":"hello"}', 0))
        lease = store.acquire_lease(session.session_id, "host_1", self._clock.now_ms(), LEASE_MS)
        environment = self._surroundings.enter(address, {}, unclean=False)
        activation = Activation(Small, address, lease, environment)
        await activation.start()
        agent = HostedAgent(activation, Small.idle_timeout_s, store)
        self._agents.append(agent)
        self._tasks.append(asyncio.create_task(agent.run()))

    async def close(self) -> None:
        """End all agents."""
        for agent in self._agents:
            agent.stop()
        await asyncio.gather(*self._tasks)
        self._surroundings.close()
        self._store.close()


def _nothing() -> None:
    pass


async def _wake(*_: object) -> None:
    pass


async def _report(_: object) -> None:
    pass


def _pss_kb() -> int:
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


async def _measure(directory: Path) -> tuple[int, int]:
    host = Host(directory)
    await host.wake(FIRST)
    before = _pss_kb()
    for _ in range(AGENTS // FIRST):
        await host.wake(FIRST)
    after = _pss_kb()
    await host.close()
    return before, after


def run() -> list[Row]:
    """Measure and return the row."""
    descriptors = os.dup(1), os.dup(2)  # a shared host writes its output to its log
    try:
        with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as directory:
            before, after = asyncio.run(_measure(Path(directory)))
    finally:
        for number, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, number)
    return [
        {
            "name": f"memory of an awake agent with a small state, {AGENTS} in one shared host",
            "value": round((after - before) / AGENTS, 1),
            "unit": "KB",
            "target": "<= 100",
            "floor": f"the host with {FIRST} of them, {before / 1024:.0f} MB",
        }
    ]
