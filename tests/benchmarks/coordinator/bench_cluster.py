"""A home on a fleet of machines (`tests.cluster.fleet`): what a fault costs an awake agent, and what a turn costs.

Rows:

* the gap after a fault: a client outside sends to one agent, message after message, through a gateway over TCP. The gap
  is the longest time without an answer from the fault on. After the ends of the agent's raylet, of its machine's power
  (whose peers hear nothing) and of its link it lasts until the agent answers elsewhere. PostgreSQL's counts from when
  that answers again; the coordinator's is to be none: what is shown is the longest pause beside that before.
* the same when the home is handed over to a second Ray cluster that stands by, and back: `podium hand-over`.
* a turn of an awake agent on another node than the service's, from a client outside through a gateway, against a call
  of a Ray actor on another node and one committed INSERT; both carry the same text, in turn.
* the placement of agents that are woken one after the other: the difference between the nodes with the most and the
  fewest, by the mean.

It needs root and takes minutes, so it runs only if it is named: ``make bench ARGS=cluster``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.fleet import RAYLET, Fleet, running_fleet
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.__main__ import Row
    from tests.cluster.machines import Machine

RUNS: Final = 3
ROUNDS: Final = 3
TURNS: Final = 200
AGENTS: Final = 300
CALM: Final = 50
"""Answers before and after what costs an awake agent nothing."""
PROGRAMS: Final = "tests.benchmarks.coordinator.cluster_programs"
SETTINGS: Final = {"PODIUM_LEASE_TTL_S": "5", "PODIUM_SHARED_AGENTS": "10"}
PROJECT: Final = 'agents = ["cluster_agents.py:Placed", "cluster_agents.py:Spread"]\n'


class Probe:
    """A client outside that sends to one agent.

    Args:
        log: what it has printed.
    """

    def __init__(self, fleet: Fleet, log: Path) -> None:
        self._fleet = fleet
        self._log = log

    def answers(self) -> list[tuple[float, str]]:
        """When each message was answered, and on which machine."""
        lines = self._log.read_text().splitlines(keepends=True) if self._log.exists() else []
        return [(float(at), place) for line in lines if line.endswith("\n") for at, place in [line.split()]]

    def wait_for(self, more: int) -> None:
        """Wait for further answers."""
        wanted = len(self.answers()) + more
        wait_until(lambda: len(self.answers()) >= wanted, "no answers")

    def machine(self) -> Machine:
        """Where the agent is."""
        return self._fleet.network.machines[self.answers()[-1][1]]

    def gap_s(self, since_s: float, until_s: float) -> float:
        """The longest time without an answer that ended then."""
        times = [at for at, _ in self.answers()]
        return max(after - max(before, since_s) for before, after in pairwise(times) if since_s < after <= until_s)

    def gap_until_elsewhere_s(self, since_s: float, machine: Machine) -> float:
        """The same, until the agent answers on another machine."""

        def elsewhere() -> float | None:
            return next((at for at, place in self.answers() if at > since_s and place != machine.name), None)

        until_s = wait_until(elsewhere, f"the agent of {machine.name} does not answer elsewhere")
        assert until_s is not None
        return self.gap_s(since_s, until_s)


@contextmanager
def _probing(fleet: Fleet, agent: str) -> Iterator[Probe]:
    log = fleet.outside.directory / agent.replace("/", "-")
    client = _start(fleet, log.name, "probe", agent)
    probe = Probe(fleet, log)
    try:
        probe.wait_for(CALM)
        yield probe
    finally:
        client.kill()
        client.wait()


def _start(fleet: Fleet, log: str, name: str, *arguments: str) -> Any:
    command = ["python", "-m", PROGRAMS, name, fleet.urls[0], *arguments]
    return fleet.outside.start(*command, log=log, environment={"PODIUM_KEY": fleet.key})


def _run(machine: Machine, environment: dict[str, str], name: str, *arguments: str) -> Any:
    return json.loads(machine.run("python", "-m", PROGRAMS, name, *arguments, environment=environment).stdout)


# -- gaps --------------------------------------------------------------------------------------------------------------


def _raylet(fleet: Fleet, probe: Probe) -> float:
    machine, began_s = probe.machine(), time.monotonic()
    machine.kill(RAYLET)
    gap_s = probe.gap_until_elsewhere_s(began_s, machine)
    _restore(fleet, machine)
    return gap_s


def _power(fleet: Fleet, probe: Probe) -> float:
    machine, began_s = probe.machine(), time.monotonic()
    machine.lose_power()
    gap_s = probe.gap_until_elsewhere_s(began_s, machine)
    fleet.boot(machine)
    _wait_for(fleet, machine)
    return gap_s


def _link(fleet: Fleet, probe: Probe) -> float:
    machine, began_s = probe.machine(), time.monotonic()
    machine.cut()
    gap_s = probe.gap_until_elsewhere_s(began_s, machine)
    machine.mend()
    _restore(fleet, machine)
    return gap_s


def _restore(fleet: Fleet, machine: Machine) -> None:
    """Have a machine whose raylet has ended, or will when it learns that it was given up, be a node again."""
    wait_until(lambda: not machine.processes(RAYLET))
    fleet.start_ray(machine)
    _wait_for(fleet, machine)


def _wait_for(fleet: Fleet, machine: Machine) -> None:
    """Wait until agents may come to a machine, and one could at once."""
    wait_until(lambda: fleet.places().get(machine.name, {}).get("warm"), f"{machine.name} does not come back")


def _database(fleet: Fleet, probe: Probe) -> float:
    fleet.restart_database()
    up_s = time.monotonic()
    probe.wait_for(CALM)
    return probe.gap_s(up_s, time.monotonic())


def _coordinator(fleet: Fleet, probe: Probe) -> tuple[float, float]:
    """Return the longest pause before, and after."""
    began_s = time.monotonic()
    probe.wait_for(CALM)
    [coordinator] = fleet.head.processes("ray::CoordinatorActor")
    killed_s = time.monotonic()
    os.kill(coordinator, signal.SIGKILL)
    wait_until(lambda: set(fleet.head.processes("ray::CoordinatorActor")) - {coordinator})
    probe.wait_for(CALM)
    return probe.gap_s(began_s, killed_s), probe.gap_s(killed_s, time.monotonic())


def _gaps(fleet: Fleet) -> list[Row]:
    with _probing(fleet, "placed/probed") as probe:
        rows = []
        for what, fault, target in (
            ("raylet killed", _raylet, "<= 5"),
            ("machine's power lost", _power, "<= 5"),
            ("link down", _link, "<= 10"),
            ("PostgreSQL restarted, from its first answer", _database, "<= 2"),
        ):
            gaps = [fault(fleet, probe) for _ in range(RUNS)]
            print(what, [round(gap, 2) for gap in gaps], flush=True)
            rows.append(
                _row(f"gap to the next answer: {what}", median(gaps), "s", f"longest {max(gaps):.1f} s", target)
            )
        before_s, after_s = zip(*(_coordinator(fleet, probe) for _ in range(RUNS)), strict=True)
        against = f"the longest pause before, {median(before_s) * 1e3:.0f} ms"
        rows.append(
            _row("longest pause of an awake agent: coordinator killed", median(after_s) * 1e3, "ms", against, "")
        )
        return rows


def _handed_over(fleet: Fleet) -> Row:
    with _probing(fleet, "placed/moved") as probe:
        gaps = []
        for number in range(RUNS):
            head = fleet.heads[(number + 1) % 2]
            machine, began_s = probe.machine(), time.monotonic()
            fleet.ask("hand-over", head.name)
            gaps.append(probe.gap_until_elsewhere_s(began_s, machine))
            probe.wait_for(CALM)
        print("handed over", [round(gap, 2) for gap in gaps], flush=True)
    return _row("gap to the next answer: handed over", median(gaps), "s", f"longest {max(gaps):.1f} s", "<= 10")


# -- turns and places --------------------------------------------------------------------------------------------------


def _turns(fleet: Fleet) -> Row:
    address, conninfo = fleet.ray_address, fleet.conninfo
    pairs = []
    for _ in range(ROUNDS):
        outside = {"PODIUM_KEY": fleet.key}
        turn_s = _run(fleet.outside, outside, "turns", fleet.urls[0], "placed/turning", str(TURNS))
        call_s = _run(fleet.head, fleet.environment(fleet.head), "calls", address, conninfo, str(TURNS))
        pairs.append((turn_s, call_s))
    turn_s, call_s = (median(side) for side in zip(*pairs, strict=True))
    against = f"a Ray call there and an INSERT, {call_s * 1e3:.1f} ms; the turn {turn_s * 1e3:.1f} ms"
    ratio = median(turn_s / call_s for turn_s, call_s in pairs)
    return _row("turn on an awake agent of another node, through a gateway", ratio, "x", against, "<= 2.5")


def _spread(fleet: Fleet) -> Row:
    found = _run(fleet.outside, {"PODIUM_KEY": fleet.key}, "wake", fleet.urls[0], "spread", str(AGENTS))
    counts = [found.get(machine.name, 0) for machine in fleet.nodes]
    spread = (max(counts) - min(counts)) / (AGENTS / len(counts))
    against = f"agents by node: {', '.join(map(str, counts))}"
    return _row(f"{AGENTS} awake shared agents on three nodes: spread", spread * 100, "%", against, "<= 10")


def _row(name: str, value: float, unit: str, floor: str, target: str) -> Row:
    return {"name": f"cluster: {name}", "value": round(value, 3), "unit": unit, "target": target, "floor": floor}


def run() -> list[Row]:
    """Measure and return the rows."""
    wanted = os.environ.get("CLUSTER_ROWS", "turns,spread,gaps,handed-over").split(",")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as name:
        directory = Path(name)
        shutil.copy(Path(__file__).with_name("cluster_agents.py"), directory)
        project = directory / "podium.toml"
        project.write_text(PROJECT)
        if set(wanted) - {"handed-over"}:
            with running_fleet(directory, project, SETTINGS, gateways=1) as fleet:
                if "turns" in wanted:
                    rows.append(_turns(fleet))
                if "spread" in wanted:
                    rows.append(_spread(fleet))
                if "gaps" in wanted:
                    rows += _gaps(fleet)
        if "handed-over" in wanted:
            with running_fleet(_emptied(directory), project, SETTINGS, nodes=4, gateways=1, clusters=2) as fleet:
                rows.append(_handed_over(fleet))
    return rows


def _emptied(directory: Path) -> Path:
    """Return the directory without the disks of machines before."""
    for each in directory.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
    return directory
