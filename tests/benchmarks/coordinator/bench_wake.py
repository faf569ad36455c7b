"""Waking process agents and talking to them through a service's socket, against raw Ray in the same run.

Rows:

* waking a stored agent with its mount and the state of 1,000 turns (a warm host is ready, as always when agents
  sleep), from the message to its first token, against a cold raw Ray actor's start, creation to first answer, and
  against its floor: a fork of a warm process, a mount, an INSERT (`wake_floor`);
* a turn on an active agent, from the message to its committed end, against a raw Ray call and one plain committed
  INSERT;
* tokens a second of one agent to one client, and its first token, against a raw Ray actor that streams as many items;
* with ``WAKE_DORMANT`` agents that sleep (100,000): processes without a service, the first page of the list of agents,
  and the wake of one agent against its wake when it was alone in the home.

Both sides are measured in turn. Times are medians; the 99th percentile, which is the slowest of few runs, is beside.
Cold actors are measured in a loop of their own: their processes take a second of the processor to end, and Ray to
replace them, which a floor of ten milliseconds would be measured in.
The floor is stable within a few percent from run to run, and not from hour to hour: on a shared machine the same fork
took 4 ms and 8 ms, while wakes stayed as they were. Compare two versions in turn, within minutes.

``WAKE_ROWS`` limits the run to some of these rows, ``wakes,turns,tokens,dormant``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.journal.sqlite import SqliteJournalStore
from coordinator.home import Home
from coordinator.operations.agents import HomeAgents
from coordinator.service.client import AgentRef
from coordinator.service.connecting import connect, wait_ended
from coordinator.service.link import ServiceLink
from podium.turn.journal.commit import NextCommit, created_commit
from tests.benchmarks.coordinator.bench_service import processes_of_home
from tests.benchmarks.coordinator.wake_floor import wake_floor
from tests.benchmarks.podium.turn_load import LEASE_MS, floor, inserts_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from chronicle.canonical import JsonObject
    from coordinator.service.client import ServiceClient
    from tests.benchmarks.__main__ import Row

AGENT = Path(__file__).parent / "agents.py"
STORED_TURNS = 1_000
WAKES = 40
COLD = 15
TURNS = 100
SPEECHES = 5
DORMANT = int(os.environ.get("WAKE_DORMANT", "100000"))
DORMANT_WAKES = 15
PAGES = 20
TOKENS = 5_000
DEADLINE_S = 180


@ray.remote(num_cpus=0)
class Bare:
    """The least actor there is."""

    async def ping(self) -> int:
        """Answer."""
        return 1

    async def say(self, tokens: int) -> AsyncIterator[str]:
        """Stream items."""
        for number in range(tokens):
            yield f"token {number:06d} "


class Talk:
    """A client of a service, and the times of what is said."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def say(self, agent: str, key: str, message: dict[str, Any]) -> tuple[float, float]:
        """Send a message; return the seconds to its first token and to its committed end."""
        ref = AgentRef(str(AGENT), agent, agent.lower())
        began_s, first_s = time.perf_counter(), 0.0
        async with aclosing(self._client.send(ref, key, message)) as frames:
            async for frame in frames:
                if not first_s and frame["type"] in {"message_update", "message_end"}:
                    first_s = time.perf_counter() - began_s
        if frame["type"] != "turn_end":
            raise RuntimeError(str(frame))
        return first_s, time.perf_counter() - began_s

    async def asleep(self, agent: str, agent_class: str) -> None:
        """Wait until an agent has no host, and a host of its class is warm."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                hosts = await self._client.ps()
                warm = [host["code"] for host in hosts if host["status"] == "warm"]
                if all(host["agent"] != agent for host in hosts) and f"{AGENT}:{agent_class}" in warm:
                    return
                await asyncio.sleep(0.02)


async def cold_actor_s() -> float:
    """Return the seconds from the creation of an actor to its first answer."""
    began_s = time.perf_counter()
    actor: Any = Bare.remote()  # type: ignore[attr-defined]
    await actor.ping.remote()
    took_s = time.perf_counter() - began_s
    ray.kill(actor)
    return took_s


async def cold_actors_s(count: int) -> list[float]:
    """Return the seconds that actors take to start, one after the other."""
    return [await cold_actor_s() for _ in range(count)]


async def wakes_and_floors(
    talk: Talk, agent_class: str, floor_s: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Wake an agent again and again, and measure the floor as often while it sleeps; who is first changes each time.

    Returns:
        the seconds of the wakes, each to its first token, and those of the floors.
    """
    for _ in range(STORED_TURNS):
        await talk.say(agent_class, "one", {"text": "count"})
    wakes: list[float] = []
    floors: list[float] = []
    for number in range(WAKES):
        for wakes_now in (number % 2 == 0, number % 2 == 1):
            await talk.asleep(f"{agent_class.lower()}/one", agent_class)
            if wakes_now:
                wakes.append((await talk.say(agent_class, "one", {"text": "count"}))[0])
            else:
                floors.append(floor_s())
    return wakes, floors


