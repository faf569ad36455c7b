"""Joining a real Ray cluster: what is refused, what an earlier service has left there, and what waits for nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ray_cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ray_cluster import RayCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with running_cluster("n1", "n2") as cluster:
        yield cluster


def check(what: str, cluster: RayCluster) -> None:
    """Run a part of `tests.cluster.joining`."""
    command = [sys.executable, "-m", "tests.cluster.joining", what, cluster.address]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_an_earlier_service_of_the_home_has_left_is_ended_and_nothing_of_other_homes(cluster: RayCluster) -> None:
    check("left", cluster)


def test_a_cluster_of_another_version_is_refused_with_both_versions(cluster: RayCluster) -> None:
    check("version", cluster)


def test_what_waits_for_nodes_leaves_them_to_hosts_and_ends_with_its_service(cluster: RayCluster) -> None:
    check("nodes", cluster)
