"""Programs that `bench_cluster` runs on machines: ``python -m tests.benchmarks.coordinator.cluster_programs NAME …``.

Times are of the monotonic clock, which namespaces on one machine have in common.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from coordinator.client import AsyncPodium, ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TEXT = "x" * 600
AGAIN_S = 0.05
RECONNECT_S = 1.0


async def probe(url: str, agent: str) -> None:
    """Send messages one after the other for ever; print when each was answered, and where."""
    async with AsyncPodium(url=url, reconnect_s=RECONNECT_S) as client:
        for number in itertools.count():
            while True:
                try:
                    answer = await client.ask(agent, {"text": str(number)}, idempotency_key=f"probe-{number}")
                except ClientError:
                    await asyncio.sleep(AGAIN_S)
                else:
                    break
            print(time.monotonic(), answer.data["place"], flush=True)


async def turns(url: str, agent: str, count: str) -> None:
    """Print the median seconds of turns of an agent, which is awake then."""
    async with AsyncPodium(url=url) as client:
        await client.ask(agent, {"text": TEXT})
        seconds = []
        for _ in range(int(count)):
            began_s = time.perf_counter()
            await client.ask(agent, {"text": TEXT})
            seconds.append(time.perf_counter() - began_s)
    print(json.dumps(median(seconds)))


async def calls(address: str, conninfo: str, count: str) -> None:
    """Print the median seconds of calls of an actor on another machine, with a committed INSERT each."""
    import psycopg
    import ray

    @ray.remote(num_cpus=0, resources={"apart": 0.001})
    class Bare:
        def answer(self, text: str) -> str:
            return text

    ray.init(address=address, log_to_driver=False)
    actor: Any = Bare.remote()  # type: ignore[attr-defined]
    await actor.answer.remote(TEXT)
    with psycopg.connect(conninfo, autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS floor (id BIGINT GENERATED ALWAYS AS IDENTITY, text TEXT)")
        seconds = []
        for _ in range(int(count)):
            began_s = time.perf_counter()
            await actor.answer.remote(TEXT)
            db.execute("INSERT INTO floor (text) VALUES (%s)", (TEXT,))
            seconds.append(time.perf_counter() - began_s)
    print(json.dumps(median(seconds)))


async def wake(url: str, agent_type: str, count: str) -> None:
    """Wake so many agents, some at a time, and print how many are on each machine."""
    some = asyncio.Semaphore(16)
    found: dict[str, int] = {}

    async def one(client: AsyncPodium, number: int) -> None:
        async with some:
            place = (await client.ask(f"{agent_type}/{number}", {"text": ""})).data["place"]
            found[place] = found.get(place, 0) + 1

    async with AsyncPodium(url=url) as client, asyncio.TaskGroup() as tasks:
        for number in range(int(count)):
            tasks.create_task(one(client, number))
    print(json.dumps(found))


PROGRAMS: dict[str, Callable[..., Awaitable[None]]] = {each.__name__: each for each in (probe, turns, calls, wake)}

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[arg-type]
