"""A home on a Ray cluster of three nodes: agents are spread over them, and move when a node dies or is drained."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import HELLO, Podium, fresh_home
from tests.ray_cluster import RayCluster, running_cluster
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENTS = [f"hello/{name}" for name in ("ann", "bob", "cat", "dan", "eve", "fay")]


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with running_cluster("n1", "n2", "n3") as cluster:
        yield cluster


@pytest.fixture
def podium(cluster: RayCluster, tmp_path: Path) -> Iterator[Podium]:
    """The command on a home that is served on the cluster."""
    project = tmp_path / "podium.toml"
    project.write_text(f"agents = [{HELLO!r}]\n")
    with fresh_home({"PODIUM_MOST_STARTING": "1"}) as podium:
        podium("up", "--ray", cluster.address, "--project", str(project), "--detach", "--port", "0")
        try:
            yield podium
        finally:
            podium("down")


def say(podium: Podium, agent: str, text: str) -> str:
    return podium("send", agent, text).stdout


def nodes(podium: Podium) -> dict[str, dict[str, Any]]:
    return {node["node"]: node for node in podium.json("nodes")["nodes"]}


def places(podium: Podium) -> dict[str, str | None]:
    """Where agents are awake."""
    return {agent: podium.json("why", agent)["node"] for agent in AGENTS}


def test_agents_are_spread_over_the_nodes_and_answer_elsewhere_when_one_is_killed(
    podium: Podium, cluster: RayCluster
) -> None:
    for agent in AGENTS:
        assert "This is message 1" in say(podium, agent, "first")
    before = places(podium)
    assert set(before.values()) >= {"n1", "n2", "n3"}
    assert {name: node["problem"] for name, node in nodes(podium).items()} == dict.fromkeys(("n1", "n2", "n3"))

    os.kill(cluster.raylets["n2"], signal.SIGKILL)
    for agent in AGENTS:
        assert "This is message 2" in say(podium, agent, "second")
    wait_until(lambda: "n2" not in nodes(podium))  # until Ray knows, its hosts may have answered
    for agent in AGENTS:
        assert "This is message 3" in say(podium, agent, "third")
        assert podium("cat", agent, "notes.txt").stdout == "1. first\n2. second\n3. third\n"
        assert podium.row(agent)["turn"] == 3
    after = places(podium)
    assert "n2" not in after.values()
    assert {agent: place for agent, place in after.items() if before[agent] != "n2"} == {
        agent: place for agent, place in before.items() if place != "n2"
    }
    assert nodes(podium).keys() == {"n1", "n3"}
    assert json.loads(podium("verify", "--json").stdout)["ok"]


def test_a_drained_node_gets_empty_and_its_agents_go_on_elsewhere(podium: Podium, cluster: RayCluster) -> None:
    for agent in AGENTS:
        say(podium, agent, "first")
    moved = [agent for agent, place in places(podium).items() if place == "n3"]
    assert moved
    answer = podium("drain", "n3")
    assert "n3 is drained" in answer.stderr
    there = nodes(podium)["n3"]
    assert (there["drained"], there["agents"], there["warm"], there["starting"]) == (True, 0, 0, 0)
    for agent in AGENTS:
        assert "This is message 2" in say(podium, agent, "second")
    assert "n3" not in places(podium).values()
    for agent in moved:
        assert podium("cat", agent, "notes.txt").stdout == "1. first\n2. second\n"
        assert podium.json("why", agent)["last_error"] is None, "no attempt was counted"

    refused = podium("drain", "n9", check=False)
    assert refused.returncode == ExitCode.NOT_FOUND
    assert "there is no node n9; there are n1, n2, n3" in refused.stderr
    podium("drain", "n3", "--undo")
    assert not nodes(podium)["n3"]["drained"]
    wait_until(lambda: nodes(podium)["n3"]["warm"])
