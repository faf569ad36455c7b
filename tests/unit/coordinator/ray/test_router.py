"""Which clusters the service's router accepts, and what it does about nodes that are gone."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from coordinator.fleet.model import Route
from coordinator.fleet.nodes.node_names import Member
from coordinator.home import Home
from coordinator.ray.router import Router
from coordinator.settings import Settings
from podium.errors import HomeError, HostDied
from podium.tasks import beside
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coordinator.fleet.deaths.losses import Seen

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


class Coordinator:
    """One that tells of losses, each answer when it is let."""

    def __init__(self, answers: Sequence[tuple[Seen, list[str]]]) -> None:
        self._answers = list(answers)
        self.asked: list[Seen | None] = []
        self.lost_hosts = self

    async def remote(self, seen: Seen | None) -> tuple[Seen, list[str]]:
        self.asked.append(seen)
        if not self._answers:
            await asyncio.Event().wait()
        return self._answers.pop(0)


async def test_hosts_that_are_lost_with_their_nodes_are_lost_to_the_service_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Router(Home(tmp_path / "home").create(), Settings())
    answers: list[tuple[Seen, list[str]]] = [
        (("run", 0), []),
        (("run", 2), ["host_1", "host_2"]),
        (("next run", 0), []),
    ]
    router._coordinator = coordinator = Coordinator(answers)
    lost: list[str] = []
    monkeypatch.setattr(router.routes, "lose", lost.append)
    reached = [Route("host_dead", 1, 0), Route("host_alive", 1, 0)]
    monkeypatch.setattr(router.routes, "reached", lambda: reached if len(coordinator.asked) > 2 else [])

    async def probe(route: Route) -> None:
        if route.host_id == "host_dead":
            raise HostDied("it is gone")

    monkeypatch.setattr(router, "probe_host", probe)
    with beside(router._follow_losses()):
        await until(lambda: len(coordinator.asked) == 4)
    assert coordinator.asked == [None, ("run", 0), ("run", 2), ("next run", 0)]
    assert lost == ["host_1", "host_2", "host_dead"], "what a coordinator did not tell that died, the service finds out"
