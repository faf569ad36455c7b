"""The durable turn, whole: message, hook, state patch, seal, commit, through the code that hosts run.

A turn makes 1.2 KB new: a message of 600 bytes, a reply of 600 bytes, and a counter in the state. Admission is not
timed. The floor is one plain ``INSERT`` of the same bytes a turn, WAL and ``synchronous=FULL``, in the same run, a
batch of turns and a batch of inserts in turn; a peer appends the same bytes to a session, of openai-agents. Medians of
the runs' medians. Python's function calls and SQLite's statements are counted, the same on all machines.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from agents import SQLiteSession

from chronicle.journal.committer import GroupCommitter
from chronicle.journal.postgres import PostgresJournalStore
from chronicle.journal.sqlite import SqliteJournalStore
from coordinator.telemetry.recorder import Recorder
from coordinator.telemetry.tracing import Tracing
from podium.turn.scope import open_turn, replies
from tests import syncs
from tests.benchmarks.podium.turn_load import TEXT, Rememberer, Talker, awake, floor, harness, inserts_s, turns_s
from tests.contract.postgres_server import find_binaries, running_server
from tests.otlp_receiver import otlp_receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.benchmarks.__main__ import Row

TURNS = 1_000
BATCH = 100
FEW = 10
RUNS = 5
AGENTS = 100
COUNTED = 20


def run() -> list[Row]:
    """Measure and return the rows."""
    gc.collect()
    gc.freeze()  # as hosts do after their imports: the garbage of 100 agents is looked for among fewer objects
    rates = [asyncio.run(_rate()) for _ in range(RUNS)]
    aged = [asyncio.run(_aged()) for _ in range(RUNS)]
    stored = asyncio.run(_stored())
    groups = [asyncio.run(_group()) for _ in range(RUNS)]
    return [
        _row(
            "durable turn, whole",
            median(ratio for ratio, _ in rates),
            ">= 0.5",
            f"a plain INSERT of the same bytes, {median(rate for _, rate in rates):.0f}/s",
        ),
        _row("turns 901-1,000", median(aged), ">= 0.9", "turns 1-100, in turns a second"),
        _row("bytes stored, 1,000 turns said and remembered", stored, "<= 2", "2.4 KB a turn"),
        *asyncio.run(_against_openai_agents()),
        *asyncio.run(_counts()),
        *asyncio.run(_telemetry()),
        *_syncs(),
        _row(
            f"{AGENTS} agents of one process at once, whole turns",
            median(ratio for ratio, _ in groups),
            ">= 2.5",
            f"1 agent, {median(rate for _, rate in groups):.0f} turns/s",
        ),
        *_on_postgres(),
    ]


@contextmanager
def _home() -> Iterator[Path]:
    """A directory on the disk that the checkout is on: a file system in memory has no syncs."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as directory:
        yield Path(directory)


