"""Streams of a served home whose processes are killed: every client ends right."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.client.sse_parser import SseParser
from coordinator.gateway_record import gateway_runs
from coordinator.home import Home
from tests.e2e.conftest import AGENTS, Podium, fresh_home, kill_at_once, processes_of
from tests.unit.coordinator.streams.stories import Reader
from tests.waiting import DEADLINE_S, INTERVAL_S, until, wait_until

KEYS = ("a", "b")
STREAMS = 50
DAEMON = "coordinator.service.daemon"
HOSTS = "ray::HostActor"


class Client:
    """One that reads a message's stream and resumes it after each loss, as an EventSource does."""

    def __init__(self, url: str, path: str) -> None:
        self._url = url + path
        self.got = Reader()
        self.attempts = 0
        self.last: dict[str, Any] = {}
        self.last_id = ""
        self.losses = 0

    async def run(self, http: httpx.AsyncClient) -> None:
        while self.last.get("type") != "agent_end":
            try:
                await self._read(http)
            except httpx.TransportError:
                self.losses += 1
            await asyncio.sleep(INTERVAL_S)

    async def _read(self, http: httpx.AsyncClient) -> None:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self.last_id} if self.last_id else {})}
        parser = SseParser(last_event_id=self.last_id)
        async with http.stream("GET", self._url, headers=headers) as answer:
            if answer.status_code == 503:  # the service is starting
                return
            assert answer.status_code == 200, await answer.aread()
            async for chunk in answer.aiter_raw():
                for event in parser.feed(chunk):
                    self.last = json.loads(event.data)
                    self.got.take(self.last)
                    self.attempts += self.last["type"] == "turn_start"
                self.last_id = parser.last_event_id
        if self.last.get("type") != "agent_end":
            self.losses += 1


@pytest.fixture
def podium(tmp_path: Path) -> Iterator[Podium]:
    shutil.copy(AGENTS / "plain.py", tmp_path)
    (tmp_path / "podium.toml").write_text('agents = ["plain.py:Patient"]\n')
    with fresh_home({"PODIUM_STOP_TIMEOUT_S": "5"}) as podium:
        try:
            yield podium
        finally:
            podium("down", check=False)


def serve(podium: Podium, project: Path, port: int = 0) -> dict[str, Any]:
    """Serve in the background."""
    options = ["--project", str(project), "--port", str(port), "--no-auth", "--detach", "--json"]
    started: dict[str, Any] = json.loads(podium("up", *options).stdout)
    return started


async def test_clients_of_killed_hosts_services_and_gateways_end_right(podium: Podium, tmp_path: Path) -> None:
    started = await asyncio.to_thread(serve, podium, tmp_path / "podium.toml")
    url, gate = started["url"], tmp_path / "gate"
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=DEADLINE_S, limits=limits) as http:
        paths = []
        for key in KEYS:
            answer = await http.post(
                f"{url}/v1/agents/patient/{key}/messages",
                json={"message": {"text": f"wait for {gate}"}},
                headers={"Prefer": "respond-async"},
            )
            assert answer.status_code == 202, answer.text
            paths.append(f"/v1/agents/patient/{key}/messages/{answer.json()['message_id']}")
        clients = [Client(url, paths[number % len(paths)]) for number in range(STREAMS)]
        async with asyncio.timeout(3 * DEADLINE_S), asyncio.TaskGroup() as tasks:
            for client in clients:
                _ = tasks.create_task(client.run(http))

            async def all_at(attempt: int) -> None:
                await until(lambda: min(client.attempts for client in clients) >= attempt, deadline_s=2 * DEADLINE_S)

            await all_at(1)
            kill_at_once(processes_of(podium, HOSTS))
            await all_at(2)
            before = processes_of(podium, DAEMON)
            kill_at_once(before)
            await until(lambda: set(processes_of(podium, DAEMON)) - set(before), "the service is not started again")
            await all_at(3)
            os.kill(started["pid"], signal.SIGKILL)
            wait_until(lambda: not gateway_runs(Home(podium.home)))
            await until(lambda: min(client.losses for client in clients) >= 1, "a client did not notice")
            await asyncio.to_thread(serve, podium, tmp_path / "podium.toml", int(url.rpartition(":")[2]))
            gate.touch()
    for client in clients:
        assert client.last["outcome"] == "committed"
        assert len(client.got.attempts) >= 3
        assert len(set(client.got.once)) == len(client.got.once), "something came twice"
    for number in range(len(KEYS)):
        texts = {"".join(list(client.got.attempts.values())[-1].values()) for client in clients[number :: len(KEYS)]}
        assert len(texts) == 1, "all read the same"
        assert texts.pop().endswith(" 1"), "the turn that was committed, in full"
