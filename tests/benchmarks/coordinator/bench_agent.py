"""Waking and talking to an agent on real Ray, against raw Ray in the same run.

Rows:

* waking a stored agent with its mount (a warm host is ready, as always when agents sleep), from the request to the
  first frame of its turn, against a cold raw Ray actor's start, creation to first answer;
* one turn on an active agent (admission, turn with a file and a counter, durable commit, streamed frames), against a
  raw Ray call.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ray

from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from coordinator.client_messages import Admission
from coordinator.fleet.model import Code
from coordinator.home import Home
from coordinator.ray.router import Router
from coordinator.service.message_delivery import MessageDelivery
from coordinator.settings import Settings
from podium.address import Address
from podium.turn.busy import BusyPolicy

AGENT = Path(__file__).parent / "agents.py"
RUNS = 7
TURNS = 50
STORED_TURNS = 100
INBOX_LIMIT = 10


@ray.remote(num_cpus=0)
class Bare:
    """The least actor there is."""

    def ping(self) -> int:
        """Answer."""
        return 1


class Bench:
    """A fleet under measurement."""

    def __init__(self, router: Router, admission: Admission) -> None:
        self._router = router
        self._delivery = MessageDelivery(router, Settings().silence_s)
        self._admission = admission
        self._codes = {name.lower(): Code(str(AGENT), name, name.lower()) for name in ("Tally", "Sleeper")}

    async def register(self) -> None:
        """Make the agents' code known, so that a host is warmed for each."""
        for code in self._codes.values():
            await self._router.prepare(Address(code.agent_type, "one"), code)

    async def turn(self, address: Address) -> tuple[float, float]:
        """Send a message; return the seconds to the first frame of its turn and to its end."""
        began_s = time.perf_counter()
        started_s = 0.0
        admitted = self._admission.admit(address, encode({"text": "count"}), None, BusyPolicy.ENQUEUE)
        async for batch in self._delivery.deliver(address, self._codes[address.agent_type], admitted):
            for frame in batch:
                if not started_s and frame["type"] != "agent_start":
                    started_s = time.perf_counter() - began_s
                if frame["type"] == "error":
                    raise RuntimeError(str(frame))
        return started_s, time.perf_counter() - began_s

    async def warm(self) -> None:
        """Wait until a warm host is ready for each code."""
        while sum(host["status"] == "warm" for host in await self._router.running()) < len(self._codes):
            await asyncio.sleep(0.02)

    async def asleep(self, address: Address) -> None:
        """Wait until an agent's process is gone."""
        while any(host["agent"] == str(address) for host in await self._router.running()):
            await asyncio.sleep(0.02)


async def _cold_actor_s() -> float:
    began_s = time.perf_counter()
    actor: Any = Bare.remote()  # type: ignore[attr-defined]
    await actor.ping.remote()
    took_s = time.perf_counter() - began_s
    ray.kill(actor)
    return took_s


async def _raw_call_s(actor: Any) -> float:
    began_s = time.perf_counter()
    await actor.ping.remote()
    return time.perf_counter() - began_s


async def _measure(home: Home) -> list[dict[str, Any]]:
    router = Router(home, Settings(warm_hosts=1))
    store, blobs = home.journal(), home.blobs()
    try:
        await router.start(on_stage=lambda _: None)
        bench = Bench(router, Admission(store, blobs, IdSource(), SystemClock(), INBOX_LIMIT))
        await bench.register()
        cold, wakes, turns, calls = [], [], [], []
        sleeper, active = Address("sleeper", "one"), Address("tally", "one")
        for _ in range(STORED_TURNS):
            await bench.turn(sleeper)
        for _ in range(RUNS):
            await bench.asleep(sleeper)
            await bench.warm()
            cold.append(await _cold_actor_s())
            started_s, _ = await bench.turn(sleeper)
            wakes.append(started_s)
        raw: Any = Bare.remote()  # type: ignore[attr-defined]
        await bench.turn(active)
        for _ in itertools.repeat(None, TURNS):
            calls.append(await _raw_call_s(raw))
            turns.append((await bench.turn(active))[1])
    finally:
        await router.stop()
        store.close()
        blobs.close()
    wake, turn = statistics.median(wakes), statistics.median(turns)
    actor, call = statistics.median(cold), statistics.median(calls)
    return [
        _row(f"cold raw Ray actor (median of {RUNS})", actor * 1e3, "ms", "", ""),
        _row(f"wake of an agent of {STORED_TURNS} turns, with mount", wake * 1e3, "ms", "", ""),
        _row("wake / cold raw Ray actor", wake / actor, "x", "", "cold raw Ray actor"),
        _row(f"raw Ray call (median of {TURNS})", call * 1e3, "ms", "", ""),
        _row("turn on an active agent, durable, with a file", turn * 1e3, "ms", "", ""),
        _row("turn / raw Ray call", turn / call, "x", "", "raw Ray call"),
    ]


def _row(name: str, value: float, unit: str, target: str, floor: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": floor}


def run() -> list[dict[str, Any]]:
    """Measure and return the rows."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        return asyncio.run(_measure(Home(Path(directory) / "home").create()))
