"""A home that one Ray cluster hands over to another, under load: nothing is lost, nothing is done twice.

All is real: two Ray clusters with a token, PostgreSQL, an S3 server, a gateway, and clients on machines of their own.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.chaos import Chaos
from tests.cluster.fleet import Fleet, running_fleet
from tests.e2e.conftest import AGENTS
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.machines import Machine, Started

PROJECT = 'agents = ["clerks.py:Clerk", "clerks.py:SharedClerk", "heralds.py:Herald"]\n'
SETTINGS = {"PODIUM_LEASE_TTL_S": "5", "PODIUM_STOP_TIMEOUT_S": "120"}
SHORT = {"n3": {"PODIUM_STOP_TIMEOUT_S": "5"}}
"""The second cluster, whose turns are cut soon."""
SERVICE = "coordinator.service.daemon"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # two clusters start, and each stands by once more


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    machines = tmp_path_factory.mktemp("fleet") / "machines"
    machines.mkdir()
    for code in (AGENTS / "clerks.py", Path(__file__).with_name("heralds.py")):
        shutil.copy(code, machines)
    (machines / "podium.toml").write_text(PROJECT)
    with running_fleet(
        machines, machines / "podium.toml", SETTINGS, nodes=4, gateways=1, clusters=2, of_machines=SHORT
    ) as fleet:
        try:
            yield fleet
        finally:
            fleet.print_logs()


@pytest.fixture
def load(fleet: Fleet, tmp_path: Path) -> Iterator[Chaos]:
    going = Chaos(fleet, fleet.network.directory / tmp_path.name, clients=1, keys=1, seed=1)
    try:
        going.wait_for_answers(3, "the start")
        yield going
        going.finish()
    finally:
        going.end()


class LongTurn:
    """A turn of an agent that says where it is until it is let end, and a client that follows it."""

    def __init__(self, fleet: Fleet, key: str) -> None:
        self._gate = fleet.network.directory / f"gate-{key}"
        self._log = fleet.outside.directory / f"frames-{key}"
        self._client = fleet.outside.start(
            *("podium", "send", f"herald/{key}", "--json-message", json.dumps({"gate": str(self._gate)}), "--json"),
            log=self._log.name,
            environment={"PODIUM_URL": fleet.urls[0], "PODIUM_KEY": fleet.key},
        )
        wait_until(self.places, "nothing was said")

    def frames(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines(keepends=True) if self._log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}\n")]

    def places(self) -> list[str]:
        """The machines that the client has heard."""
        return "".join(frame["delta"] for frame in self.frames() if frame["type"] == "message_update").split()

    def wait_for_more(self) -> None:
        heard = len(self.places())
        wait_until(lambda: len(self.places()) > heard + 10, "it has stopped")

    def wait_until_on(self, machines: set[str]) -> None:
        wait_until(lambda: self.places()[-1] in machines, f"it is not on {machines}")

    def let_end(self) -> list[dict[str, Any]]:
        """Return all frames."""
        self._gate.touch()
        assert self._client.wait(120) == 0
        found = self.frames()
        assert [frame["type"] for frame in found].count("turn_end") == 1
        return found


def names(fleet: Fleet, head: Machine) -> set[str]:
    return {node.name for node in fleet.cluster(head)}


def has_logged(fleet: Fleet, head: Machine, event: str) -> int:
    """How often a service has logged an event."""
    return (fleet.home(head) / "logs" / "service.log").read_text(errors="replace").count(event)


def begin_hand_over(fleet: Fleet, to: Machine) -> Started:
    return fleet.outside.start(
        "podium", "hand-over", to.name, log="hand-over", environment=fleet.environment(fleet.outside)
    )


def test_a_cluster_serves_while_the_one_before_it_ends_its_turns_and_back(fleet: Fleet, load: Chaos) -> None:
    old, new = fleet.heads
    turn = LongTurn(fleet, "ends")
    assert set(turn.places()) <= names(fleet, old)
    handing = begin_hand_over(fleet, new)
    wait_until(lambda: has_logged(fleet, new, "claim_taken"))
    load.wait_for_answers(3, "the hand-over")
    assert fleet.places().keys() == names(fleet, new)
    turn.wait_for_more()
    assert handing.runs(), "it has not waited for the turn"
    frames = turn.let_end()
    assert set(turn.places()) <= names(fleet, old), "it did not end where it was"
    assert "turn_retry" not in {frame["type"] for frame in frames}
    assert handing.wait(120) == 0

    turn = LongTurn(fleet, "is-cut")
    assert set(turn.places()) <= names(fleet, new)
    fleet.ask("hand-over", old.name)
    load.wait_for_answers(3, "the way back")
    turn.wait_until_on(names(fleet, old))  # the deadline of the drain has passed
    starts = [frame["attempt"] for frame in turn.let_end() if frame["type"] == "turn_start"]
    assert starts == [1, 1], "an attempt was counted"
    assert fleet.ask("state", "herald/is-cut")["state"]["places"] == [turn.places()[-1]]


@pytest.mark.parametrize("killed", ["old", "new"])
def test_a_service_that_is_killed_in_the_middle_loses_nothing(fleet: Fleet, load: Chaos, killed: str) -> None:
    serving = fleet.places().keys()
    old, new = sorted(fleet.heads, key=lambda head: head.name not in serving)
    turn = LongTurn(fleet, f"and-{killed}-killed")
    taken = has_logged(fleet, new, "claim_taken")
    handing = begin_hand_over(fleet, new)
    wait_until(lambda: has_logged(fleet, new, "claim_taken") > taken, deadline_s=180)
    assert (old if killed == "old" else new).kill(SERVICE)
    load.wait_for_answers(3, f"the kill of the {killed} service")
    assert handing.wait(180) == 0
    assert fleet.places().keys() == names(fleet, new)
    turn.let_end()
    [place] = fleet.ask("state", f"herald/and-{killed}-killed")["state"]["places"]
    assert place in (names(fleet, new) if killed == "old" else {node.name for node in fleet.nodes})


def test_the_one_that_stands_by_has_the_home_when_the_machine_of_the_other_one_is_gone(
    fleet: Fleet, load: Chaos
) -> None:
    """The last test of the module: that machine stays without power, and with it the head of its cluster."""
    serving = fleet.places().keys()
    old, new = sorted(fleet.heads, key=lambda head: head.name not in serving)
    wait_until(lambda: has_logged(fleet, new, "standing_by"), "nobody stands by")
    turn = LongTurn(fleet, "and-a-machine-is-gone")
    assert set(turn.places()) <= names(fleet, old)
    old.lose_power()
    load.wait_for_answers(3, "the power of the head")
    assert fleet.places().keys() == names(fleet, new)
    turn.wait_until_on(names(fleet, new))
    turn.let_end()
    [place] = fleet.ask("state", "herald/and-a-machine-is-gone")["state"]["places"]
    assert place in names(fleet, new)
