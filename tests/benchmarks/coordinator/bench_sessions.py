"""Sessions of clients, on a real home with `podium up`.

Rows:

* ten writers on one branch, each of which retries at once with the position that the conflict named: events that are
  lost or doubled, appends a second against those of one writer, and the share of the least served writer;
* an append over HTTP against the same append in this process, on the same home, plus a request over HTTP that does
  nothing (``GET /healthz``): calls of the three kinds in turn, medians.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from coordinator.home import Home
from coordinator.sessions.events import NewEvent, append_event
from coordinator.sessions.write_request import WriteRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.__main__ import Row

WRITERS = 10
RACE_S = 15.0
CALLS = 300
WARM = 30
PODIUM = Path(sys.executable).parent / "podium"
PROJECT = f'agents = ["{Path(__file__).parent / "agents.py"}:Tally"]\n'
PAYLOAD = {"text": "x" * 200}


def run() -> list[Row]:
    """Measure both."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        base = Path(folder)
        (base / "podium.toml").write_text(PROJECT)
        options = ["--home", str(base / "home")]
        served = ["--project", str(base / "podium.toml"), "--port", "0", "--no-auth", "--detach", "--json"]
        started = subprocess.run(
            [str(PODIUM), "up", *served, *options], check=True, capture_output=True, text=True, timeout=180
        )
        url = json.loads(started.stdout)["url"]
        try:
            return [*_races(url), *_one_append(url, Home(base / "home").open())]
        finally:
            subprocess.run([str(PODIUM), "down", *options], check=True, capture_output=True, timeout=180)


# -- races -------------------------------------------------------------------------------------------------------------


def _races(url: str) -> list[Row]:
    alone_s = sum(_race(url, 1)[0].values()) / RACE_S
    won, wrong = _race(url, WRITERS)
    together_s = sum(won.values()) / RACE_S
    floor = f"{alone_s:.0f} appends a second of one writer"
    return [
        {"name": "10 writers: lost or doubled", "value": wrong, "unit": "events", "target": "<= 0", "floor": ""},
        {
            "name": "10 writers: appends a second",
            "value": together_s / alone_s,
            "unit": "x",
            "target": ">= 0.3",
            "floor": floor,
        },
        {
            "name": "10 writers: share of the least served",
            "value": min(won.values()) / sum(won.values()) * 100,
            "unit": "%",
            "target": ">= 3",
            "floor": f"{sum(won.values())} appends",
        },
    ]


def _race(url: str, writers: int) -> tuple[dict[int, int], int]:
    """Let writers race on a new branch; return how many appends each had, and the events that are lost or doubled."""
    with httpx.Client(base_url=url, timeout=60) as http:
        path = _branch(http)
        won = dict.fromkeys(range(writers), 0)
        start = threading.Barrier(writers)
        threads = [threading.Thread(target=_write, args=(url, path, name, won, start)) for name in won]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = [tuple(event["payload"]) for event in _events(http, path)]
    expected = [(name, number) for name, count in won.items() for number in range(count)]
    return won, len(set(expected) ^ set(written)) + len(written) - len(set(written))


def _write(url: str, path: str, name: int, won: dict[int, int], start: threading.Barrier) -> None:
    version, head = 0, None
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=60)) as http:  # the load must be light
        http.connect()
        start.wait()
        until_s = time.monotonic() + RACE_S
        while time.monotonic() < until_s:
            body = json.dumps(_body(version, head, [name, won[name]]))
            http.request("POST", f"{path}/events", body, {"Content-Type": "application/json"})
            answer = http.getresponse()
            found = json.loads(answer.read())
            if answer.status == 201:
                version, head = found["sequence"], found["id"]
                won[name] += 1
            else:
                assert answer.status == 409, found
                version, head = found["error"]["version"], found["error"]["head_event_id"]


def _branch(http: httpx.Client) -> str:
    session = http.post("/v2/sessions", json={}).json()
    return f"/v2/sessions/{session['id']}/branches/{session['default_branch_id']}"


def _body(version: int, head: str | None, payload: Any) -> dict[str, Any]:
    event = {"event_type": "note", "payload": payload}
    return {"expected_version": version, "expected_head_event_id": head, "event": event}


def _events(http: httpx.Client, path: str) -> Iterator[dict[str, Any]]:
    cursor: dict[str, str] = {}
    while True:
        page = http.get(f"{path}/events", params={"limit": 1000, **cursor}).json()
        yield from page["items"]
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


# -- one append --------------------------------------------------------------------------------------------------------


def _one_append(url: str, home: Home) -> list[Row]:
    over_http, in_process, nothing = [], [], []
    ids, clock = IdSource(), SystemClock()
    with (
        httpx.Client(base_url=url, timeout=60) as http,
        closing(home.journal()) as store,
        closing(home.blobs()) as blobs,
    ):
        near, far = _branch(http), _branch(http)
        _, _, _, session_id, _, branch_id = near.split("/")
        near_at: tuple[int, str | None] = (0, None)
        far_at: tuple[int, str | None] = (0, None)
        for number in range(WARM + CALLS):
            began_s = time.perf_counter()
            made = http.post(f"{far}/events", json=_body(*far_at, PAYLOAD)).json()
            http_s = time.perf_counter() - began_s
            far_at = made["sequence"], made["id"]
            began_s = time.perf_counter()
            new = NewEvent(*near_at, "note", PAYLOAD)
            request = WriteRequest("default", None, ids, clock.now_ms())
            event = append_event(store, blobs, request, session_id, branch_id, new)
            process_s = time.perf_counter() - began_s
            near_at = event["sequence"], event["id"]
            began_s = time.perf_counter()
            http.get("/healthz")
            nothing_s = time.perf_counter() - began_s
            if number >= WARM:
                over_http.append(http_s)
                in_process.append(process_s)
                nothing.append(nothing_s)
    far_ms, near_ms, nothing_ms = (statistics.median(each) * 1000 for each in (over_http, in_process, nothing))
    return [
        {
            "name": "append over HTTP",
            "value": far_ms / (near_ms + nothing_ms),
            "unit": "x",
            "target": "<= 1.5",
            "floor": f"{near_ms:.2f} ms in process and {nothing_ms:.2f} ms of a request that does nothing",
        }
    ]