async def _wakes(talk: Talk, base: Path) -> list[Row]:
    with wake_floor(base / "floor") as least:
        wakes, floors = await wakes_and_floors(talk, "Sleeper", least.process_s)
    cold = await cold_actors_s(COLD)
    actor, wake, forked = statistics.median(cold), statistics.median(wakes), statistics.median(floors)
    against = f"cold raw Ray actor, {actor * 1e3:.0f} ms (p99 {p99(cold) * 1e3:.0f} ms)"
    return [
        row(f"wake from zero, process, state of {STORED_TURNS} turns: p99 {_ms(p99(wakes))}", wake * 1e3, "ms"),
        row("wake from zero, process, to first token / cold raw Ray actor", wake / actor, "x", against, "<= 0.0667"),
        row("the same / fork of a warm process, mount, INSERT", paired(wakes, floors), "x", f"floor, {_ms(forked)}"),
    ]


async def _turns(talk: Talk, base: Path) -> list[Row]:
    """Have turns on an agent that is awake."""
    raw: Any = Bare.remote()  # type: ignore[attr-defined]
    calls, inserts, turns = [], [], []
    with floor(base) as database:
        for _ in range(TURNS + 10):
            began_s = time.perf_counter()
            await raw.ping.remote()
            calls.append(time.perf_counter() - began_s)
            inserts.append(inserts_s(database, 1))
            turns.append((await talk.say("Counter", "one", {"text": "count"}))[1])
    ray.kill(raw)
    call, insert, turn = (statistics.median(values[10:]) for values in (calls, inserts, turns))
    against = f"raw Ray call {_ms(call)} + INSERT {_ms(insert)}"
    return [
        row(f"turn on an active agent, no file: p99 {_ms(p99(turns[10:]))}", turn * 1e3, "ms"),
        row("turn on an active agent / Ray call + INSERT", turn / (call + insert), "x", against, "<= 2.5"),
    ]


async def _tokens(talk: Talk) -> list[Row]:
    """Have an agent speak, and a raw actor."""
    raw: Any = Bare.remote()  # type: ignore[attr-defined]
    raw_firsts, raw_ends, firsts, ends = [], [], [], []
    for number in range(SPEECHES + 1):
        began_s, first_s = time.perf_counter(), 0.0
        async for item in raw.say.options(num_returns="streaming").remote(TOKENS):
            await item
            first_s = first_s or time.perf_counter() - began_s
        if number:
            raw_firsts.append(first_s)
            raw_ends.append(time.perf_counter() - began_s)
        first_s, end_s = await talk.say("Speaker", "one", {"tokens": TOKENS})
        if number:
            firsts.append(first_s)
            ends.append(end_s)
    ray.kill(raw)
    raw_end, end, raw_first, first = (statistics.median(values) for values in (raw_ends, ends, raw_firsts, firsts))
    against = f"raw Ray streaming, {TOKENS / raw_end:.0f} items a second"
    return [
        row("tokens a second, one agent to one client", TOKENS / end, "tokens/s"),
        row("tokens a second / raw Ray streaming", raw_end / end, "x", against, ">= 5"),
        row("first token, later than that of raw Ray", (first - raw_first) * 1e3, "ms", _ms(raw_first), "<= 5"),
    ]


