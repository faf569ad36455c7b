"""A home on a Ray cluster without a node for agents: the autoscaler adds one as they wake, and takes it away again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import AGENTS, fresh_home
from tests.ray_cluster import autoscaling_cluster
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Podium


def nodes(podium: Podium) -> int:
    """The nodes beside the head."""
    return len(podium.json("nodes")["nodes"]) - 1


@pytest.mark.slow  # raylets come and go, which takes a minute
def test_a_node_comes_for_an_agent_and_goes_when_it_sleeps(tmp_path: Path) -> None:
    project = tmp_path / "podium.toml"
    project.write_text(f"agents = ['{AGENTS / 'plain.py'}:Patient']\n")
    variables = {"PODIUM_AUTOSCALER": "true", "PODIUM_WARM_HOSTS": "0"}
    with autoscaling_cluster(cpus=1, most_nodes=2, idle_s=3) as address, fresh_home(variables) as podium:
        podium("up", "--ray", address, "--project", str(project), "--detach", "--port", "0")
        try:
            assert nodes(podium) == 0
            podium("send", "patient/a", "first", "--no-wait")
            wait_until(lambda: "a node, for which Ray's autoscaler is asked, as " in podium("why", "patient/a").stdout)
            wait_until(lambda: nodes(podium))
            assert podium("send", "patient/a", "second").stdout.split()[1] == "2", "both were handled"
            podium("passivate", "patient/a")
            wait_until(lambda: not nodes(podium))
        finally:
            podium("down")
            podium.print_logs({})
