"""Front ends of others, and readers of streams, at a home whose processes are killed in the middle of answers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from coordinator.gateway_record import gateway_runs
from coordinator.home import Home
from tests.e2e.conftest import AGENTS, Podium, fresh_home, kill_at_once, processes_of
from tests.e2e.gateway.readers import DAEMON, HOSTS, Readers, serve
from tests.npm.node import INSTALLED, Client, client
from tests.waiting import DEADLINE_S, until, wait_until

READERS = 50

pytestmark = [
    pytest.mark.ray,
    pytest.mark.anyio,
    pytest.mark.skipif(not INSTALLED, reason="Node.js and npm packages are not installed: make setup-tests"),
]


@pytest.fixture
def podium(tmp_path: Path) -> Iterator[Podium]:
    shutil.copy(AGENTS / "plain.py", tmp_path)
    (tmp_path / "podium.toml").write_text('agents = ["plain.py:Patient"]\n')
    with fresh_home({"PODIUM_STOP_TIMEOUT_S": "5"}) as podium:
        try:
            yield podium
        finally:
            podium("down", check=False)


def process_said(chat: Client, of_ag_ui: bool) -> str:
    """Return the id of the process that the answer begins with, which each attempt says first; empty at first."""
    messages = chat.state["messages"]
    if not messages or messages[-1]["role"] != "assistant":
        return ""
    last = messages[-1]
    text = last["content"] if of_ag_ui else "".join(part.get("text", "") for part in last["parts"])
    return str(text.partition(" ")[0])


async def test_answers_survive_the_deaths_of_host_service_and_gateway(podium: Podium, tmp_path: Path) -> None:
    started = await asyncio.to_thread(serve, podium, tmp_path / "podium.toml")
    url, gate = started["url"], tmp_path / "gate"
    text = f"wait for {gate}"
    agents = f"{url}/v1/agents/patient"
    async with (
        asyncio.timeout(4 * DEADLINE_S),
        httpx.AsyncClient(timeout=DEADLINE_S, limits=httpx.Limits(max_connections=None)) as http,
        client("chat.js", f"{url}/v1/ui/patient", "alice") as chat,
        client("ag_ui.js", "@ag-ui/client", f"{url}/v1/ag-ui/patient", "bob") as agent,
        asyncio.TaskGroup() as tasks,
    ):
        page = await http.get(f"{url}/ui/")
        assert page.status_code == 200
        assert "script-src 'self'" in page.headers["content-security-policy"]
        readers = Readers(http, url, ("a", "b"))
        await readers.begin(tasks, text, READERS)
        sending = await chat.start("send", text=text)
        running = await agent.start("send", runId="r1", message={"id": "m1", "content": text})

        async def attempts_of(hosts: set[str]) -> set[str]:
            """Wait until both clients show an answer of a further host; return all hosts so far."""
            await chat.until(lambda: process_said(chat, False) not in {"", *hosts})
            await agent.until(lambda: process_said(agent, True) not in {"", *hosts})
            return {*hosts, process_said(chat, False), process_said(agent, True)}

        hosts = await attempts_of(set())
        await readers.all_at(1)
        kill_at_once(processes_of(podium, HOSTS))
        hosts = await attempts_of(hosts)
        await readers.all_at(2)
        before = processes_of(podium, DAEMON)
        kill_at_once(before)
        await until(lambda: set(processes_of(podium, DAEMON)) - set(before), "the service is not started again")
        await attempts_of(hosts)
        await readers.all_at(3)
        os.kill(started["pid"], signal.SIGKILL)
        wait_until(lambda: not gateway_runs(Home(podium.home)))
        await readers.all_lost()
        await chat.done(sending)
        assert chat.state["status"] == "error"
        assert (await agent.done(running))["error"] is not None or not agent.state["state"]["said"]
        await asyncio.to_thread(serve, podium, tmp_path / "podium.toml", int(url.rpartition(":")[2]))
        resuming = await chat.start("resume")
        reading = await agent.start("send", runId="r1")
        await chat.until(lambda: chat.state["status"] == "streaming")
        gate.touch()
        await chat.done(resuming)
        assert (await agent.done(reading))["error"] is None
        assert (chat.state["status"], chat.state["error"]) == ("ready", None)
        user, answer = chat.state["messages"]
        assert user["parts"] == [{"type": "text", "text": text}]
        (said,) = (part["text"] for part in answer["parts"] if part["type"] == "text")
        assert said.endswith(" 1"), "what earlier attempts said is gone"
        (turn,) = (part["data"] for part in answer["parts"] if part["type"] == "data-turn")
        assert turn["turn"] == 1
        (asked, replied) = agent.state["messages"]
        assert (asked["content"], replied["content"].partition(" ")[2]) == (text, "1")
        for key, seen in (("alice", chat.state["messages"]), ("bob", None)):
            kept = (await http.get(f"{agents}/{key}/state")).json()
            assert (kept["turn"], kept["state"]["said"]) == (1, [text]), "handled once"
            if seen is not None:
                shown = (await http.get(f"{url}/v1/ui/patient/{key}")).json()["messages"]
                assert [each["id"] for each in shown] == [each["id"] for each in seen]
        assert agent.state["state"] == kept["state"], "the patch of the turn was applied once"
    readers.assert_right()