async def _median_wake_s(home: Home) -> float:
    """Return the time to the first token of an agent that is woken again and again, by a service of its own."""
    async with connect(home, lambda _: None, lambda _: None) as client:
        talk = Talk(client)
        await talk.say("Sleeper", "one", {"text": "count"})  # no host is warm yet
        wakes = []
        for _ in range(DORMANT_WAKES):
            await talk.asleep("sleeper/one", "Sleeper")
            wakes.append((await talk.say("Sleeper", "one", {"text": "count"}))[0])
    await wait_ended(home, DEADLINE_S)
    return statistics.median(wakes)


def _add_dormant(journal: Path) -> None:
    """Add agents that have a state and sleep. They are written in memory: each of them would be synced to disk."""
    ids, clock = IdSource(), SystemClock()
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        for file in journal.parent.glob(f"{journal.name}*"):  # with its checksums
            shutil.move(file, Path(directory) / file.name)
        store = SqliteJournalStore(Path(directory) / journal.name)
        for number in range(DORMANT):
            now_ms, name = clock.now_ms(), f"dormant/{number:06d}"
            session = store.ensure_session(name, ids.session(now_ms), ids.branch(now_ms), now_ms)
            lease = store.acquire_lease(session.session_id, "bench", now_ms, LEASE_MS)
            payload: JsonObject = {"agent": name, "entity_type": "dormant", "version": 1, "state": {"count": number}}
            payload |= {"tree_id": None, "oplog_id": None}
            at = NextCommit(session, store.head(session.main_branch_id), lease.epoch, ids, now_ms)
            store.commit(created_commit(at, payload))
            store.release_lease(session.session_id, lease.epoch)
        store.close()
        for file in Path(directory).iterdir():
            shutil.move(file, journal.with_name(file.name))


async def _dormant(base: Path) -> list[Row]:
    """Put very many agents beside one."""
    home = Home(base / "many").create()
    alone_s = await _median_wake_s(home)
    await asyncio.to_thread(_add_dormant, home.path / "journal.db")
    processes = len(processes_of_home(home.path))
    pages = []
    async with ServiceLink(home, start=False) as link:
        agents = HomeAgents(home, link)
        for _ in range(PAGES):
            began_s = time.perf_counter()
            page = await agents.agents()
            pages.append(time.perf_counter() - began_s)
        agents.close()
    if not page.next_cursor:
        raise RuntimeError("the agents are not there")
    among_s = await _median_wake_s(home)
    page_ms = statistics.median(pages) * 1e3
    return [
        row(f"{DORMANT} dormant agents: processes", processes, "processes", "", "<= 0"),
        row(f"{DORMANT} dormant agents: first page of ps, p99 {_ms(p99(pages))}", page_ms, "ms", "", "<= 50"),
        row(f"wake of one among {DORMANT} / alone", among_s / alone_s, "x", f"alone, {_ms(alone_s)}", "<= 1.2"),
    ]


async def _measure(base: Path) -> list[Row]:
    wanted = os.environ.get("WAKE_ROWS", "wakes,turns,tokens,dormant").split(",")
    home = Home(base / "home").create()
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(home, lambda _: None, lambda _: None))
        ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, _temp_dir=str(base / "ray"))
        stack.callback(ray.shutdown)
        talk = Talk(client)
        if "wakes" in wanted:
            rows += await _wakes(talk, base)
        if "turns" in wanted:
            rows += await _turns(talk, base)
        if "tokens" in wanted:
            rows += await _tokens(talk)
    await wait_ended(home, DEADLINE_S)
    if "dormant" in wanted:
        rows += await _dormant(base)
    return rows


def paired(values: list[float], floors: list[float]) -> float:
    """Return the median of the ratios of pairs, which are of one moment: a machine is loaded for seconds at a time."""
    return statistics.median(value / least for value, least in zip(values, floors, strict=True))


def p99(values: list[float]) -> float:
    """Return the 99th percentile, the largest of few."""
    return sorted(values)[min(len(values) - 1, round(0.99 * len(values)))]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def row(name: str, value: float, unit: str, against: str = "", target: str = "") -> Row:
    """Return a row."""
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": against}


def run() -> list[Row]:
    """Measure and return the rows."""
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        return asyncio.run(_measure(Path(directory)))
