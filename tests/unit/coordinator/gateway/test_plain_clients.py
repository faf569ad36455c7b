"""What a program needs to talk to agents: a URL, a key from its environment, and httpx, or the client library."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from coordinator.access.caller import Scope
from coordinator.client import AsyncPodium
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.testing import parse_sse_stream
from podium.agent import AgentContext, BaseAgent, DeltaState
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.gateway.test_streams import on_a_socket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


class Counter(BaseAgent):
    """Counts its messages."""

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.send_message(f"{ctx.state.count}: {message['text']}")
        ctx.reply({"count": ctx.state.count})


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The URL of a gateway that asks for keys; the environment has it, and a key."""
    keys = SqliteKeyRecords(tmp_path, "home1")
    _, key = keys.create("program", "default", [Scope.WRITE], 1)
    async with served_home(tmp_path / "home", Counter, keys=keys) as home, on_a_socket(home.app) as url:
        monkeypatch.setenv("PODIUM_URL", url)
        monkeypatch.setenv("PODIUM_KEY", key)
        yield url


# S0.2, S0.3
async def test_httpx_and_a_key_from_the_environment_are_enough(gateway: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['PODIUM_KEY']}"}
    async with httpx.AsyncClient(base_url=gateway, headers=headers) as http:
        answer = await http.post("/v1/agents/counter/a/messages", json={"message": {"text": "one"}})
        assert (answer.json()["text"], answer.json()["data"]) == ("1: one", {"count": 1})
        state = await http.get("/v1/agents/counter/a/state")
        assert state.json()["state"] == {"count": 1}
        stream = await http.post(
            "/v1/agents/counter/a/messages",
            json={"message": {"text": "two"}},
            headers={"Accept": "text/event-stream"},
        )
        assert '"delta":"2: two"' in "".join(event.data for event in parse_sse_stream(stream.content))
    async with httpx.AsyncClient(base_url=gateway) as http:
        refused = await http.get("/v1/agents/counter/a/state")
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")


# S0.2
async def test_the_client_takes_url_and_key_from_the_environment(gateway: str) -> None:
    async with AsyncPodium() as podium:
        answers = [await podium.ask("counter/a", text) for text in ("one", "two")]
    assert [answer.text for answer in answers] == ["1: one", "2: two"]
    assert gateway == os.environ["PODIUM_URL"]
