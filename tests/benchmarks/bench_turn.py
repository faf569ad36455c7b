"""The durable turn, whole: message, hook, state patch, seal, commit, through the code that hosts run.

A turn makes 1.2 KB new: a message of 600 bytes, a reply of 600 bytes, and a counter in the state. Admission is not
timed. The floor is one plain ``INSERT`` of the same bytes a turn, WAL and ``synchronous=FULL``, in the same run, a
batch of turns and a batch of inserts in turn.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from chronicle.blobs.fsspec_store import FsspecBlobStore
from chronicle.clock import ManualClock
from chronicle.journal.sqlite import SqliteJournalStore
from podium.activation import Step
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from tests.benchmarks.__main__ import Row

TURNS = 1_000
BATCH = 100
RUNS = 5
TEXT = "x" * 600


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


async def turns_s(agent: AgentHarness, count: int) -> float:
    """Admit messages, then return the seconds that handling them takes."""
    for _ in range(count):
        agent.admit(TEXT)
    began_s = time.perf_counter()
    while await agent.activation.handle_next() is not Step.NOTHING:
        pass
    return time.perf_counter() - began_s


def _inserts_s(database: sqlite3.Connection, count: int) -> float:
    body = b"x" * (2 * len(TEXT))
    began_s = time.perf_counter()
    for _ in range(count):
        database.execute("INSERT INTO floor (body) VALUES (?)", (body,))
        database.commit()
    return time.perf_counter() - began_s


def _floor(directory: Path) -> sqlite3.Connection:
    database = sqlite3.connect(directory / "floor.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE floor (id INTEGER PRIMARY KEY, body BLOB)")
    return database


async def _rate(directory: Path) -> tuple[float, float]:
    """Return a turn's rate over the floor's, and that of turns 901-1,000 over that of 1-100."""
    database = _floor(directory)
    ratios, batches_s = [], []
    store = SqliteJournalStore(directory / "journal.db")
    blobs = FsspecBlobStore(f"file://{directory / 'blobs'}")
    async with AgentHarness(Talker, store=store, blobs=blobs, clock=ManualClock(), directory=directory) as agent:
        for _ in range(TURNS // BATCH):
            batches_s.append(await turns_s(agent, BATCH))
            ratios.append(_inserts_s(database, BATCH) / batches_s[-1])
    database.close()
    return median(ratios), batches_s[0] / batches_s[-1]


async def _stored(directory: Path) -> float:
    """Return the bytes stored for 1,000 turns that each say 1.2 KB and remember it, over those 2.4 KB a turn."""
    store = SqliteJournalStore(directory / "journal.db")
    blobs = FsspecBlobStore(f"file://{directory / 'blobs'}")
    async with AgentHarness(Rememberer, store=store, blobs=blobs, clock=ManualClock(), directory=directory) as agent:
        for _ in range(TURNS // BATCH):
            await turns_s(agent, BATCH)
    store.close()
    total = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return total / (TURNS * 4 * len(TEXT))


def run() -> list[Row]:
    """Measure and return the rows."""
    rates, tails, stored = [], [], []
    for number in range(RUNS):
        with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as directory:
            rate, tail = asyncio.run(_rate(Path(directory)))
        rates.append(rate)
        tails.append(tail)
        if number == 0:
            with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as directory:
                stored.append(asyncio.run(_stored(Path(directory))))
    return [
        _row("durable turn, whole", median(rates), ">= 0.5", "a plain INSERT of the same bytes, in turns a second"),
        _row("turns 901-1,000", median(tails), ">= 0.9", "turns 1-100, in turns a second"),
        _row("bytes stored, 1,000 turns said and remembered", median(stored), "<= 2", "2.4 KB a turn"),
    ]


def _row(name: str, value: float, target: str, floor: str) -> Row:
    return {"name": name, "value": round(value, 3), "unit": "x", "target": target, "floor": floor}
