"""What the gateway adds: to a message's first token, and to the fan-out of streams.

Rows:

* time from sending a message over HTTP to its first token, against the same call over the local socket, on a real
  home: `podium up`, an agent that is awake, calls of both kinds in turn, medians;
* there, the time of an answer by `ask` of the client library, against a plain `POST` of the same message;
* 1,000 open streams over 50 agents that say 20 tokens a second each, read by one process: lost or doubled tokens;
  memory of the gateway a stream; its CPU a delivered token against a bare Starlette app that sends the same bytes to as
  many streams; the time from the saying of a token to its arrival. Fifty Ray hosts are more than two cores can hold, so
  a scripted process plays the service here: it speaks the service's protocol on the home's socket. The gateway is the
  real application, over a real journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from coordinator.client import AsyncPodium
from coordinator.client_messages import Admission
from coordinator.home import Home
from coordinator.service.link import ServiceLink
from podium.address import Address
from podium.turn.busy import BusyPolicy
from tests.benchmarks.coordinator.gateway_sides import AGENTS, TOKENS_PER_S, side

if TYPE_CHECKING:
    from tests.benchmarks.__main__ import Row

STREAMS = 1000
WARM_S = 3.0
MEASURED_S = 10.0
CALLS = 60
PODIUM = Path(sys.executable).parent / "podium"
PROJECT = f'agents = ["{Path(__file__).parent / "agents.py"}:Tally"]\n'
MESSAGE = {"text": "count"}
_TOKEN = re.compile(rb"(\d+):(\d+\.\d{4}) ")


def run() -> list[Row]:
    """Measure both."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        base = Path(folder)
        return [*asyncio.run(_fan_out(base / "scripted")), *_first_token(base)]


# -- the first token ---------------------------------------------------------------------------------------------------


def _first_token(base: Path) -> list[Row]:
    (base / "podium.toml").write_text(PROJECT)
    home = base / "home"
    options = ["--home", str(home)]
    command = [
        str(PODIUM),
        "up",
        "--project",
        str(base / "podium.toml"),
        "--port",
        "0",
        "--no-auth",
        "--detach",
        "--json",
    ]
    started = subprocess.run([*command, *options], check=True, capture_output=True, text=True, timeout=180)
    try:
        url = urlsplit(json.loads(started.stdout)["url"])
        over_http, over_socket = asyncio.run(_calls(Home(home).open(), url.port or 80))
        asked, posted = asyncio.run(_asks(url.geturl()))
    finally:
        subprocess.run([str(PODIUM), "down", *options], check=True, capture_output=True, timeout=180)
    added = (statistics.median(over_http) - statistics.median(over_socket)) * 1000
    floor = f"{statistics.median(over_socket) * 1000:.1f} ms over the local socket"
    plain = f"a plain POST, {posted * 1000:.1f} ms"
    return [
        {"name": "HTTP to first token, added", "value": added, "unit": "ms", "target": "<= 5", "floor": floor},
        {"name": "ask of the client library", "value": asked / posted, "unit": "x", "target": "<= 1.3", "floor": plain},
    ]


async def _calls(home: Home, port: int) -> tuple[list[float], list[float]]:
    """Return the times to the first token, over HTTP and over the socket, s."""
    over_http, over_socket = [], []
    async with ServiceLink(home, start=False) as link:
        for number in range(CALLS + 10):
            http_s, socket_s = await _call_http(port), await _call_socket(link)
            if number >= 10:  # the first ones wake the agent and warm caches
                over_http.append(http_s)
                over_socket.append(socket_s)
    return over_http, over_socket


async def _asks(url: str) -> tuple[float, float]:
    """Return the median times of an answer, by the client library and by a plain request, s."""
    asked, posted = [], []
    async with httpx.AsyncClient(timeout=60) as http, AsyncPodium(url=url) as podium:
        for number in range(CALLS + 10):
            began_s = time.perf_counter()
            await podium.ask("tally/b", MESSAGE)
            between_s = time.perf_counter()
            (await http.post(f"{url}/v1/agents/tally/b/messages", json={"message": MESSAGE})).raise_for_status()
            if number >= 10:
                asked.append(between_s - began_s)
                posted.append(time.perf_counter() - between_s)
    return statistics.median(asked), statistics.median(posted)


async def _call_http(port: int) -> float:
    body = json.dumps({"message": MESSAGE}).encode()
    began_s = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/agents/tally/a/messages HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    await reader.readuntil(b'"message_update"')
    first_s = time.perf_counter() - began_s
    await reader.readuntil(b'"agent_end"')
    writer.close()
    await writer.wait_closed()
    return first_s


async def _call_socket(link: ServiceLink) -> float:
    client = await link.client()
    began_s = time.perf_counter()
    first_s = 0.0
    admitted = await client.admit("tally/a", MESSAGE)
    async for frame in client.follow("tally/a", admitted.message_id):
        if frame["type"] == "message_update":
            first_s = time.perf_counter() - began_s
    return first_s


