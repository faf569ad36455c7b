"""Ray's autoscaler for KubeRay and the rendered RayCluster: workers come as agents wake, and go as they sleep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.k8s.rendering import merged, ray_cluster, values_of
from tests.k8s.trial import running_trial, workers
from tools import chart

if TYPE_CHECKING:
    from pathlib import Path

    from tests.k8s.trial import Trial

pytestmark = pytest.mark.ray

AGENTS = """
from podium import BaseAgent

class Large(BaseAgent):
    resources = {"CPU": 3}

    async def on_message(self, ctx, message):
        await ctx.send_message("here")

class Nowhere(Large):
    resources = {"unobtainium": 1}
"""


@pytest.mark.slow  # raylets come and go, which takes more than a minute
@pytest.mark.fuse
@pytest.mark.postgres
def test_workers_come_and_go_with_agents(tmp_path: Path) -> None:
    group = workers(0, 2, idleTimeoutSeconds=5)
    with running_trial(tmp_path, {"workers": [group]}, autoscaler={"AUTOSCALER_UPDATE_INTERVAL_S": "1"}) as trial:
        trial.wait_until_ready()
        (tmp_path / "agents.py").write_text(AGENTS)
        (tmp_path / "podium.toml").write_text("agents = ['agents.py:Large', 'agents.py:Nowhere']\n")
        trial.podium("deploy", "--project", str(tmp_path / "podium.toml"))
        assert trial.workers == []

        trial.podium("send", "nowhere/a", "hi", "--no-wait")
        for key in "abc":  # one more than the group may have workers
            trial.podium("send", f"large/{key}", "hi", "--no-wait")
        trial.wait(lambda: len(trial.workers) == 2, "no workers come")
        trial.wait(lambda: turns(trial) == 2, "the agents did not wake")
        why = trial.podium("why", "nowhere/a")
        assert "a node, for which Ray's autoscaler is asked, as " in why
        assert f"{trial.workers[0].name} lacks unobtainium 1" in why
        assert all(worker.name in trial.podium("nodes") for worker in trial.workers)
        assert all(worker.name in trial.podium("top", "--once") for worker in trial.workers)
        for key in "abc":
            trial.podium("passivate", f"large/{key}")
        trial.wait(lambda: turns(trial) == 3, "the third agent did not wake")
        for key in "abc":
            trial.podium("passivate", f"large/{key}")
        trial.wait(lambda: not trial.workers, "the workers do not go while an agent waits for what no group has")
        assert agents(trial)["nowhere/a"]["pending"] == 1


def agents(trial: Trial) -> dict[str, dict[str, Any]]:
    return {each["agent"]: each for each in json.loads(trial.podium("ps", "--all", "--json"))["agents"]}


def turns(trial: Trial) -> int:
    return sum(agent["turn"] for agent in agents(trial).values())


def test_what_cannot_be_had_does_not_keep_ray_from_adding_what_can() -> None:
    """Ray's scheduler, with the rendered groups: the reason for placement groups (ADR 50)."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil
    from ray.core.generated import autoscaler_pb2

    messages: Any = autoscaler_pb2
    values = merged(values_of("minimal"), {"workers": [workers(0, 2)]})
    config = AutoscalingConfig(_derive_autoscaling_config_from_ray_cr(ray_cluster(chart.objects(values))))
    needs = [ResourceRequestUtil.make(each) for each in ({"unobtainium": 1.0}, *[{"CPU": 3.0}] * 3)]

    def launched(**asked: Any) -> dict[str, int]:
        types = config.get_node_type_configs()
        request = SchedulingRequest(node_type_configs=types, disable_launch_config_check=True, **asked)
        return {each.instance_type: each.count for each in ResourceDemandScheduler().schedule(request).to_launch}

    groups = [messages.GangResourceRequest(requests=[each]) for each in needs]
    assert launched(gang_resource_requests=groups) == {"agents": 2}
    together = messages.ClusterResourceConstraint(resource_requests=ResourceRequestUtil.group_by_count(needs))
    assert launched(cluster_resource_constraints=[together]) == {}, "request_resources would do as well"
