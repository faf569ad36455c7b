"""A home on servers: durable turns through the store process, against plain INSERTs on the same PostgreSQL.

A turn makes 1.2 KB new (`tests.benchmarks.podium.turn_load`). The agents' process has no connection to the database:
its commits go through a real store process. Admission is not timed. The floor are plain committed INSERTs of the same
bytes, from 8 connections at once or from one. Peers are LangGraph and DBOS on the same server (`postgres_peers`). All
sides in turn, medians of the runs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psycopg

from chronicle.journal.committer import GroupCommitter
from chronicle.journal.opening import open_journal
from chronicle.journal.remote import remote_journal
from coordinator.home import Home
from coordinator.homes.opening import create_home
from coordinator.host.stores import in_store_threads
from coordinator.store.supervisor import StoreProcess
from tests.benchmarks.coordinator.postgres_peers import dbos, langgraph
from tests.benchmarks.podium.turn_load import HOLDER, TEXT, awake
from tests.e2e.servers import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.__main__ import Row

RUNS = 5
AGENTS, TURNS = 100, 10
ALONE = 200
CONNECTIONS, INSERTS = 8, 250


@contextmanager
def _tables(conninfo: str) -> Iterator[list[psycopg.Connection[tuple[object, ...]]]]:
    """Connections to a database with a table to insert into."""
    connections = [psycopg.connect(conninfo, autocommit=True) for _ in range(CONNECTIONS)]
    connections[0].execute("CREATE TABLE floor (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bytes BYTEA)")
    for connection in connections:
        connection.execute("SET synchronous_commit TO on")
    yield connections
    for connection in connections:
        connection.close()


def _inserts(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    body = b"x" * (2 * len(TEXT))
    for _ in range(INSERTS):
        connection.execute("INSERT INTO floor (bytes) VALUES (%s)", (body,))


def _insert_rate(connections: list[psycopg.Connection[tuple[object, ...]]]) -> float:
    """Return plain committed INSERTs a second, from all connections at once."""
    with ThreadPoolExecutor(len(connections)) as threads:
        began_s = time.perf_counter()
        list(threads.map(_inserts, connections))
        return INSERTS * len(connections) / (time.perf_counter() - began_s)


async def _measure(directory: Path, conninfo: str, settings: dict[str, str]) -> list[Row]:
    home = create_home(Home(directory / "home"), settings["PODIUM_BLOBS_URL"], settings["PODIUM_JOURNAL_URL"])
    home.make_run_dir()
    home.logs.mkdir(exist_ok=True)
    many: list[tuple[float, ...]] = []
    one: list[tuple[float, ...]] = []
    try:
        with (
            closing(open_journal(home.journal_url)) as service,
            _tables(conninfo) as connections,
            langgraph(conninfo, AGENTS) as langgraph_rate,
            dbos(conninfo) as dbos_rate,
        ):
            async with StoreProcess(home, os.environ, 1000) as process:
                with closing(process.access.link(HOLDER).calls()) as calls:
                    await asyncio.to_thread(lambda: calls.greeting)  # this loop starts the process, and then blocks
                    store = remote_journal(calls)
                    committer, run_store = GroupCommitter(store), in_store_threads()
                    async with awake(store, committer, directory, AGENTS, service, run_store) as agents:
                        for _ in range(RUNS):
                            agents.admit(TURNS)
                            rate = AGENTS * TURNS / await agents.handle_s()
                            floor = await asyncio.to_thread(_insert_rate, connections)
                            peers = [await asyncio.to_thread(peer) for peer in (langgraph_rate, dbos_rate)]
                            many.append((rate, floor, *peers))
                    async with awake(store, committer, directory, 1, service, run_store) as agents:
                        for _ in range(RUNS):
                            agents.admit(ALONE)
                            rate = ALONE / await agents.handle_s()
                            one.append((rate, await asyncio.to_thread(_insert_rate, connections[:1])))
                    committer.close()
    finally:
        home.remove_run_dir()
    together = f"turns of {AGENTS} shared agents at once"
    return [
        _row(together, many, 1, f"INSERTs from {CONNECTIONS} connections", ">= 0.4"),
        _row(f"{together} / LangGraph", many, 2, "PostgresSaver, its turns from 8 threads", ">= 5"),
        _row(f"{together} / DBOS", many, 3, "its workflows of one step from 8 threads", ">= 3"),
        _row("turns of one agent", one, 1, "INSERTs from one connection", ""),
    ]


def _row(name: str, rates: list[tuple[float, ...]], peer: int, against: str, target: str) -> Row:
    value = median(sides[0] / sides[peer] for sides in rates)
    ours, theirs = median(sides[0] for sides in rates), median(sides[peer] for sides in rates)
    return {
        "name": f"home on servers: durable {name}",
        "value": round(value, 3),
        "unit": "x",
        "target": target,
        "floor": f"{against}, {theirs:.0f}/s; turns {ours:.0f}/s",
    }


def run() -> list[Row]:
    """Measure and return the rows."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as name:
        directory = Path(name)
        with servers(directory) as both:
            os.environ.update(both.settings)
            return asyncio.run(_measure(directory, both.postgres.conninfo, both.settings))
