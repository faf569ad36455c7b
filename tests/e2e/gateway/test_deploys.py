"""``podium deploy``: agents run the project's code from the blob store, whatever becomes of the project."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import TIMEOUT_S, command, fresh_home
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.conftest import Podium

AGENT = """
import asyncio
from pathlib import Path
from podium import BaseAgent, DeltaState
from words.greeting import WORD

class Greeter(BaseAgent):
    idle_timeout_s = 600
    max_attempts = 1

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx, message):
        from words.lazy import PUNCTUATION
        ctx.state.count += 1
        if gate := message.get("gate"):
            Path(gate).with_name("begun").touch()
            while not Path(gate).exists():
                await asyncio.sleep(0.05)
        ctx.reply({"said": f"{WORD}{PUNCTUATION}", "count": ctx.state.count, "desk": ctx.get_config("desk")})
"""
PROJECT = 'agents = ["agent.py:Greeter"]\n[config.greeter]\ndesk = 1\n'


class Deployed:
    """A home that serves a project in the background."""

    def __init__(self, podium: Podium, directory: Path) -> None:
        self.podium = podium
        self.directory = directory / "project"
        (self.directory / "words").mkdir(parents=True)
        for name, text in (
            ("podium.toml", PROJECT),
            ("agent.py", AGENT),
            ("words/greeting.py", "WORD = 'files'\n"),
            ("words/lazy.py", "PUNCTUATION = '!'\n"),
        ):
            (self.directory / name).write_text(text)

    @property
    def file(self) -> str:
        """The project file."""
        return str(self.directory / "podium.toml")

    def up(self) -> str:
        """Serve; return what is said."""
        finished = self.podium("up", "--project", self.file, "--detach", "--port", "0", "--json")
        self.url: str = json.loads(finished.stdout)["url"]
        return finished.stderr

    def deploy(self, word: str) -> dict[str, Any]:
        """Edit the code, and deploy it."""
        (self.directory / "words" / "greeting.py").write_text(f"WORD = {word!r}\n")
        made: dict[str, Any] = self.podium.json("deploy", "--project", self.file)
        return made

    def send(self, agent: str, **message: Any) -> dict[str, Any]:
        """Send a message; return the reply."""
        frames = self.podium.lines("send", agent, "--json-message", json.dumps(message))
        (end,) = (frame for frame in frames if frame["type"] == "turn_end")
        data: dict[str, Any] = end["data"]
        return data


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    """A fresh one, which is not served yet."""
    with fresh_home({}) as podium:
        try:
            yield Deployed(podium, tmp_path)
        finally:
            podium("down", check=False)


# S0.27
def test_agents_run_what_was_deployed(deployed: Deployed, tmp_path: Path) -> None:
    podium = deployed.podium
    deployed.up()
    assert deployed.send("greeter/a") == {"said": "files!", "count": 1, "desk": 1}
    first = deployed.deploy("first")
    assert (first["number"], first["service"], first["reloaded"]) == (1, True, ["greeter/a"])
    assert deployed.send("greeter/a") == {"said": "first!", "count": 2, "desk": 1}

    # A turn ends on the code that it began with; the next message has the new one.
    gate = tmp_path / "gate"
    accepted = podium("send", "greeter/a", "--json-message", json.dumps({"gate": str(gate)}), "--no-wait").stdout
    assert accepted
    wait_until(gate.with_name("begun").exists)
    (deployed.directory / "podium.toml").write_text(PROJECT.replace("desk = 1", "desk = 2"))
    (deployed.directory / "words" / "greeting.py").write_text("WORD = 'second'\n")
    made = podium.json("keys", "create", "ci", "--scope", "deploy")
    through = [*command(), "deploy", "--json", "--url", deployed.url, "--key", made["key"], "--project", deployed.file]
    second = json.loads(subprocess.run(through, check=True, capture_output=True, timeout=TIMEOUT_S).stdout)
    assert (second["number"], second["by"], second["reloaded"]) == (2, made["key_id"], ["greeter/a"])
    gate.touch()
    assert deployed.send("greeter/a") == {"said": "second!", "count": 4, "desk": 2}
    replies = [event["payload"]["data"]["said"] for event in podium.lines("log", "greeter/a") if _has_reply(event)]
    assert replies == ["files!", "first!", "first!", "second!"]

    # Nothing of the project is needed any more, also for what was never imported, and by the next service.
    shutil.rmtree(deployed.directory)
    assert deployed.send("greeter/b") == {"said": "second!", "count": 1, "desk": 2}
    podium("passivate", "greeter/a")
    assert deployed.send("greeter/a") == {"said": "second!", "count": 5, "desk": 2}
    assert "0 freed" in podium("gc").stdout
    back = podium.json("deploy", "--previous")
    assert (back["number"], back["bundle"], sorted(back["reloaded"])) == (
        3,
        first["bundle"],
        ["greeter/a", "greeter/b"],
    )
    assert deployed.send("greeter/a") == {"said": "first!", "count": 6, "desk": 1}
    assert podium("verify").returncode == 0

    listed = podium.json("deploys")["deploys"]
    assert [each["bundle"] for each in listed] == [first["bundle"], second["bundle"], first["bundle"]]
    lines = [json.loads(line) for line in (podium.home / "logs" / "audit.log").read_text().splitlines()]
    acts = [
        (line["what"], line["outcome"], line["number"], line["bundle"]) for line in lines if line["what"] == "deploy"
    ]
    assert acts == [("deploy", "ok", each["number"], each["bundle"]) for each in listed]
    assert {each["by"] for each in listed} <= {line["who"] for line in lines}


def test_a_deploy_that_no_node_can_run_is_refused_by_name_and_taken_back(deployed: Deployed) -> None:
    podium = deployed.podium
    deployed.deploy("first")
    assert "agents run deploy 1, not the files of " in deployed.up()
    assert deployed.send("greeter/a")["said"] == "first!", "of the home, not of the registered files"
    assert "podium deploy makes their code current" in podium("reload", "--project", deployed.file).stderr
    (deployed.directory / "podium.toml").write_text(f"requirements = ['no-such-library>=2']\n{PROJECT}")
    made = deployed.deploy("second")
    refused = podium("send", "greeter/a", "hi", check=False)
    assert refused.returncode == ExitCode.TURN_FAILED
    assert f"the code bundle {made['bundle'][:12]} requires no-such-library>=2, and the node " in refused.stderr
    assert "has no no-such-library: install it on the node" in refused.stderr
    assert "requires no-such-library>=2" in podium("why", "greeter/a").stdout
    podium("deploy", "--previous")
    assert deployed.send("greeter/a")["said"] == "first!"
    assert [event for event in podium.lines("log", "greeter/a") if event["type"] == "turn.failed"] == []

    (deployed.directory / "words" / "greeting.py").write_text("WORD = 'files'\n")
    assert podium.json("deploy", "--withdraw")["reloaded"] == ["greeter/a"]
    assert deployed.send("greeter/a")["said"] == "files!"


def test_what_cannot_be_deployed_is_refused(deployed: Deployed) -> None:
    podium = deployed.podium
    (deployed.directory / "agent.py").write_text("import gone\n")
    refused = podium("deploy", "--project", deployed.file, check=False)
    assert refused.returncode == ExitCode.FILE_BROKEN
    assert "No module named 'gone'" in refused.stderr
    assert not (podium.home / "home.json").exists(), "no home was made for it"
    (deployed.directory / "agent.py").write_text(AGENT)
    made = deployed.deploy("first")
    refused = podium("deploy", "--previous", check=False)
    assert refused.returncode == ExitCode.NOT_FOUND
    assert "there is no deploy before the current one" in refused.stderr
    assert podium("deploy", "--previous", "--withdraw", check=False).returncode == ExitCode.USAGE
    assert [each["number"] for each in podium.json("deploys")["deploys"]] == [made["number"]] == [1]


def _has_reply(event: dict[str, Any]) -> bool:
    return isinstance(event.get("payload"), dict) and "said" in (event["payload"].get("data") or {})
