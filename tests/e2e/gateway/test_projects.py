"""Projects on a real service: agents that are woken by their types, configuration, edits, classes that do not load."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import InvalidInput
from coordinator.cli.exits import ExitCode
from coordinator.home import Home
from coordinator.registry.project import load_project
from coordinator.registry.reloading import reload_project
from coordinator.registry.resolve import resolve
from coordinator.service.client import ServiceRefused
from coordinator.service.connecting import attach
from podium.address import Address
from podium.agent_record import read_agent
from tests.e2e.conftest import HELLO
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.service.client import ServiceClient
    from tests.e2e.conftest import Podium

BOSS = """
import os
from podium import BaseAgent

class Boss(BaseAgent):
    max_attempts = 1
    idle_timeout_s = 600

    async def on_message(self, ctx, message):
        if "tell" in message:
            await ctx.tell(message["tell"], {"from": ctx.agent_id})
        ctx.reply({"pid": os.getpid(), "word": "first", "config": dict(ctx.config), "key": os.environ.get("BOSS_KEY")})
"""
WORKER = """
from podium import BaseAgent, DeltaState

class Worker(BaseAgent):
    idle_timeout_s = 600

    class State(DeltaState):
        heard: list[str] = []
        changes: list[dict] = []

    async def on_config_change(self, ctx, changes):
        ctx.state.changes.append({key: list(values) for key, values in changes.items()})

    async def on_message(self, ctx, message):
        ctx.state.heard.append(f"{ctx.sender} at {ctx.get_config('desk')}")
"""
PROJECT = """
agents = ["boss.py:Boss", "worker.py:Worker"]
env_file = ".env"
[config.boss]
model = "small"
[config.worker]
desk = 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's file."""
    directory = tmp_path / "project"
    directory.mkdir()
    for name, text in (
        ("boss.py", BOSS),
        ("worker.py", WORKER),
        (".env", "BOSS_KEY=secret\n"),
        ("podium.toml", PROJECT),
    ):
        (directory / name).write_text(text)
    return directory / "podium.toml"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


async def answer(client: ServiceClient, agent: str, message: dict[str, Any]) -> list[dict[str, Any]]:
    admitted = await client.admit(agent, message)
    return [frame async for frame in client.follow(agent, admitted.message_id)]


def state_of(home: Home, agent: str) -> dict[str, Any]:
    store, blobs = home.journal(), home.blobs()
    try:
        return dict(read_agent(store, blobs, Address.parse(agent)).state)
    finally:
        store.close()
        blobs.close()


