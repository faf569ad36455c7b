"""Joining real Ray clusters with and without token authentication: what is refused, and with what words."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from tests.ray_cluster import TOKEN, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.ray_cluster import RayCluster

_JOIN = """
import sys
from chronicle.errors import Unavailable
from coordinator.ray.cluster import disconnect, join, living_nodes
try:
    join(sys.argv[1], "podium-mine")
    print("joined", *(member.name for member in living_nodes()))
    disconnect()
except Unavailable as error:
    print(error)
"""
"""In a process of its own: Ray keeps the token that it has read."""

_DOCTOR = "import sys; from coordinator.cli.main import main; sys.exit(main([*sys.argv[2:], '--ray', sys.argv[1]]))"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with running_cluster("n1") as cluster:
        yield cluster


def joined(cluster: RayCluster, home: Path, **variables: str) -> str:
    """Join a cluster as a user with these variables and this home directory; return what is said."""
    done = run(_JOIN, cluster.address, home=home, variables=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def examined(cluster: RayCluster, home: Path, **variables: str) -> tuple[int, str]:
    """Have `podium doctor` look at a cluster, likewise; return its exit code and what it says."""
    done = run(_DOCTOR, cluster.address, "doctor", "--only", "ray", home=home, variables=variables)
    return done.returncode, done.stdout.strip()


def run(program: str, *arguments: str, home: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**others, "HOME": str(home), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_cluster_is_joined_with_its_token_alone(cluster: RayCluster, tmp_path: Path) -> None:
    place, mode = cluster.address, {"RAY_AUTH_MODE": "token"}
    where = "in RAY_AUTH_TOKEN, or in a file that RAY_AUTH_TOKEN_PATH names"
    wants = f"the Ray cluster at {place} wants a token: set RAY_AUTH_MODE=token, and give its token {where}"
    assert joined(cluster, tmp_path) == wants
    assert joined(cluster, tmp_path, RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN=TOKEN) == wants
    none = f"RAY_AUTH_MODE is token, and there is no token: give that of the Ray cluster {where}"
    assert joined(cluster, tmp_path, **mode) == none
    assert joined(cluster, tmp_path, **mode, RAY_AUTH_TOKEN_PATH=str(tmp_path / "gone")) == none
    refused = f"the Ray cluster at {place} refuses this token: give that of the cluster {where}"
    assert joined(cluster, tmp_path, **mode, RAY_AUTH_TOKEN="other" * 8) == refused
    assert joined(cluster, tmp_path, **mode, RAY_AUTH_TOKEN=TOKEN) == "joined n1"
    assert examined(cluster, tmp_path, **mode, RAY_AUTH_TOKEN="other" * 8) == (
        ExitCode.UNFIT,
        f"failed   ray       {refused}",
    )
    code, said = examined(cluster, tmp_path, **mode, RAY_AUTH_TOKEN=TOKEN)
    assert (code, "takes the token of this process" in said) == (ExitCode.OK, True), said
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(f"{TOKEN}\n")
    assert joined(cluster, tmp_path) == "joined n1", "as Ray's own programs do"


def test_a_cluster_without_authentication_is_refused_unless_it_is_at_the_loopback_alone(tmp_path: Path) -> None:
    with running_cluster("n1", token="") as cluster:
        for variables in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}):
            said = joined(cluster, tmp_path, **variables)
            assert said.startswith(
                f"the Ray cluster at {cluster.address} has no token authentication, so that all who reach"
            )
            assert "start its nodes with RAY_AUTH_MODE=token and a token in RAY_AUTH_TOKEN" in said
        code, said = examined(cluster, tmp_path)
        assert (code, "has no token authentication" in said) == (ExitCode.UNFIT, True), said
    with running_cluster("n1", token="", loopback=True) as cluster:
        assert joined(cluster, tmp_path, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0") == "joined n1"
