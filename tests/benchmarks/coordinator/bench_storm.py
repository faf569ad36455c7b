"""Many agents of a shared host at once, through a service's socket, against raw Ray and LangGraph in the same run.

Rows:

* waking a stored agent with the state of 1,000 turns in a shared host that runs, from the message to its first token,
  against a cold raw Ray actor's start, creation to first answer, and against a plain committed INSERT;
* `STORM` agents that sleep are sent a message each at once, until all have answered, against the start of as many raw
  Ray actors at once, creation to first answer, scaled from `ACTORS`: they take turns for the cores;
* `TALKERS` agents have `TURNS` turns each at once, each turn from the client's message, its admission included, to its
  committed end, against as many conversations in LangGraph with its SQLite saver, in the faster one of two ways: one
  conversation after the other, or several threads. Both keep each turn of 1.2 KB durably before the next begins, have a
  new database, and no Ray beside them but the service's: the processes of the raw one take a fifth of the machine.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray

from coordinator.home import Home
from coordinator.service.connecting import connect, wait_ended
from tests.benchmarks.coordinator.bench_wake import (
    AGENT,
    DEADLINE_S,
    Bare,
    Talk,
    cold_actors_s,
    p99,
    paired,
    row,
    wakes_and_floors,
)
from tests.benchmarks.podium.bench_langgraph import compiled
from tests.benchmarks.podium.turn_load import TEXT, floor, inserts_s

if TYPE_CHECKING:
    from tests.benchmarks.__main__ import Row

COLD: Final = 7
STORM: Final = 200
STORMS: Final = 5
ACTORS: Final = 40
TALKERS: Final = 100
TURNS: Final = 20
THREADS: Final = 8


async def _wakes(talk: Talk, base: Path) -> list[Row]:
    with floor(base) as database:
        wakes, inserts = await wakes_and_floors(talk, "SharedSleeper", lambda: inserts_s(database, 1))
    cold = await cold_actors_s(COLD)
    actor, wake, insert = statistics.median(cold), statistics.median(wakes), statistics.median(inserts)
    against = f"cold raw Ray actor, {actor * 1e3:.0f} ms (p99 {p99(cold) * 1e3:.0f} ms)"
    return [
        row(f"wake from zero, shared, no file: p99 {p99(wakes) * 1e3:.1f} ms", wake * 1e3, "ms"),
        row("wake from zero, shared, to first token / cold raw Ray actor", wake / actor, "x", against, "<= 0.0167"),
        row("the same / INSERT", paired(wakes, inserts), "x", f"a committed INSERT, {insert * 1e3:.2f} ms"),
    ]


async def _storms(talk: Talk) -> list[Row]:
    """Wake many agents at once, again and again."""
    keys = [f"storm-{number}" for number in range(STORM)]
    storms = []
    for _ in range(STORMS + 1):
        began_s = time.perf_counter()
        await asyncio.gather(*(talk.say("SharedSleeper", key, {"text": "count"}) for key in keys))
        storms.append(time.perf_counter() - began_s)
        for key in keys:
            await talk.asleep(f"sharedsleeper/{key}", "SharedSleeper")
    began_s = time.perf_counter()
    actors: list[Any] = [Bare.remote() for _ in range(ACTORS)]  # type: ignore[attr-defined]
    await asyncio.gather(*(actor.ping.remote() for actor in actors))
    raw_s = (time.perf_counter() - began_s) * STORM / ACTORS
    for actor in actors:
        ray.kill(actor)
    storm_s = statistics.median(storms[1:])  # the first one creates the agents
    against = f"{STORM} raw Ray actors, {raw_s:.1f} s, scaled from {ACTORS}"
    return [
        row(f"{STORM} agents woken at once, shared, until all answered", storm_s * 1e3, "ms"),
        row(f"{STORM} agents woken at once / raw Ray actors", storm_s / raw_s, "x", against, "<= 0.1"),
    ]


async def _conversation(talk: Talk, key: str) -> None:
    for _ in range(TURNS):
        await talk.say("SharedTalker", key, {"text": TEXT})


async def _talks(talk: Talk) -> float:
    """Return the seconds of all turns of all agents, which are awake."""
    keys = [f"talker-{number}" for number in range(TALKERS)]
    await asyncio.gather(*(talk.say("SharedTalker", key, {"text": TEXT}) for key in keys))
    began_s = time.perf_counter()
    await asyncio.gather(*(_conversation(talk, key) for key in keys))
    return time.perf_counter() - began_s


def _langgraph_s(directory: Path, threads: int) -> float:
    """Return the seconds of as many turns of as many conversations, which have had one turn before."""
    with closing(sqlite3.connect(directory / f"langgraph-{threads}.db", check_same_thread=False)) as connection:
        invoke = compiled(connection)

        def turns(count: int) -> None:
            def conversation(number: int) -> None:
                for _ in range(count):
                    invoke(f"conversation-{number}")

            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(conversation, range(TALKERS)))

        turns(1)
        began_s = time.perf_counter()
        turns(TURNS)
        return time.perf_counter() - began_s


async def _talking(talk: Talk, base: Path) -> list[Row]:
    ours_s = await _talks(talk)
    theirs_s = min([await asyncio.to_thread(_langgraph_s, base, threads) for threads in (1, THREADS)])
    turns = TALKERS * TURNS
    against = f"LangGraph with its SQLite saver, {turns / theirs_s:.0f} turns a second"
    return [
        row(f"{TALKERS} shared agents, {TURNS} durable turns each, at once", turns / ours_s, "turns/s"),
        row("turns a second, at once / LangGraph", theirs_s / ours_s, "x", against, ">= 5"),
    ]


async def _measure(base: Path) -> list[Row]:
    rows: list[Row] = []
    wanted = os.environ.get("STORM_ROWS", "talking,wakes,storms").split(",")
    if "talking" in wanted:
        home = Home(base / "talks").create()
        async with connect(home, lambda _: None, lambda _: None) as client:
            rows += await _talking(Talk(client), base)
        await wait_ended(home, DEADLINE_S)
    home = Home(base / "home").create()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(home, lambda _: None, lambda _: None))
        ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, _temp_dir=str(base / "ray"))
        stack.callback(ray.shutdown)
        talk = Talk(client)
        if "wakes" in wanted:
            rows += await _wakes(talk, base)
        if "storms" in wanted:
            rows += await _storms(talk)
    await wait_ended(home, DEADLINE_S)
    return rows


def run() -> list[Row]:
    """Measure and return the rows."""
    print(f"agents of {AGENT.name}")
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        return asyncio.run(_measure(Path(directory)))