# -- the fan-out -------------------------------------------------------------------------------------------------------


@dataclass
class Reading:
    """What a thousand readers measured of a server."""

    kb_a_stream: float
    cpu_us_a_token: float
    tokens_per_s: float
    faults: int
    """Tokens that a stream lost or got twice."""
    lag_s: float
    """The longest time from the saying of a token to its arrival, but for one in a thousand."""


async def _fan_out(home: Path) -> list[Row]:
    _make_home(home)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * STREAMS)), hard))  # of the sides, too
    async with side("bare", str(home)) as (pid, port):
        bare = await _read(pid, int(port), home)
    async with side("service", str(home)), side("gateway", str(home)) as (pid, port):
        gateway = await _read(pid, int(port), home)
    ratio = gateway.cpu_us_a_token / bare.cpu_us_a_token
    rate = f"{gateway.tokens_per_s:.0f} tokens/s delivered"
    cpu = f"{bare.cpu_us_a_token:.1f} us of a bare Starlette app"
    memory = f"{bare.kb_a_stream:.1f} KB of a bare Starlette app"
    return [
        {"name": "lost or doubled tokens", "value": gateway.faults, "unit": "", "target": "<= 0", "floor": rate},
        {"name": "CPU a token", "value": ratio, "unit": "x", "target": "<= 3", "floor": cpu},
        {"name": "memory a stream", "value": gateway.kb_a_stream, "unit": "KB", "target": "<= 50", "floor": memory},
        {
            "name": "lag, 99.9 %",
            "value": gateway.lag_s,
            "unit": "s",
            "target": "<= 1",
            "floor": f"{bare.lag_s:.2f} s of a bare Starlette app",
        },
    ]


def _make_home(path: Path) -> None:
    """Make a home with a message for each agent, which the scripted service will handle."""
    home = Home(path).create()
    store, blobs = home.journal(), home.blobs()
    admission = Admission(store, blobs, IdSource(), SystemClock(), 10)
    ids = [
        admission.admit(Address("bench", str(number)), encode(MESSAGE), None, BusyPolicy.ENQUEUE).message_id
        for number in range(AGENTS)
    ]
    (path / "messages.json").write_text(json.dumps(ids))
    store.close()
    blobs.close()


async def _read(pid: int, port: int, home: Path) -> Reading:
    """Open all streams, read them for a while, and measure the server."""
    messages = json.loads((home / "messages.json").read_text())
    loop = asyncio.get_running_loop()
    before_kb = _pss_kb(pid)
    clients = []
    for number in range(STREAMS):
        agent = number % AGENTS
        transport, client = await loop.create_connection(_Client, "127.0.0.1", port)
        transport.write(
            f"GET /v1/agents/bench/{agent}/messages/{messages[agent]} HTTP/1.1\r\n"
            "Host: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        clients.append((transport, client))
        if number % 50 == 49:
            await asyncio.sleep(0.05)
    while not all(client.chunks for _, client in clients):
        await asyncio.sleep(0.1)
    await asyncio.sleep(WARM_S)
    kb_a_stream = (_pss_kb(pid) - before_kb) / STREAMS
    began_s, began_cpu_s = time.monotonic(), _cpu_s(pid)
    await asyncio.sleep(MEASURED_S)
    ended_s, ended_cpu_s = time.monotonic(), _cpu_s(pid)
    for transport, _ in clients:
        transport.abort()
    faults, tokens, lags = 0, 0, []
    for _, client in clients:
        numbers, measured, of_client = client.tokens(began_s, ended_s)
        faults += sum(after != before + 1 for before, after in pairwise(numbers))
        tokens += measured
        lags += of_client
    lags.sort()
    return Reading(
        kb_a_stream,
        (ended_cpu_s - began_cpu_s) / tokens * 1e6,
        tokens / (ended_s - began_s),
        faults + (tokens < 0.9 * STREAMS * TOKENS_PER_S * (ended_s - began_s)),
        lags[int(len(lags) * 0.999)],
    )


class _Client(asyncio.Protocol):
    """Keeps what comes, and when; it is parsed after the measurement."""

    def __init__(self) -> None:
        self.chunks: list[tuple[float, bytes]] = []

    def data_received(self, data: bytes) -> None:
        self.chunks.append((time.monotonic(), data))

    def tokens(self, began_s: float, ended_s: float) -> tuple[list[int], int, list[float]]:
        """Return the numbers of all tokens, how many came in a time, and how late each of these was."""
        numbers: list[int] = []
        lags: list[float] = []
        rest = b""
        for arrived_s, chunk in self.chunks:
            data = rest + chunk
            end = 0
            for found in _TOKEN.finditer(data):
                numbers.append(int(found[1]))
                end = found.end()
                if began_s <= arrived_s < ended_s:
                    lags.append(arrived_s - float(found[2]))
            rest = data[end:][-64:]  # a token may be cut between two chunks
        return numbers, len(lags), lags


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss_kb(pid: int) -> int:
    found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
