"""What the watch over keys costs a gateway with 2,000 open streams, each of a key of its own.

Rows: the CPU of a gateway's loop for one look at the keys, which comes five times a second: while nothing changes,
against a look with a single stream; and after a change, which has all keys read again, against one authentication of
each of the callers.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.clock import SystemClock
from coordinator.access.caller import Scope
from coordinator.access.key_access import KeyAccess
from coordinator.homes.sqlite.keys import SqliteKeyRecords

if TYPE_CHECKING:
    from tests.benchmarks.__main__ import Row

STREAMS = 2000
IDLE_S = 4.0


def run() -> list[Row]:
    """Measure the looks."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        return asyncio.run(_measured(Path(folder)))


async def _measured(home: Path) -> list[Row]:
    keys = SqliteKeyRecords(home, "home1")
    texts = [keys.create("bench", "default", [Scope.READ], 1)[1] for _ in range(STREAMS)]
    access = KeyAccess(keys, SystemClock())
    headers = [f"Bearer {text}" for text in texts]
    callers = [await access.authenticate(header) for header in headers]
    await access.close()
    with ExitStack() as opened:
        _ = opened.enter_context(access.watch(callers[0]))
        single = await _idle()
        for caller in callers[1:]:
            _ = opened.enter_context(access.watch(caller))
        await asyncio.sleep(1.0)  # each is read once, at the next look
        idle = await _idle()
        keys.create("another", "default", [Scope.READ], 1)
        began_s = time.process_time()
        await asyncio.sleep(1.0)
        changed_s = time.process_time() - began_s
        began_s = time.process_time()
        for header in headers:
            await access.authenticate(header)
        authenticated_s = time.process_time() - began_s
    await access.close()
    keys.close()
    return [
        {
            "name": f"CPU of a gateway for the keys of {STREAMS} idle streams",
            "value": idle * 100,
            "unit": "%",
            "target": "<= 0.5",
            "floor": f"{single * 100:.3f} % with one stream",
        },
        {
            "name": f"a change of keys, with {STREAMS} streams",
            "value": changed_s / authenticated_s,
            "unit": "x",
            "target": "<= 2",
            "floor": f"{authenticated_s * 1000:.0f} ms for a request of each caller",
        },
    ]


async def _idle() -> float:
    """Return the share of a core that an idle loop takes."""
    began_s = time.process_time()
    await asyncio.sleep(IDLE_S)
    return (time.process_time() - began_s) / IDLE_S