# S3.30
@pytest.mark.ray
def test_a_project_on_a_service(podium: Podium, project: Path) -> None:
    chat = podium.chat(HELLO, "x")
    chat.say("start the service")
    home = Home(podium.home)
    boss = project.with_name("boss.py")

    async def scenario() -> None:
        async with attach(home) as client:
            assert client is not None
            registry = await asyncio.to_thread(lambda: resolve(load_project(project)))
            assert registry.types == ("boss", "worker")
            await client.register(registry, follow_edits=False)

            # A tell wakes an agent whose class no client has named; an unknown type is refused.
            first = await answer(client, "boss/a", {"tell": "worker/w"})
            assert first[-1]["data"]["config"] == {"model": "small"}
            await until(lambda: _heard(home) == ["boss/a at 1"])
            refused = await answer(client, "boss/a", {"tell": "walker/w"})
            assert refused[-1]["error"] == {
                "type": "UnknownAgentType",
                "message": "no agent class of type 'walker': the known types are boss, hello, worker",
            }
            with pytest.raises(ServiceRefused, match="the known types are boss, hello, worker"):
                await client.admit("walker/w", {})

            # Without a reload an awake agent goes on as it is; a reload moves it to code and configuration as they are.
            edit(boss, '"first"', '"second"')
            edit(project, "desk = 1", "desk = 2")
            pid = first[-1]["data"]["pid"]
            assert (await answer(client, "boss/a", {}))[-1]["data"] == {**first[-1]["data"], "pid": pid}
            done = await reload_project(client, project)
            assert sorted(done.agents) == ["boss/a", "worker/w"]
            assert done.restart_for == ["BOSS_KEY"]
            moved = await answer(client, "boss/a", {"tell": "worker/w"})
            start = next(frame for frame in moved if frame["type"] == "agent_start")
            assert (start["reloaded"], start["code"]["source"]) == (True, "boss.py:Boss")
            assert moved[-1]["data"]["word"] == "second"
            assert moved[-1]["data"]["pid"] != pid
            await until(lambda: _heard(home) == ["boss/a at 1", "boss/a at 2"])
            assert state_of(home, "worker/w")["changes"] == [{"desk": [1, 2]}]

            # A file with a mistake changes nothing; a reload without edits moves nobody.
            edit(project, "desk = 2", "desk = nan")
            with pytest.raises(InvalidInput, match="config.worker.desk: JSON cannot hold nan"):
                await reload_project(client, project)
            edit(project, "desk = nan", "desk = 2")
            assert list((await reload_project(client, project)).agents) == []

            # A class that no longer loads: its messages wait, the error says so, and an edit mends it.
            edit(boss, "import os\n", "import os, missing_module\n")
            admitted = await client.admit("boss/b", {})
            with pytest.raises(ServiceRefused, match="missing_module"):
                [frame async for frame in client.follow("boss/b", admitted.message_id)]
            entry = next(one for one in (await client.status())["registry"] if one["agent_type"] == "boss")
            assert "missing_module" in entry["problem"]
            edit(boss, ", missing_module", "")
            frames = [frame async for frame in client.follow("boss/b", admitted.message_id)]
            assert frames[-1]["type"] == "turn_end"
            assert all(one["problem"] is None for one in (await client.status())["registry"])

    def _heard(home: Home) -> list[str] | None:
        try:
            return list(state_of(home, "worker/w")["heard"])
        except Exception:  # noqa: BLE001  it has not started yet
            return None

    asyncio.run(scenario())
    assert chat.close() == ExitCode.OK


@pytest.mark.ray
def test_run_gives_an_agent_what_its_project_has(podium: Podium, project: Path) -> None:
    directory = project.parent
    assert load_project(project).environment == {"BOSS_KEY": "secret"}
    boss = f"{directory / 'boss.py'}:Boss"
    arguments = ("run", boss, "--project", str(project), "-m", "hi")
    chat = podium.chat(boss, "default", "--project", str(project))
    end = chat.say("hi")[-1]
    assert (end["data"]["config"], end["data"]["key"]) == ({"model": "small"}, "secret")
    edit(project, "small", "large")
    (end,) = [frame for frame in podium.lines(*arguments) if frame["type"] == "turn_end"]
    assert end["data"]["config"] == {"model": "large"}
    edit(project, "[config.boss]", "[config]\nboss = 1\n[other]")
    refused = podium(*arguments, check=False)
    assert refused.returncode == ExitCode.USAGE
    assert "podium.toml: " in refused.stderr
    assert chat.close() == ExitCode.OK


@pytest.mark.ray
def test_a_new_project_runs(podium: Podium, tmp_path: Path) -> None:
    import subprocess

    from tests.e2e.conftest import TIMEOUT_S, command

    def call(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in podium.environment.items() if name != "PODIUM_HOME"}
        return subprocess.run(
            [*command(), *arguments],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )

    call("new", "my-bot", cwd=tmp_path)
    made = tmp_path / "my-bot"
    with (made / "podium.toml").open("a") as file:
        file.write(f'[settings]\nhome = "{podium.home}"\n')
    assert call("run", "agent.py:MyBot", "-m", "hi", cwd=made).stdout == 'Hello! That was message 1: hi\n{"count":1}\n'
    assert "my_bot/default" in call("ps", cwd=made / "tests").stdout
    assert "no service is running" in call("reload", cwd=made).stderr
