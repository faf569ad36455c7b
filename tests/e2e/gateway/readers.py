"""Readers of the streams of a served home, which resume them after each loss."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from coordinator.client.sse_parser import SseParser
from tests.e2e.conftest import Podium
from tests.unit.coordinator.streams.stories import Reader
from tests.waiting import DEADLINE_S, INTERVAL_S, until

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


class Readers:
    """Many clients, which read the messages of a few agents of the type ``patient``.

    Args:
        url: of the gateway.
        keys: of the agents.
    """

    def __init__(self, http: httpx.AsyncClient, url: str, keys: tuple[str, ...]) -> None:
        self._http = http
        self._url = url
        self._keys = keys
        self.clients: list[Client] = []

    async def begin(self, tasks: asyncio.TaskGroup, text: str, clients: int) -> None:
        """Send each agent a message, and have so many clients read what it answers."""
        paths = []
        for key in self._keys:
            answer = await self._http.post(
                f"{self._url}/v1/agents/patient/{key}/messages",
                json={"message": {"text": text}},
                headers={"Prefer": "respond-async"},
            )
            assert answer.status_code == 202, answer.text
            paths.append(f"/v1/agents/patient/{key}/messages/{answer.json()['message_id']}")
        self.clients = [Client(self._url, paths[number % len(paths)]) for number in range(clients)]
        for client in self.clients:
            _ = tasks.create_task(client.run(self._http))

    async def all_at(self, attempt: int) -> None:
        """Wait until each has seen an attempt."""
        await until(lambda: min(client.attempts for client in self.clients) >= attempt, deadline_s=2 * DEADLINE_S)

    async def all_lost(self) -> None:
        """Wait until each has lost its gateway."""
        await until(lambda: min(client.losses for client in self.clients) >= 1, "a client did not notice")

    def assert_right(self) -> None:
        """All have the turn that was committed, in full, and nothing twice."""
        for client in self.clients:
            assert client.last["outcome"] == "committed"
            assert len(client.got.attempts) >= 3
            assert len(set(client.got.once)) == len(client.got.once), "something came twice"
        for number in range(len(self._keys)):
            clients = self.clients[number :: len(self._keys)]
            texts = {"".join(list(client.got.attempts.values())[-1].values()) for client in clients}
            assert len(texts) == 1, "all read the same"
            assert texts.pop().endswith(" 1"), "the turn that was committed, in full"


def serve(podium: Podium, project: Path, port: int = 0) -> dict[str, Any]:
    """Serve in the background, with the page."""
    options = ["--project", str(project), "--port", str(port), "--no-auth", "--ui", "--detach", "--json"]
    started: dict[str, Any] = json.loads(podium("up", *options).stdout)
    return started
