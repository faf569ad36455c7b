"""What a response costs: building the context of a long session, and the way of a token to the client.

Rows:

* a session of 500 messages without payloads (250 questions, 250 responses, 250 answers) with a pinned bundle of 1 MB,
  on a real home: the time to build the context of its next response, against the first build by a process that has read
  nothing of it. Between two builds two events and a response are added, as the loop of a client does;
* a token of a streamed response of a home with `podium up`, through the model gateway and over HTTP, against the same
  token of the same local model server, read by the provider in this process: calls of both sides in turn, medians. The
  server writes the time into each token when it sends it;
* of the same home, how late the 504 of a response comes whose deadline is over, by the client's clock, against a round
  trip of `/healthz`. The model says nothing until long after the deadline. Both in turn, medians.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from coordinator.home import Home
from coordinator.responses.context import ContextBuilder, context_messages
from coordinator.responses.items import user_item
from coordinator.responses.reading import SessionReader
from podium.models.openai_compat.provider import OpenAICompatProvider
from tests.benchmarks.coordinator.timed_tokens import ASKED, latencies, sent_ns, timed_server
from tests.unit.coordinator.responses.loops import Loop

if TYPE_CHECKING:
    from tests.benchmarks.__main__ import Row

MESSAGES = 500
BUNDLE_BYTES = 1_000_000
FIRST, NEXT = 5, 20
CALLS = 20
DEADLINES, DEADLINE_MS = 15, 200
AGENTS = Path(__file__).parent / "agents.py"
PROJECT = """
agents = ["{agents}:Tally"]
[models.timed]
provider = "openai"
model = "m"
base_url = "{url}"
[models.silent]
provider = "scripted"
script = "silent.json"
"""


def run() -> list[Row]:
    """Measure both."""
    return [_context(), *asyncio.run(_served())]


# -- the context -------------------------------------------------------------------------------------------------------


def _context() -> Row:
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        home = Home(Path(folder) / "home").create()
        store, blobs = home.journal(), home.blobs()
        try:
            loop = Loop(store, blobs, IdSource(), SystemClock())
            loop.open("word " * (BUNDLE_BYTES // 5))
            for number in range(MESSAGES // 2):
                loop.turn(f"question {number}: " + "why " * 20, f"answer {number}: " + "because " * 50)
            reader = SessionReader(store, blobs, SystemClock())
            first = [_build(ContextBuilder(), reader, loop) for _ in range(FIRST)]
            builder, again = ContextBuilder(), []
            _build(builder, reader, loop)
            for number in range(NEXT):
                loop.turn(f"further question {number}", "answer")
                again.append(_build(builder, reader, loop))
        finally:
            store.close()
            blobs.close()
    first_s, again_s = statistics.median(first), statistics.median(again)
    floor = f"{again_s * 1000:.2f} ms against {first_s * 1000:.1f} ms"
    name = f"context of {MESSAGES} messages and 1 MB, next against first build"
    return {"name": name, "value": again_s / first_s, "unit": "x", "target": "<= 0.1", "floor": floor}


def _build(builder: ContextBuilder, reader: SessionReader, loop: Loop) -> float:
    """Return the time of one build, s."""
    began_s = time.perf_counter()
    context = builder.build(reader, loop.tenant, loop.session_id)
    messages = context_messages(context, None, [user_item("and now?")])
    took_s = time.perf_counter() - began_s
    assert len(messages) >= MESSAGES + 2
    assert messages[1].text.startswith("question 0")
    return took_s


# -- tokens ------------------------------------------------------------------------------------------------------------


async def _served() -> list[Row]:
    with timed_server() as server, tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        base = Path(folder)
        (base / "podium.toml").write_text(PROJECT.format(agents=AGENTS, url=server.openai_url))
        (base / "silent.json").write_text(json.dumps([{"text": "too late", "delay_ms": 600_000}]))
        options = ["--home", str(base / "home")]
        served = ["--project", str(base / "podium.toml"), "--port", "0", "--no-auth", "--detach", "--json"]
        started = await asyncio.to_thread(_podium, "up", *served, *options)
        direct = OpenAICompatProvider("m", base_url=server.openai_url)
        try:
            async with httpx.AsyncClient(base_url=json.loads(started)["url"], timeout=60) as http:
                return [await _tokens(http, direct), await _deadlines(http)]
        finally:
            await direct.aclose()
            await asyncio.to_thread(_podium, "down", *options)


async def _tokens(http: httpx.AsyncClient, direct: OpenAICompatProvider) -> Row:
    alone: list[float] = []
    over_http: list[float] = []
    await _response(http)
    await latencies(direct.stream(ASKED))
    for _ in range(CALLS):
        alone += await latencies(direct.stream(ASKED))
        over_http += await _response(http)
    return {
        "name": "a token of a response over HTTP: added",
        "value": (statistics.median(over_http) - statistics.median(alone)) * 1000,
        "unit": "ms",
        "target": "<= 3",
        "floor": f"read by the provider in this process, {statistics.median(alone) * 1000:.2f} ms",
    }


async def _deadlines(http: httpx.AsyncClient) -> Row:
    body = {"model": "silent", "input": "go on", "qos": {"deadline_ms": DEADLINE_MS}}
    late: list[float] = []
    probes: list[float] = []
    for _ in range(DEADLINES):
        began_s = time.perf_counter()
        answer = await http.post("/v2/responses", json=body)
        late.append(time.perf_counter() - began_s - DEADLINE_MS / 1000)
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        began_s = time.perf_counter()
        await http.get("/healthz")
        probes.append(time.perf_counter() - began_s)
    late_s, probe_s = statistics.median(late), statistics.median(probes)
    return {
        "name": "the 504 of a deadline: late, in round trips of /healthz",
        "value": late_s / probe_s,
        "unit": "x",
        "target": "<= 2",
        "floor": f"{late_s * 1000:.2f} ms against {probe_s * 1000:.2f} ms",
    }


async def _response(http: httpx.AsyncClient) -> list[float]:
    """Return the latencies of the tokens of a streamed response, s."""
    found = []
    body = {"model": "timed", "input": "go on", "stream": True}
    async with http.stream("POST", "/v2/responses", json=body) as answer:
        async for line in answer.aiter_lines():
            now_ns = time.monotonic_ns()
            if line.startswith('data: {"') and "response.output_text.delta" in line:
                sent = sent_ns(json.loads(line.removeprefix("data: "))["delta"])
                found += [(now_ns - sent) / 1e9] if sent is not None else []
    assert found
    return found


def _podium(*arguments: str) -> str:
    command = [str(Path(sys.executable).parent / "podium"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout
