"""Which clusters the service's router accepts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from coordinator.fleet.node_names import Member
from coordinator.home import Home
from coordinator.ray.router import Router
from coordinator.settings import Settings
from podium.errors import HomeError

if TYPE_CHECKING:
    from pathlib import Path

HERE = Member("1", "n1", "10.0.0.1", socket.gethostname())
THERE = Member("2", "n2", "10.0.0.2", "gpu-7")
ADDRESS = "10.0.0.1:6379"


def test_a_home_in_a_directory_is_not_served_on_other_machines(tmp_path: Path) -> None:
    router = Router(Home(tmp_path / "home").create(), Settings())
    router._check_machines(ADDRESS, [HERE])
    with pytest.raises(HomeError, match=r"has nodes on other machines \(gpu-7\), and the home .* `podium migrate`"):
        router._check_machines(ADDRESS, [HERE, THERE])
    assert router.notice is None


def test_the_nodes_of_other_machines_are_said_not_to_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    router = Router(Home(tmp_path / "home").create(), Settings())
    monkeypatch.setattr(Home, "is_shared", True)
    router._check_machines(ADDRESS, [HERE, THERE])
    assert router.notice == "Agents run on the nodes of gpu-7 when `podium node` runs there."
    monkeypatch.setattr(router, "_find_machine", {THERE.hostname: "told of"}.get)
    router.notice = None
    router._check_machines(ADDRESS, [HERE, THERE])
    assert router.notice is None


def test_a_running_service_is_not_taken_for_one_on_the_cluster(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    home.check_cluster(ADDRESS)
    with home.service_lock() as held:
        assert held
        home.make_run_dir()
        try:
            home.check_cluster(ADDRESS)  # it does not say yet
            home.note_cluster("")
            with pytest.raises(HomeError, match="runs its agents on this machine's own Ray; end it"):
                home.check_cluster(ADDRESS)
            home.note_cluster(ADDRESS)
            home.check_cluster(ADDRESS)
        finally:
            home.remove_run_dir()
