"""Whole turns for the benchmarks: agents, a way to run them, and the floor to compare with.

A turn makes 1.2 KB new: a message of 600 bytes, a reply of 600 bytes, and a counter in the state. As a program it says
how many syncs to disk a turn without changed files makes: ``turn_load DIRECTORY TURNS``, with the library of
`tests.syncs` preloaded.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.canonical import encode
from chronicle.clock import ManualClock, SystemClock
from chronicle.ids import IdSource
from chronicle.journal.committer import DirectCommitter
from chronicle.journal.records import NewMessage
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, Opened
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.blocking import at_once
from podium.testing import AgentHarness, HarnessOptions
from podium.turn.activation import Activation, Step
from podium.turn.ports import Environment, WorkspaceRequest
from podium.turn.telemetry import NO_METER, NO_TRACER, Meter, Tracer
from tests.syncs import so_far

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from chronicle.journal.port import JournalStore
    from podium.blocking import BlockingRunner
    from podium.turn.journal.ledger import Committer

__all__ = ["HOLDER", "TEXT", "Awake", "Rememberer", "Talker", "awake", "floor", "harness", "inserts_s", "turns_s"]

TEXT = "x" * 600
LEASE_MS = 3_600_000


class Talker(BaseAgent):
    """Counts and answers."""

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.send_message(TEXT)


class Rememberer(BaseAgent):
    """Counts, answers, and keeps all that was said in its state too."""

    class State(DeltaState):
        history: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.history.append(message["text"] + TEXT)
        await ctx.send_message(TEXT)


@asynccontextmanager
async def harness(
    agent_class: type[BaseAgent],
    directory: Path,
    store: JournalStore | None = None,
    meter: Meter = NO_METER,
    tracer: Tracer = NO_TRACER,
) -> AsyncIterator[AgentHarness]:
    """Run an agent with its blobs, and its journal on SQLite unless given, in a directory."""
    blobs = PackBlobStore(f"file://{directory / 'blobs'}")
    with closing(store or SqliteJournalStore(directory / "journal.db")) as opened:
        clock = ManualClock()
        async with AgentHarness(
            agent_class,
            store=opened,
            blobs=blobs,
            clock=clock,
            options=HarnessOptions(directory=directory, meter=meter, tracer=tracer),
        ) as agent:
            yield agent


async def turns_s(agent: AgentHarness, count: int, message: dict[str, Any] | str = TEXT) -> float:
    """Admit messages, then return the seconds that handling them takes; each comes at a time of its own."""
    for _ in range(count):
        agent.clock.advance(0.001)
        agent.admit(message)
    began_s = time.perf_counter()
    while await agent.activation.handle_next() is not Step.NOTHING:
        agent.clock.advance(0.001)
    return time.perf_counter() - began_s


HOLDER = "host_bench"
"""Of the leases."""


class Awake:
    """Agents of one process, each awake, on one journal.

    Args:
        store: the journal as the agents' process has it.
        service: as the process has it that makes agents and admits messages; by default the same.
        run_store: makes calls of the journal.
    """

    def __init__(
        self,
        store: JournalStore,
        committer: Committer,
        directory: Path,
        service: JournalStore | None = None,
        run_store: BlockingRunner = at_once,
    ) -> None:
        self._store = service or store
        self._directory = directory
        self._blobs = PackBlobStore(f"file://{directory / 'blobs'}")
        self._clock = SystemClock()
        self._ids = IdSource()
        self._environment = Environment(
            store, self._blobs, committer, self._clock, self._ids, self._open, run_blocking=at_once, run_store=run_store
        )
        self._agents: list[Activation] = []

    async def wake(self, count: int) -> None:
        """Wake agents that were never there before."""
        for number in range(count):
            address = Address("talker", str(number))
            now_ms = self._clock.now_ms()
            ids = self._ids
            session = self._store.ensure_session(str(address), ids.session(now_ms), ids.branch(now_ms), now_ms)
            lease = self._store.acquire_lease(session.session_id, HOLDER, now_ms, LEASE_MS)
            activation = Activation(Talker, address, lease, self._environment)
            await activation.start(unclean=False)
            self._agents.append(activation)

    def admit(self, count: int) -> None:
        """Admit messages for each agent."""
        body = encode({"text": TEXT})
        for agent in self._agents:
            for _ in range(count):
                now_ms = self._clock.now_ms()
                self._store.admit(agent.lease.session_id, NewMessage(self._ids.message(now_ms), body, now_ms))

    async def handle_s(self) -> float:
        """Return the seconds that handling all messages takes, all agents at once."""

        async def handle_all(agent: Activation) -> None:
            while await agent.handle_next() is not Step.NOTHING:
                pass

        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number, agent in enumerate(self._agents):
                tasks.create_task(handle_all(agent), name=f"agent-{number}")
        return time.perf_counter() - began_s

    async def sleep(self) -> None:
        """End them in order."""
        for agent in self._agents:
            await agent.stop()

    async def _open(self, request: WorkspaceRequest) -> Opened:
        spec = LayerSpec(
            workspace_id=request.address.workspace_id,
            layers=self._directory / "layers",
            base=request.base,
            epoch=request.epoch,
            turn=request.turn,
        )
        return open_dir_workspace(
            spec, self._blobs, self._directory / "files" / request.address.workspace_id, self._clock
        )


@asynccontextmanager
async def awake(
    store: JournalStore,
    committer: Committer,
    directory: Path,
    count: int,
    service: JournalStore | None = None,
    run_store: BlockingRunner = at_once,
) -> AsyncIterator[Awake]:
    """Have agents awake; see `Awake`."""
    agents = Awake(store, committer, directory, service, run_store)
    await agents.wake(count)
    yield agents
    await agents.sleep()


@contextmanager
def floor(directory: Path) -> Iterator[sqlite3.Connection]:
    """A table to insert a turn's bytes into."""
    with closing(sqlite3.connect(directory / "floor.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE floor (id INTEGER PRIMARY KEY, body BLOB)")
        yield database


def inserts_s(database: sqlite3.Connection, count: int) -> float:
    """Return the seconds that plain durable inserts take."""
    body = b"x" * (2 * len(TEXT))
    began_s = time.perf_counter()
    for _ in range(count):
        database.execute("INSERT INTO floor (body) VALUES (?)", (body,))
        database.commit()
    return time.perf_counter() - began_s


async def syncs_of_turns(directory: Path, count: int) -> int:
    """Return how many syncs to disk so many turns make, too few for the journal's log to be folded into its file."""
    with closing(SqliteJournalStore(directory / "journal.db")) as store:
        async with awake(store, DirectCommitter(store), directory, 1) as agents:
            agents.admit(1)
            await agents.handle_s()
            agents.admit(count)
            before = so_far()
            await agents.handle_s()
            return so_far() - before


if __name__ == "__main__":
    print(asyncio.run(syncs_of_turns(Path(sys.argv[1]), int(sys.argv[2]))))
