"""A Ray node of another machine: its agents are reached over TCP, and ``podium node`` there may die and come back.

The other machine is one by its hostname, its directory of the home and its paths; tests/cluster has some with networks
of their own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from tests.certificates import write_certificate
from tests.e2e.conftest import TIMEOUT_S, Podium, command, fresh_home, processes_of
from tests.e2e.servers import servers
from tests.e2e.test_cluster import nodes
from tests.ray_cluster import RayCluster, running_cluster
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ELSEWHERE = "elsewhere"
PROJECT = "agents = ['agent.py:Far']\n[models.echo]\nprovider = 'scripted'\nmodel = 'echo'\n"
AGENT = """
import asyncio
from pathlib import Path
from podium import BaseAgent, DeltaState
from podium.models import LLMMessage

class Far(BaseAgent):
    resources = {"elsewhere": 1}
    idle_timeout_s = 600

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx, message):
        ctx.state.count += 1
        (ctx.workspace / "out.txt").write_text(message["text"])
        reply = await ctx.send_message("")
        await reply.stream_token("begun ")
        if gate := message.get("gate"):
            Path(f"{gate}-begun").touch()
            while not Path(gate).exists():
                await asyncio.sleep(0.05)
            return await reply.stream_token(f"{message['text']} {ctx.state.count}", final=True)
        answer = await ctx.llm("echo").answer([LLMMessage("user", message["text"])])
        await reply.stream_token(f"{answer.message.text} {ctx.state.count}", final=True)
"""


@dataclass
class Home:
    """A home whose service is on this machine, and what the other one needs."""

    podium: Podium
    cluster: RayCluster
    settings: Mapping[str, str]
    directory: Path

    @contextlib.contextmanager
    def other_machine(self) -> Iterator[Podium]:
        """The command on the other machine's directory."""
        workspaces = self.directory / "w"  # of its own, as its /tmp is
        workspaces.mkdir(mode=0o700, exist_ok=True)
        more = {"PODIUM_WORKSPACES": str(workspaces), "PODIUM_STOP_TIMEOUT_S": "10"}
        with fresh_home({**self.settings, **more}) as there:
            yield there


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    directory = tmp_path_factory.mktemp("elsewhere")
    (directory / "podium.toml").write_text(PROJECT)
    (directory / "agent.py").write_text(AGENT)
    certificate, key = directory / "cert.pem", directory / "key.pem"
    write_certificate(certificate, key)
    tls = {"PODIUM_SERVICE_TLS_CERT": str(certificate), "PODIUM_SERVICE_TLS_KEY": str(key)}
    with servers(directory) as both, running_cluster("n1", f"n2@{ELSEWHERE}") as cluster:
        settings = {**both.settings, **tls, "PODIUM_SERVICE_LISTEN": "127.0.0.1:0"}
        with fresh_home(settings) as podium:
            project = str(directory / "podium.toml")
            podium("up", "--ray", cluster.address, "--project", project, "--detach", "--port", "0")
            try:
                podium("deploy", "--project", project)
                yield Home(podium, cluster, settings, directory)
            finally:
                podium("down")
                podium.print_logs({})


@contextlib.contextmanager
def running_node(there: Podium) -> Iterator[subprocess.Popen[str]]:
    """``podium node`` on the other machine, which has said that agents may come."""
    process = start_node(there)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["hostname"] == ELSEWHERE
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        there.print_logs({})


def start_node(there: Podium, stderr: int | IO[str] | None = None) -> subprocess.Popen[str]:
    begin = [*command(), "node", "--home", str(there.home), "--json"]
    named = ["unshare", "--uts", "sh", "-c", f'hostname {ELSEWHERE} && exec "$@"', "sh", *begin]
    return subprocess.Popen(named, env=there.environment, stdout=subprocess.PIPE, stderr=stderr, text=True)


def problem(podium: Podium) -> str | None:
    """Why the node of the other machine is not used; ``None`` if it is."""
    there = nodes(podium).get("n2")
    return there["problem"] if there is not None else "it is joined or left just now"


