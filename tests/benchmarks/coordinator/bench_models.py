"""Calls of models: what the model gateway adds to a token, and what the vendors' libraries take where.

A local model server writes the time into each token when it sends it. A token's latency is from there to the client:
read by the provider in this process, or through the gateway's process and its socket. Calls of both sides in turn, in
the same run; medians of all tokens. The memory of an agent's process is that of one that calls a model through the
gateway, less that of the same process before its first call; the modules of the vendors in it are counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from chronicle.ids import IdSource
from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.models.calls import CallRecord, ModelRequest
from coordinator.models.client import ModelClient
from coordinator.models.config_file import store_config
from coordinator.models.profiles import ModelsConfig, Profile
from coordinator.models.supervisor import ModelProcess
from podium.models.openai_compat.provider import OpenAICompatProvider
from tests.benchmarks.coordinator.timed_tokens import ASKED, latencies, timed_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.benchmarks.__main__ import Row

CALLS: Final = 20
IDS: Final = IdSource()
AGENT: Final = """
import asyncio, json, sys
from pathlib import Path
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from coordinator.host.agent_host import AgentHost
from coordinator.host.host_models import HostModels
from podium.address import Address
from podium.models.port import LLMMessage
from podium.models.quality import QualityOfService
from podium.turn.ports import ModelCall

def private_kb():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))

async def call(models):
    asked = ModelCall(
        Address("a", "b"), 1, "openai", [LLMMessage("user", "x")], None, None, None, QualityOfService(), None
    )
    async for _ in models.stream(asked):
        pass

before = private_kb()
asyncio.run(call(HostModels(Path(sys.argv[1]), IdSource(), SystemClock())))
after = private_kb()
vendors = [name for name in sys.modules if name.partition(".")[0] in {"openai", "anthropic", "httpx2"}]
print(json.dumps([after - before, len(vendors)]))
"""


def run() -> list[Row]:
    """Measure and return the rows."""
    return asyncio.run(_measured())


async def _measured() -> list[Row]:
    with (
        timed_server() as server,
        tempfile.TemporaryDirectory(prefix="podium-bench-") as directory,
    ):
        home = Home(Path(directory) / "home").create()
        home.make_run_dir()
        store_config(
            open_records(home).documents(),
            ModelsConfig(
                {
                    "openai": Profile("openai", "openai", "m", base_url=server.openai_url),
                    "anthropic": Profile("anthropic", "anthropic", "m", base_url=server.url),
                }
            ),
        )
        direct = OpenAICompatProvider("m", base_url=server.openai_url)
        try:
            async with ModelProcess(home, open_records(home).documents(), dict(os.environ)):
                client = ModelClient(home.models_socket)
                process_id = await client.process_id()
                for profile in ("openai", "anthropic"):
                    await latencies(_through(client, profile))
                alone: list[float] = []
                gateway: list[float] = []
                for _ in range(CALLS):
                    alone += await latencies(direct.stream(ASKED))
                    gateway += await latencies(_through(client, "openai"))
                both = _pss_mb(process_id)
                grown_kb, vendors = await asyncio.to_thread(_agent, home.models_socket)
        finally:
            await direct.aclose()
            home.remove_run_dir()
    read = f"read by the provider in this process, {median(alone) * 1000:.2f} ms"
    return [
        _row("a token through the gateway: added", (median(gateway) - median(alone)) * 1000, "ms", "<= 3", read),
        _row("the gateway idle, with both SDKs", both, "MB", "", "PSS, the vendors' libraries imported at its start"),
        _row("vendors' modules in an agent's process", vendors, "", "<= 0", "none: the gateway has them"),
        _row(
            "an agent's process: its first call", grown_kb / 1024, "MB", "", "private memory; the client of the socket"
        ),
    ]


async def _through(client: ModelClient, profile: str) -> AsyncGenerator[Any, None]:
    request = ModelRequest(IDS.other("call_", 0), "default", profile, ASKED, owner="bench/a")
    async with aclosing(client.stream(request)) as answers:
        async for answer in answers:
            if not isinstance(answer, CallRecord):
                yield answer


def _agent(socket: Path) -> tuple[float, float]:
    """Call a model as an agent's process does; return how much it grew, kB, and the number of vendors' modules."""
    done = subprocess.run([sys.executable, "-c", AGENT, str(socket)], check=True, capture_output=True, text=True)
    grown_kb, vendors = json.loads(done.stdout)
    return grown_kb, vendors


def _pss_mb(process_id: int) -> float:
    found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{process_id}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def _row(name: str, value: float, unit: str, target: str, against: str) -> Row:
    return {"name": name, "value": round(value, 3), "unit": unit, "target": target, "floor": against}
