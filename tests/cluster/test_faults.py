"""A home on a fleet of machines, whatever fails: nothing is lost, nothing is committed twice, no old copy speaks.

All is real: Ray with a token, PostgreSQL, an S3 server, gateways, and clients on machines with networks of their own
(`tests.cluster.fleet`). `make cluster` runs the long form.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.chaos import ALL_FAULTS, FAULTS, Chaos
from tests.cluster.fleet import RAYLET, Fleet, running_fleet
from tests.e2e.chaos.judge import told
from tests.e2e.conftest import AGENTS
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = 'agents = ["clerks.py:Clerk", "clerks.py:SharedClerk", "heralds.py:Herald"]\n'
LEASES = {"PODIUM_LEASE_TTL_S": "5", "PODIUM_STOP_TIMEOUT_S": "5"}


@contextlib.contextmanager
def new_fleet(directory: Path) -> Iterator[Fleet]:
    machines = directory / "machines"
    machines.mkdir()
    for code in (AGENTS / "clerks.py", Path(__file__).with_name("heralds.py")):
        shutil.copy(code, machines)
    (machines / "podium.toml").write_text(PROJECT)
    with running_fleet(machines, machines / "podium.toml", LEASES) as fleet:
        try:
            yield fleet
        finally:
            fleet.print_logs()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with new_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@contextlib.contextmanager
def chaos(fleet: Fleet, *, clients: int, keys: int, seed: int) -> Iterator[Chaos]:
    going = Chaos(fleet, fleet.network.directory / "told", clients=clients, keys=keys, seed=seed)
    try:
        yield going
    finally:
        going.end()


def test_a_copy_that_was_cut_off_neither_commits_nor_reaches_a_client_after_healing(fleet: Fleet) -> None:
    gate = fleet.network.directory / "gate"
    log = fleet.outside.directory / "frames"
    client = fleet.outside.start(
        *("podium", "send", "herald/ann", "--json-message", json.dumps({"gate": str(gate)}), "--json"),
        log=log.name,
        environment={"PODIUM_URL": fleet.urls[0], "PODIUM_KEY": fleet.key},
    )

    def frames() -> list[dict[str, Any]]:
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}\n")]

    def places() -> list[str]:
        """The machines that the client has heard."""
        return "".join(frame["delta"] for frame in frames() if frame["type"] == "message_update").split()

    wait_until(places, "nothing was said")
    [first] = set(places())
    cut = fleet.network.machines[first]
    cut.cut()
    wait_until(lambda: places()[-1] != first, "no other machine has taken over")
    second = places()[-1]
    old = set(cut.processes("ray::HostActor"))
    assert old, "the old copy has ended"
    cut.mend()
    heard = len(places())
    wait_until(lambda: len(places()) > heard + 50, "it has stopped")
    gate.touch()
    assert client.wait() == 0
    said = places()
    begun = said.index(second)
    assert set(said[:begun]) == {first}
    assert set(said[begun:]) == {second}, "the old copy has spoken"
    assert [frame["type"] for frame in frames()].count("turn_end") == 1

    wait_until(lambda: not cut.processes(RAYLET), "it does not know that others have given it up")
    fleet.start_ray(cut)
    fleet.wait_for(cut)
    wait_until(lambda: not old.intersection(cut.processes("ray::HostActor")), "the old copy has not ended")
    assert fleet.ask("state", "herald/ann")["state"]["places"] == [second]
    assert fleet.podium(fleet.outside, "cat", "herald/ann", "place").stdout == second
    assert fleet.ask("verify")["ok"]


def test_each_fault_loses_and_repeats_nothing(fleet: Fleet) -> None:
    with chaos(fleet, clients=2, keys=3, seed=1) as going:
        going.play(FAULTS, 2)
        going.finish()


@pytest.mark.slow
@pytest.mark.timeout(0)  # its duration is given
def test_thousands_of_messages_through_many_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(1_000_000))
    ends_s = time.monotonic() + 60 * float(os.environ.get("MINUTES") or 20)
    print(f"make cluster SEED={seed}", flush=True)
    draw = random.Random(seed)
    with new_fleet(tmp_path) as fleet, chaos(fleet, clients=3, keys=6, seed=seed) as going:
        while time.monotonic() < ends_s:
            going.play(draw.sample(ALL_FAULTS, len(ALL_FAULTS)), 5)
        going.finish()
        print(len(told(going.directory, "acknowledged")), "messages", flush=True)
