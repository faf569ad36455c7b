"""The rendered pods serve, as pods do: their workers drain, their containers come again, and they end in order.

An agent cannot get at what the container beside its own has, which is of another user.

Slow: a cluster, PostgreSQL and an object store start and end, which takes more than half a minute.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.k8s.tour import CHANGE, place_of, replied, take_tour
from tests.k8s.trial import running_trial

if TYPE_CHECKING:
    from tests.k8s.pods import Pod
    from tests.k8s.trial import Trial

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.fuse, pytest.mark.postgres]

THIEF = Path(__file__).parents[1] / "e2e" / "agents" / "thief.py"


def test_the_rendered_pods_serve_agents_drain_and_end_in_order(tmp_path: Path) -> None:
    network = Path("/proc/thread-self/ns/net")
    here = network.readlink()
    with running_trial(tmp_path, CHANGE) as trial:
        assert network.readlink() == here, "the balancer, and the commands, are not on this machine"
        trial.wait_until_ready()
        assert trial.head.passes("service", "liveness")
        take_tour(trial, tmp_path, print)

        (tmp_path / "thief.py").write_bytes(THIEF.read_bytes())
        (tmp_path / "podium.toml").write_text('agents = ["thief.py:Thief"]\n')
        trial.podium("deploy", "--project", str(tmp_path / "podium.toml"))
        check(stolen(trial, trial.workers[0]))
        place = place_of(trial, "thief/bob")
        assert place.passes("node", "readiness")
        assert place.passes("node", "liveness")

        # A container that was killed is started again; clients have the other gateway meanwhile.
        for pod, container in ((place, "node"), (trial.gateways[0], "gateway")):
            before = pod.started[container]
            before.kill()
            trial.wait(lambda pod=pod, name=container, old=before: pod.started[name] is not old, "it is not started")  # type: ignore[misc]
            check(stolen(trial, place))
        assert place_of(trial, "thief/bob") is place, "it was not woken again"

        trial.end_workers()
        agents = json.loads(trial.head.podium("service", "ps", "--all", "--json"))["agents"]
        assert {each["agent"]: (each["status"], each["turn"], each["pending"]) for each in agents} == {
            "clerk/ann": ("asleep", 3, 0),
            "thief/bob": ("asleep", 3, 0),
        }
        trial.end(trial.head).result()
        assert trial.head.started["service"].wait() == 0


def stolen(trial: Trial, worker: Pod) -> dict[str, Any]:
    """Have an agent try what a worker's other container has, and return what came of it."""
    node = worker.environment("node")
    message = {
        "backwards": [node[name][::-1] for name in ("PGPASSWORD", "AWS_SECRET_ACCESS_KEY")],
        "directories": ["/var/lib", "/run"],
        "conninfo": node["PODIUM_JOURNAL_URL"].partition("?")[0],
        "other": {"session": "ses_1", "branch": "br_1", "name": "clerk/ann@default"},
        "node": {"run_dir": node["PODIUM_RUN_DIR"], "home": node["PODIUM_HOME"]},
    }
    return replied(trial.podium("send", "thief/bob", json.dumps(message), "--json"))


def check(found: dict[str, Any]) -> None:
    """Check that an agent got nothing of the container beside its own."""
    assert found["own variables"] == found["files"] == []
    assert not [line for line in found["processes"] if "podium node" in line or "coordinator.store" in line]
    assert any("raylet" in line for line in found["processes"]), "it has not looked for processes"
    assert [name for name, said in found["node"].items() if not said.startswith("refused")] == ["connect"]