def say(podium: Podium, agent: str, text: str, **message: Any) -> str:
    """Have an agent handle a message, and return what it says."""
    return podium("send", agent, "--json-message", json.dumps({"text": text, **message})).stdout.strip()


def check_refusals(home: Home, there: Podium) -> None:
    """Nothing else takes the place of a ``podium node`` that runs."""
    with fresh_home({**home.settings, "PODIUM_WORKSPACES": str(home.directory / "w2")}) as other:
        (home.directory / "w2").mkdir(mode=0o700)
        for place, why in (
            (there, f"another podium node runs on {there.home}"),
            (other, f"runs with the hostname {ELSEWHERE} already"),
        ):
            process = start_node(place, subprocess.PIPE)
            _, said = process.communicate(timeout=TIMEOUT_S)
            assert (process.returncode, why in said) == (ExitCode.HOME_ERROR, True), said


def test_an_agent_runs_on_another_machine_whose_podium_node_dies_and_comes_back(home: Home, tmp_path: Path) -> None:
    podium, agent = home.podium, "far/ann"
    wait_until(lambda: "start `podium node` on that machine" in (problem(podium) or ""))
    with home.other_machine() as there:
        with running_node(there) as first:
            wait_until(lambda: problem(podium) is None)
            assert say(podium, agent, "one") == "begun one 1"
            assert podium.json("why", agent)["node"] == "n2"
            host_id = podium.json("why", agent)["host_id"]
            check_refusals(home, there)
            assert podium("cat", agent, "out.txt").stdout == "one"

            message = json.dumps({"text": "two", "gate": str(tmp_path / "gate")})
            chat = subprocess.Popen(
                [*command(), "send", agent, "--json-message", message, "--json", "--home", str(podium.home)],
                env=podium.environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert chat.stdout is not None
            frames = [json.loads(chat.stdout.readline())]
            while frames[-1]["type"] != "message_update":
                frames.append(json.loads(chat.stdout.readline()))
            first.kill()
            first.wait()
            wait_until(lambda: not processes_of(there, "coordinator.store.process"))
            (tmp_path / "gate").touch()
            with running_node(there):
                rest, _ = chat.communicate(timeout=TIMEOUT_S)
                assert chat.returncode == 0
                frames += [json.loads(line) for line in rest.splitlines()]
                assert [frame["type"] for frame in frames].count("turn_start") == 1
                said = "".join(frame["delta"] for frame in frames if frame["type"] == "message_update")
                assert said == "begun two 2", "each token once"
                why = podium.json("why", agent)
                assert (why["host_id"], why["last_error"]) == (host_id, None), "no attempt was counted"
                assert say(podium, agent, "three") == "begun three 3"
        wait_until(lambda: "start `podium node` on that machine" in (problem(podium) or ""))
        with running_node(there) as last:
            wait_until(lambda: problem(podium) is None)
            assert say(podium, agent, "four") == "begun four 4"
            assert podium("cat", agent, "out.txt").stdout == "four"
            podium("passivate", agent)
            layers = there.home / "nodes" / "n2" / "layers"
            assert list(layers.iterdir())
            podium("delete", agent, "--yes")
            assert not list(layers.iterdir())
            assert say(podium, agent, "anew") == "begun anew 1", "nothing of the one before keeps it from waking"

            gate = tmp_path / "never-in-time"
            podium("send", agent, "--json-message", json.dumps({"text": "five", "gate": str(gate)}), "--no-wait")
            wait_until(Path(f"{gate}-begun").exists)
            last.terminate()
            assert last.wait(TIMEOUT_S) == 0
            [waiting] = podium.json("inbox", agent)["messages"]
            assert (waiting["attempts"], waiting["status"]) == (0, "pending"), "the turn was not taken back"
        gate.touch()
        with running_node(there):
            wait_until(lambda: problem(podium) is None)
            assert say(podium, agent, "six") == "begun six 3"
