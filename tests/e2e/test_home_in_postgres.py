"""A home in PostgreSQL and an object store, with its commands, its gateway and a killed service."""

from __future__ import annotations

import json
import re
import shutil
from socket import gethostname
from typing import TYPE_CHECKING

import httpx
import pytest

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import HELLO, Podium, fresh_home, kill_everything, text_of
from tests.e2e.servers import servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a home in servers of this module's own."""
    with servers(tmp_path_factory.mktemp("servers")) as both:
        yield both.settings


@pytest.fixture
def podium(environment: dict[str, str]) -> Iterator[Podium]:
    """The command on a directory of the test's own of that home."""
    with fresh_home(environment) as podium:
        yield podium


def test_agents_commands_and_keys_work_and_another_directory_goes_on(
    podium: Podium, environment: dict[str, str]
) -> None:
    chat = podium.chat(HELLO, "alice")
    said = text_of(chat.say("hello"))
    assert said
    assert chat.close() == 0
    assert podium.row("hello/alice")["turn"] >= 1
    made = json.loads(podium("keys", "create", "ci", "--scope", "read", "--json").stdout)
    assert json.loads(podium("verify", "--json").stdout)["ok"]
    podium.end()
    assert not (podium.home / "journal.db").exists()
    with fresh_home(environment) as other:
        assert other("run", HELLO, "--key", "bob", "--message", "hi").returncode == 0
        assert {row["agent"] for row in other.json("ps", "--all")["agents"]} == {"hello/alice", "hello/bob"}
        assert made["key_id"] in other("keys", "list", "--json").stdout
        before = other.row("hello/alice")["turn"]
        assert other("run", HELLO, "--key", "alice", "--message", "again").returncode == 0
        assert other.row("hello/alice")["turn"] > before


def test_what_was_committed_is_there_after_everything_was_killed(podium: Podium) -> None:
    chat = podium.chat(HELLO, "carol")
    chat.say("one")
    before = podium.row("hello/carol")["turn"]
    kill_everything(podium)
    assert podium("run", HELLO, "--key", "carol", "--message", "two").returncode == 0
    assert podium.row("hello/carol")["turn"] == before + 1


def test_one_service_at_a_time_has_the_home(podium: Podium, environment: dict[str, str], tmp_path: Path) -> None:
    chat = podium.chat(HELLO, "erin")
    chat.say("one")
    workspaces = tmp_path / "w"  # on one machine two directories of a home cannot have them at the same place
    workspaces.mkdir(mode=0o700)
    with fresh_home({**environment, "PODIUM_WORKSPACES": str(workspaces)}) as other:
        refused = other("run", HELLO, "--key", "frank", "--message", "hi", check=False)
        assert refused.returncode == ExitCode.UNAVAILABLE
        assert re.search(rf"another service has this home, podium \w{{8}} on {gethostname()}:/", refused.stderr)
        assert other.row("hello/erin")["status"] == "awake"
        assert chat.close() == 0
        podium.end()
        assert other("run", HELLO, "--key", "frank", "--message", "hi").returncode == 0


def test_a_gateway_serves_it(podium: Podium, tmp_path: Path) -> None:
    project = tmp_path / "podium.toml"
    project.write_text(f"agents = [{HELLO!r}]\n[tenants.acme.quota]\nagents = 1\n")
    up = json.loads(podium("up", "--project", str(project), "--detach", "--port", "0", "--json").stdout)
    try:
        key = json.loads(
            podium("keys", "create", "acme", "--scope", "write", "--scope", "read", "--tenant", "acme", "--json").stdout
        )["key"]
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=up["url"], headers=headers, timeout=60) as client:
            sent = client.post("/v1/agents/hello/gina/messages", json={"message": {"text": "hi"}})
            assert sent.status_code == 200, sent.text
            over = client.post("/v1/agents/hello/other/messages", json={"message": {"text": "hi"}})
            assert over.status_code == 403, over.text
            assert "hello/gina" in client.get("/v1/agents").text
            assert "hello/alice" not in client.get("/v1/agents").text
    finally:
        podium("down")


def test_agents_run_a_deploy_that_hosts_have_from_the_object_store(podium: Podium, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "agent.py").write_text(
        "from podium import BaseAgent\nclass Deployed(BaseAgent):\n"
        "    async def on_message(self, ctx, message):\n        ctx.reply({'file': __file__})\n"
    )
    (project / "podium.toml").write_text('agents = ["agent.py:Deployed"]\n')
    made = podium.json("deploy", "--project", str(project / "podium.toml"))
    podium("up", "--project", str(project / "podium.toml"), "--detach", "--port", "0")
    try:
        shutil.rmtree(project)
        frames = podium.lines("send", "deployed/a", "hi")
        (file,) = (frame["data"]["file"] for frame in frames if frame["type"] == "turn_end")
        assert file == str(podium.home / "nodes" / "local" / "bundles" / made["bundle"] / "agent.py")
        assert json.loads(podium("verify", "--json").stdout)["ok"]
    finally:
        podium("down")


def test_a_backup_is_a_home_in_a_directory(podium: Podium, tmp_path: Path) -> None:
    podium("run", HELLO, "--key", "dora", "--message", "hi")
    turn = podium.row("hello/dora")["turn"]
    copy = tmp_path / "copy"
    podium("backup", str(copy))
    without = {**podium.environment, "PODIUM_JOURNAL_URL": "", "PODIUM_BLOBS_URL": ""}
    assert Podium(copy, without).row("hello/dora")["turn"] == turn
    assert json.loads(Podium(copy, without)("verify", "--json").stdout)["ok"]
    assert (copy / "journal.db").exists()
