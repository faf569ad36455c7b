"""A home on a Ray cluster of three nodes: agents are spread over them, and move when a node dies or is drained."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.home import Home
from tests.e2e.conftest import AGENTS, Podium, fresh_home, places_of, processes_of
from tests.e2e.servers import servers
from tests.ray_cluster import RayCluster, running_cluster
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHOOSY = """
import os
from podium import BaseAgent, DeltaState

class Choosy(BaseAgent):
    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx, message):
        ctx.state.count += 1
        await ctx.send_message(f"handled {ctx.state.count} {'RAY_AUTH_TOKEN' in os.environ}")
"""
PATIENT = f"{AGENTS / 'plain.py'}:Patient"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster that the tests share: two kill n2 and n3, another one drains n3, which has a package more."""
    site = tmp_path_factory.mktemp("site")
    (site / "only_there-2.0.dist-info").mkdir()
    (site / "only_there-2.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: only-there\nVersion: 2.0\n"
    )
    with running_cluster("n1", "n2", "n3", paths={"n3": site}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def podium(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podium]:
    """The command on a home that is served on the cluster."""
    with served({}, cluster, tmp_path_factory.mktemp("project")) as podium:
        yield podium


@contextlib.contextmanager
def served(environment: Mapping[str, str], cluster: RayCluster, directory: Path) -> Iterator[Podium]:
    """The command on a home of its own that is served on a cluster."""
    project = directory / "podium.toml"
    project.write_text(f"agents = [{PATIENT!r}]\n")
    with fresh_home({**environment, "PODIUM_MOST_STARTING": "1"}) as podium:
        podium("up", "--ray", cluster.address, "--project", str(project), "--detach", "--port", "0")
        try:
            yield podium
        finally:
            podium("down")
            podium.print_logs({})
            assert not places_of(podium.home).exists(), "also the paths of the node that was killed are gone"


def actors_of(cluster: RayCluster, name: str) -> list[int]:
    """Return the processes of the cluster's actors of a class."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # no process, or it has ended
            pid, parent = int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) in cluster.raylets.values() and name in (entry / "cmdline").read_text():
                found.append(pid)
    return found


def say(podium: Podium, agent: str, text: str) -> int:
    """Have an agent handle a message; return how many it has handled."""
    return int(podium("send", agent, text).stdout.split()[1])


def nodes(podium: Podium) -> dict[str, dict[str, Any]]:
    return {node["node"]: node for node in podium.json("nodes")["nodes"]}


def wait_for_warm_host(podium: Podium, node: str | None) -> None:
    wait_until(lambda: node is not None and nodes(podium)[node]["warm"])


def places(podium: Podium, agents: list[str]) -> dict[str, str | None]:
    """Where agents are awake."""
    return {agent: podium.json("why", agent)["node"] for agent in agents}


def test_a_drained_node_gets_empty_and_its_agents_go_on_elsewhere(podium: Podium, tmp_path: Path) -> None:
    agents = [f"patient/drained-{number}" for number in range(6)]
    for agent in agents:
        assert say(podium, agent, "first") == 1
    before = places(podium, agents)
    moved = [agent for agent, place in before.items() if place == "n3"]
    assert moved
    with ThreadPoolExecutor() as threads:
        turn = threads.submit(say, podium, moved[0], f"wait for {tmp_path / 'go'}")
        wait_until(lambda: podium.json("why", moved[0])["message_id"])
        drain = threads.submit(podium, "drain", "n3")
        wait_until(lambda: nodes(podium)["n3"]["drained"] and nodes(podium)["n3"]["agents"] == 1)
        assert not drain.done(), "it waits for the running turn"
        (tmp_path / "go").touch()
        assert turn.result() == 2
        assert "n3 is drained" in drain.result().stderr
    there = nodes(podium)["n3"]
    assert (there["agents"], there["assigned"], there["warm"], there["starting"]) == (0, 0, 0, 0)
    for agent in moved:
        count = say(podium, agent, "again")
        assert count == (3 if agent == moved[0] else 2)
        assert podium("cat", agent, "out.txt").stdout == f"{count} again\n"
        assert podium.json("why", agent)["last_error"] is None, "no attempt was counted"
    assert "n3" not in places(podium, agents).values()

    refused = podium("drain", "n9", check=False)
    assert refused.returncode == ExitCode.NOT_FOUND
    assert "there is no node n9; there are n1, " in refused.stderr
    podium("drain", "n3", "--undo")
    wait_until(lambda: nodes(podium)["n3"]["warm"])


def test_deployed_agents_run_where_what_their_code_requires_is_installed(podium: Podium, tmp_path: Path) -> None:
    project = tmp_path / "podium.toml"
    (tmp_path / "choosy.py").write_text(CHOOSY)

    def deploy(requirement: str) -> None:
        project.write_text(f"agents = ['choosy.py:Choosy']\nrequirements = ['{requirement}']\n")
        podium("deploy", "--project", str(project))

    deploy("only-there>=2")
    agents = [f"choosy/{number}" for number in range(3)]
    for agent in agents:
        assert podium("send", agent, "where").stdout == "handled 1 False\n", "the token of the cluster is not passed on"
    assert set(places(podium, agents).values()) == {"n3"}
    deploy("only-there>=3")
    refused = podium("send", agents[0], "where", check=False)
    assert refused.returncode == ExitCode.TURN_FAILED
    for node, there in (("n1", "no only-there"), ("n2", "no only-there"), ("n3", "only-there 2.0")):
        assert f"{node} lacks only-there>=3 (has {there})" in refused.stderr
        assert f"{node} lacks only-there>=3 (has {there})" in podium("why", agents[0]).stdout
    podium("deploy", "--previous")
    assert say(podium, agents[0], "again") == 3, "the message that waited was handled, too"
    podium("deploy", "--withdraw")


def test_agents_are_spread_over_the_nodes_and_answer_elsewhere_when_one_is_killed(
    podium: Podium, cluster: RayCluster
) -> None:
    agents = [f"patient/killed-{number}" for number in range(6)]
    for agent in agents:
        assert say(podium, agent, "first") == 1
    before = places(podium, agents)
    assert set(before.values()) == {"n1", "n2", "n3"}
    assert {name: node["problem"] for name, node in nodes(podium).items()} == dict.fromkeys(("n1", "n2", "n3"))

    os.kill(cluster.raylets["n2"], signal.SIGKILL)
    for agent in agents:
        assert say(podium, agent, "second") == 2
    wait_until(lambda: "n2" not in nodes(podium))  # until Ray knows, its hosts may have answered
    for agent in agents:
        assert say(podium, agent, "third") == 3
        assert podium("cat", agent, "out.txt").stdout == "3 third\n"
        assert [row["turn"] for row in podium.json("history", agent, "out.txt")] == [1, 2, 3]
    after = places(podium, agents)
    assert "n2" not in after.values()
    assert {agent: after[agent] for agent, place in before.items() if place != "n2"} == {
        agent: place for agent, place in before.items() if place != "n2"
    }
    assert nodes(podium).keys() == {"n1", "n3"}
    assert json.loads(podium("verify", "--json").stdout)["ok"]


def test_agents_survive_the_coordinator_and_their_messages_the_service(podium: Podium, cluster: RayCluster) -> None:
    agents = [f"patient/kept-{number}" for number in range(3)]
    for agent in agents:
        assert say(podium, agent, "first") == 1
    before = {agent: (podium.json("why", agent)["host_id"], place) for agent, place in places(podium, agents).items()}

    [coordinator] = actors_of(cluster, "CoordinatorActor")
    os.kill(coordinator, signal.SIGKILL)
    for agent in agents:
        assert say(podium, agent, "second") == 2
    why = [podium.json("why", agent) for agent in agents]
    assert {each["agent"]: (each["host_id"], each["node"]) for each in why} == before

    [service] = processes_of(podium, "coordinator.service.daemon")
    os.kill(service, signal.SIGKILL)
    wait_until(lambda: service not in (found := processes_of(podium, "coordinator.service.daemon")) and found)
    wait_until(lambda: podium.json("nodes")["service"], "the gateway starts no other service")
    for agent in agents:
        wait_for_warm_host(podium, before[agent][1])  # else one elsewhere is ready sooner
        assert say(podium, agent, "third") == 3
        assert podium("cat", agent, "out.txt").stdout == "3 third\n"
    why = [podium.json("why", agent) for agent in agents]
    assert all(each["host_id"] != before[each["agent"]][0] for each in why)
    assert {each["agent"]: each["node"] for each in why} == {agent: node for agent, (_, node) in before.items()}


def test_a_coordinator_recovers_while_a_node_dies(podium: Podium, cluster: RayCluster) -> None:
    agents = [f"patient/both-{number}" for number in range(4)]
    for agent in agents:
        assert say(podium, agent, "first") == 1
    assert "n3" in places(podium, agents).values()
    [coordinator] = actors_of(cluster, "CoordinatorActor")
    for process in (coordinator, cluster.raylets["n3"]):
        os.kill(process, signal.SIGKILL)
    for agent in agents:
        assert say(podium, agent, "second") == 2
    wait_until(lambda: "n3" not in nodes(podium))
    for agent in agents:
        assert say(podium, agent, "third") == 3
        assert podium("cat", agent, "out.txt").stdout == "3 third\n"


def test_a_killed_service_leaves_nothing_on_the_cluster_and_its_home_is_served_without_one(
    podium: Podium, cluster: RayCluster
) -> None:
    """Its gateway is killed, too: no service joins the cluster again, which would end what is left there."""
    agent = "patient/left"
    assert say(podium, agent, "first") == 1
    gateway = json.loads((Home(podium.home).run_dir / "gateway.json").read_text())["pid"]
    for process in (gateway, *processes_of(podium, "coordinator.service.daemon")):
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not any(actors_of(cluster, name) for name in ("Coordinator", "NodeManager", "Host")))
    podium("run", PATIENT, "--key", "left", "--message", "second")
    assert podium("cat", agent, "out.txt").stdout == "2 second\n"
    assert podium("log", agent).stdout.count("turn.committed") == 2
    assert json.loads(podium("verify", "--json").stdout)["ok"]


@pytest.mark.slow
def test_a_home_on_servers_moves_between_nodes_too(tmp_path: Path) -> None:
    with (
        servers(tmp_path) as both,
        running_cluster("n1", "n2") as cluster,
        served(both.settings, cluster, tmp_path) as podium,
    ):
        agents = [f"patient/far-{number}" for number in range(4)]
        for agent in agents:
            assert say(podium, agent, "first") == 1
        assert set(places(podium, agents).values()) == {"n1", "n2"}
        os.kill(cluster.raylets["n2"], signal.SIGKILL)
        wait_until(lambda: "n2" not in nodes(podium))
        for agent in agents:
            assert say(podium, agent, "second") == 2
            assert podium("cat", agent, "out.txt").stdout == "2 second\n"
