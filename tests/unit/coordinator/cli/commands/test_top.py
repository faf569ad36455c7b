"""``podium top`` of a home whose service does not run, and of a gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.views.top import once_shown
from coordinator.client.async_client import AsyncPodium
from coordinator.client.errors import BadAnswer
from coordinator.telemetry.figures import figures_of
from coordinator.testing import ScriptedResponse, ScriptedServer
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    agent.turn("one", {})
    agent.fail("bad")
    agent.admit("waits")
    agent.sleep()
    yield maker
    maker.close()


@pytest.fixture
def podium(made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(made.path, capsys)


def test_without_a_service_what_waits_is_shown(podium: Podium) -> None:
    figures: dict[str, Any] = podium.json("top", "--once")
    assert (figures["service"], figures["types"], figures["interval_s"]) == (False, [], None)
    assert (figures["agents_asleep"], figures["inbox_messages"], figures["parked_messages"]) == (1, 1, 1)
    assert figures["inbox_lag_s"] > 0
    assert figures["commit"] == {"count": 0, "p50_s": None, "p99_s": None}
    agents, inbox, *_ = podium("top", "--once").splitlines()
    assert agents.endswith("NO SERVICE")
    assert "1 waiting" in inbox
    assert "1 parked" in inbox


def test_a_home_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    podium = Podium(tmp_path / "none", capsys)
    assert podium("top", "--once", code=ExitCode.HOME_ERROR) == ""
    assert str(tmp_path / "none") in podium.err


def test_names_from_the_record_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    once_shown(figures_of({("podium_agents_awake", ("evil\x1b[2J", "de\nfault")): 1, ("podium_service_up", ()): 1}, 2))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "evil\\x1b[2J" in out


def test_of_several_nodes_each_is_shown_the_busiest_first(capsys: pytest.CaptureFixture[str]) -> None:
    of_one: dict[Any, Any] = {("podium_node_agents", ("n1",)): 1, ("podium_node_hosts", ("n1", "assigned")): 1}
    once_shown(figures_of(of_one, None))
    assert "n1" not in capsys.readouterr().out, "of one node the head line says it"
    several = {**of_one, ("podium_node_agents", ("second",)): 7, ("podium_node_hosts", ("second", "warm")): 2}
    figures = figures_of(several, None)
    assert figures["nodes"][0] == {"node": "n1", "agents": 1, "hosts": {"starting": 0, "warm": 0, "assigned": 1}}
    once_shown(figures)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("node")] == [
        "node    second  7 agents, 0 assigned, 2 warm, 0 starting",
        "node    n1      1 agents, 1 assigned, 0 warm, 0 starting",
    ]


def test_an_answer_that_is_no_metrics_is_reported() -> None:
    async def ask() -> None:
        async with (
            ScriptedServer([ScriptedResponse(200, {"Content-Type": "text/plain"}, (b"podium_hosts{",))]) as server,
            AsyncPodium(url=server.url) as podium,
        ):
            await podium.metrics()

    with pytest.raises(BadAnswer, match="Prometheus"):
        asyncio.run(ask())
