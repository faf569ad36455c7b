"""The rendered pods serve, as pods do: their workers drain, their containers come again, and they end in order.

Slow: a cluster, PostgreSQL and an object store start and end, which takes more than half a minute.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.k8s.tour import CHANGE, place_of, replied, take_tour
from tests.k8s.trial import running_trial

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.fuse, pytest.mark.postgres]

AGENT = """
import os
from pathlib import Path
from podium import BaseAgent

class Spy(BaseAgent):
    idle_timeout_s = 600

    async def on_message(self, ctx, message):
        commands = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                commands.append(entry.read_text())
            except OSError:
                pass
        ctx.reply({"variables": sorted(os.environ), "commands": commands})
"""


def test_the_rendered_pods_serve_agents_drain_and_end_in_order(tmp_path: Path) -> None:
    network = Path("/proc/thread-self/ns/net")
    here = network.readlink()
    with running_trial(tmp_path, CHANGE) as trial:
        assert network.readlink() == here, "the balancer, and the commands, are not on this machine"
        trial.wait_until_ready()
        assert trial.head.passes("service", "liveness")
        take_tour(trial, tmp_path, print)

        (tmp_path / "spy.py").write_text(AGENT)
        (tmp_path / "podium.toml").write_text('agents = ["spy.py:Spy"]\n')
        trial.podium("deploy", "--project", str(tmp_path / "podium.toml"))
        seen = replied(trial.podium("send", "spy/bob", "hi", "--json"))
        place = place_of(trial, "spy/bob")
        assert place.passes("node", "readiness")
        secret = {"PGPASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PODIUM_JOURNAL_URL"}
        assert secret <= place.environment("node").keys()
        assert not secret & set(seen["variables"])
        programs = ("podium\0node", "coordinator.store")
        assert not [command for command in seen["commands"] if any(each in command for each in programs)]

        # A container that was killed is started again; clients have the other gateway meanwhile.
        for pod, container in ((place, "node"), (trial.gateways[0], "gateway")):
            before = pod.started[container]
            before.kill()
            trial.wait(lambda pod=pod, name=container, old=before: pod.started[name] is not old, "it is not started")  # type: ignore[misc]
            assert replied(trial.podium("send", "spy/bob", "hi", "--json"))
        assert place_of(trial, "spy/bob") is place, "it was not woken again"

        trial.end_workers()
        agents = json.loads(trial.head.podium("service", "ps", "--all", "--json"))["agents"]
        assert {each["agent"]: (each["status"], each["turn"], each["pending"]) for each in agents} == {
            "clerk/ann": ("asleep", 3, 0),
            "spy/bob": ("asleep", 3, 0),
        }
        trial.end(trial.head).result()
        assert trial.head.started["service"].wait() == 0