async def _rate() -> tuple[float, float]:
    """Return a turn's rate over the floor's, and the floor's."""
    ratios, floors_s = [], []
    with _home() as directory, floor(directory) as database:
        async with harness(Talker, directory) as agent:
            for _ in range(TURNS // BATCH):
                turn_s = await turns_s(agent, BATCH)
                floors_s.append(inserts_s(database, BATCH))
                ratios.append(floors_s[-1] / turn_s)
    return median(ratios), BATCH / median(floors_s)


async def _aged() -> float:
    """Return the rate of an agent's turns 901 to 1,000 over another's turns 1 to 100, a few of each in turn."""
    with _home() as of_old, _home() as of_young:
        async with harness(Rememberer, of_old) as old, harness(Rememberer, of_young) as young:
            await turns_s(old, TURNS - BATCH)
            old_s, young_s = [], []
            for _ in range(BATCH // FEW):
                old_s.append(await turns_s(old, FEW))
                young_s.append(await turns_s(young, FEW))
    return median(young_s) / median(old_s)


async def _stored() -> float:
    """Return the bytes stored for 1,000 turns that each say 1.2 KB and remember it, over those 2.4 KB a turn."""
    with _home() as directory:
        async with harness(Rememberer, directory) as agent:
            for _ in range(TURNS // BATCH):
                await turns_s(agent, BATCH)
        total = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return total / (TURNS * 4 * len(TEXT))


async def _against_openai_agents() -> list[Row]:
    """Measure a durable turn against two items of the same bytes that openai-agents' ``SQLiteSession`` appends."""
    items: list[Any] = [{"role": role, "content": TEXT} for role in ("user", "assistant")]
    ratios, rates = [], []
    with _home() as directory, closing(SQLiteSession("one", directory / "session.db")) as session:
        async with harness(Talker, directory) as agent:
            for _ in range(TURNS // BATCH):
                turn_s = await turns_s(agent, BATCH)
                began_s = time.perf_counter()
                for _ in range(BATCH):
                    await session.add_items(items)
                append_s = time.perf_counter() - began_s
                ratios.append(append_s / turn_s)
                rates.append(BATCH / append_s)
    against = f"SQLiteSession of openai-agents, appended, {median(rates):.0f}/s"
    return [_row("durable turn, whole", median(ratios), ">= 1", against)]


async def _counts() -> list[Row]:
    """Count what one turn of an agent that is awake makes: calls of Python functions, and SQL statements."""
    calls, statements = Counter[str](), list[str]()
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*arguments, **options)
        db.set_trace_callback(statements.append)  # calls no function of Python
        return db

    def called(_: FrameType, event: str, __: object) -> None:
        calls[event] += 1

    with _home() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", traced)
        for module in (open_turn, replies):  # a slow machine would yield to the event loop more often
            patch.setattr(module, "YIELD_INTERVAL_S", 3600.0)
        async with harness(Talker, directory) as agent:
            await turns_s(agent, COUNTED)
            for _ in range(COUNTED):
                agent.clock.advance(0.001)
                agent.admit(TEXT)
            statements.clear()
            for _ in range(COUNTED):
                agent.clock.advance(0.001)
                sys.setprofile(called)
                try:
                    await agent.activation.handle_next()
                finally:
                    sys.setprofile(None)
            made = len(statements) / COUNTED
    return [
        _row("calls of Python functions a turn", calls["call"] / COUNTED, "<= 500", "", unit=""),
        _row("SQL statements a turn", made, "<= 7", "BEGIN and COMMIT are two", unit=""),
    ]


async def _telemetry() -> list[Row]:
    """Measure what metrics, and traces with them, add to a durable turn: batches of each in turn."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        plain_home, measured_home, traced_home = (stack.enter_context(_home()) for _ in range(3))
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", stack.enter_context(otlp_receiver()).url)
        tracing = Tracing("bench")
        async with (
            harness(Talker, plain_home) as plain,
            harness(Talker, measured_home, meter=Recorder()) as measured,
            harness(Talker, traced_home, meter=Recorder(), tracer=tracing.tracer) as traced,
        ):
            took_s: dict[str, list[float]] = {"plain": [], "measured": [], "traced": []}
            for _ in range(TURNS // FEW):
                for name, agent in (("plain", plain), ("measured", measured), ("traced", traced)):
                    took_s[name].append(await turns_s(agent, FEW))
        await tracing.flush()
    floor_s = median(took_s["plain"])
    against = f"the same without them, {1000 * floor_s / FEW:.2f} ms a turn"
    return [
        _row("durable turn with metrics", median(took_s["measured"]) / floor_s, "<= 1.05", against),
        _row("durable turn with metrics and traces", median(took_s["traced"]) / floor_s, "", against),
    ]


def _syncs() -> list[Row]:
    """Count the kernel's syncs for one turn that changes no files."""
    if not syncs.CAN_COUNT:
        return []
    with _home() as directory:
        counted = int(syncs.said_by(directory, "-m", "tests.benchmarks.podium.turn_load", directory, str(COUNTED)))
    name = "syncs to disk for a turn without file changes"
    return [{"name": name, "value": counted / COUNTED, "unit": "", "target": "<= 1", "floor": f"{COUNTED} turns"}]


async def _group() -> tuple[float, float]:
    """Return the rate of many agents at once over that of one, and that of one."""
    rates = []
    for agents, turns in ((1, 400), (AGENTS, 10)):
        with _home() as directory, closing(SqliteJournalStore(directory / "journal.db")) as store:
            committer = GroupCommitter(store)
            async with awake(store, committer, directory, agents) as all_of_them:
                all_of_them.admit(turns)
                rates.append(agents * turns / await all_of_them.handle_s())
            committer.close()
    return rates[1] / rates[0], rates[0]


def _on_postgres() -> list[Row]:
    """Measure a whole turn against one plain INSERT on a PostgreSQL server, where one is installed."""
    binaries = find_binaries()
    if binaries is None:
        return []
    with running_server() as conninfo, psycopg.connect(conninfo, autocommit=True) as db:
        db.execute("SET synchronous_commit TO on")
        db.execute("CREATE TABLE floor (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bytes BYTEA)")
        ratios, rates = zip(*asyncio.run(_postgres_rates(conninfo, db)), strict=True)
    return [_row("durable turn, whole, on PostgreSQL", median(ratios), "", f"INSERT of 1.2 KB, {median(rates):.0f}/s")]


async def _postgres_rates(conninfo: str, db: psycopg.Connection[tuple[object, ...]]) -> list[tuple[float, float]]:
    """Return a turn's rate over the floor's, and the floor's, of several batches."""
    rates = []
    body = b"x" * (2 * len(TEXT))
    with _home() as directory:
        async with harness(Talker, directory, PostgresJournalStore(conninfo)) as agent:
            for _ in range(2 * RUNS):
                turn_s = await turns_s(agent, BATCH) / BATCH
                began_s = time.perf_counter()
                for _ in range(BATCH):
                    db.execute("INSERT INTO floor (bytes) VALUES (%s)", (body,))
                insert_s = (time.perf_counter() - began_s) / BATCH
                rates.append((insert_s / turn_s, 1 / insert_s))
    return rates


def _row(name: str, value: float, target: str, against: str, unit: str = "x") -> Row:
    return {"name": name, "value": round(value, 3), "unit": unit, "target": target, "floor": against}
