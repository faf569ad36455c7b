"""Agents that ask models, and the processes between them killed in the middle of an answer."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from coordinator.homes.sqlite.calls import SqliteCallLog
from coordinator.models.calls import CallRecord
from tests.e2e.conftest import AGENTS, Podium, fresh_home, kill_at_once, processes_of
from tests.e2e.gateway.readers import DAEMON, HOSTS, Client, serve
from tests.waiting import DEADLINE_S, until

MODELS = "coordinator.models.process"
WORDS = 3000
PROJECT = """
agents = ["talking.py:Talker"]
env_file = ".env"
[models.quick]
provider = "scripted"
script = "quick.json"
price = {input = 1, output = 1}
[models.slow]
provider = "scripted"
script = "slow.json"
price = {input = 1, output = 1}
[models.keyed]
provider = "openai"
model = "m"
api_key_env = "SECRET_MODEL_KEY"
"""


@pytest.fixture
def podium(tmp_path: Path) -> Iterator[Podium]:
    shutil.copy(AGENTS / "talking.py", tmp_path)
    (tmp_path / "podium.toml").write_text(PROJECT)
    (tmp_path / ".env").write_text("SECRET_MODEL_KEY=nobody-else-sees-this\n")
    (tmp_path / "quick.json").write_text('["a plan"]')
    (tmp_path / "slow.json").write_text(json.dumps([{"text": "word " * WORDS, "delay_ms": 100}]))
    with fresh_home({"PODIUM_STOP_TIMEOUT_S": "5"}) as podium:
        try:
            yield podium
        finally:
            podium("down", check=False)


def calls(podium: Podium, profile: str) -> list[CallRecord]:
    """The recorded calls of a profile, oldest first."""
    return SqliteCallLog(podium.home).latest(None, 1000, profile=profile)[::-1]


async def running(podium: Podium, number: int) -> None:
    """Wait until so many slow calls were made, and the last one runs."""

    def is_there() -> bool:
        found = calls(podium, "slow")
        return len(found) >= number and found[-1].status == "running"

    await until(is_there, f"call {number} does not run", 2 * DEADLINE_S)


async def test_an_answer_goes_on_after_the_deaths_of_gateway_host_and_service(podium: Podium, tmp_path: Path) -> None:
    started = await asyncio.to_thread(serve, podium, tmp_path / "podium.toml")
    url = started["url"]
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        answer = await http.post(
            f"{url}/v1/agents/talker/a/messages",
            json={"message": {"text": "hello"}},
            headers={"Prefer": "respond-async"},
        )
        assert answer.status_code == 202, answer.text
        client = Client(url, f"/v1/agents/talker/a/messages/{answer.json()['message_id']}")
        async with asyncio.timeout(5 * DEADLINE_S), asyncio.TaskGroup() as tasks:
            _ = tasks.create_task(client.run(http))
            await running(podium, 1)
            for host in processes_of(podium, HOSTS):
                assert b"SECRET_MODEL_KEY" not in Path(f"/proc/{host}/environ").read_bytes()
            kill_at_once(processes_of(podium, MODELS))
            await running(podium, 2)
            kill_at_once(processes_of(podium, HOSTS))
            await running(podium, 3)
            kill_at_once(processes_of(podium, DAEMON))
            await running(podium, 4)
            (tmp_path / "slow.json").write_text('["the end"]')
            kill_at_once(processes_of(podium, MODELS))
        assert client.last["outcome"] == "committed"
        state = (await http.get(f"{url}/v1/agents/talker/a/state")).json()["state"]
        assert state == {"planned": ["a plan"], "said": "the end", "sees_key": False}
    (quick,) = calls(podium, "quick")
    assert (quick.status, quick.owner, quick.turn, quick.cost) == ("completed", "talker/a", 1, "0.000004")
    *others, last = calls(podium, "slow")
    assert others[0].status == "lost"
    *unpaid, _ = sorted(others, key=lambda record: record.status == "completed")
    # One more may have ended just before the process that waited for it died: the call in flight is paid twice.
    assert {record.status for record in unpaid} <= {"lost", "cancelled", "failed"}
    assert all(record.cost is None for record in unpaid)
    assert (last.status, last.output_tokens) == ("completed", 2)
    commands = await asyncio.to_thread(what_commands_show, podium)
    assert commands == [
        [("quick", "scripted", "-"), ("slow", "scripted", "-"), ("keyed", "openai", "$SECRET_MODEL_KEY")],
        [("quick", "completed", "talker/a", 1)],
    ]

    # The last kill may have come after the answer. What the next process measures is in the metrics of the home.
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        await http.post(f"{url}/v1/agents/talker/b/messages", json={"message": {"text": "hello"}})
        completed = r'podium_model_calls_total\{error="",profile="slow",status="completed",.*\} [123]\.0'
        async with asyncio.timeout(DEADLINE_S):  # on a busy machine the process may not answer in time
            while not re.search(completed, (await http.get(f"{url}/metrics")).text):
                await asyncio.sleep(0.1)


def what_commands_show(podium: Podium) -> list[object]:
    profiles = podium.json("models")["models"]
    made = podium.json("models", "calls", "--profile", "quick")["calls"]
    assert "SECRET_MODEL_KEY" in podium("models").stdout
    assert "talker/a" in podium("models", "calls", "--limit", "1").stdout
    return [
        [(each["profile"], each["provider"], each["key"]) for each in profiles],
        [(each["profile"], each["status"], each["owner"], each["turn"]) for each in made],
    ]
