"""Values that are refused when the chart is rendered: each with a sentence that says how to mend it."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest

from tests.k8s.rendering import merged, values_of
from tools import chart

GROUP = {
    "name": "agents",
    "minReplicas": 0,
    "maxReplicas": 1,
    "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}},
}

TOGETHER = [
    ({"image": {"repository": ""}}, "Set image.repository to the image that you have built"),
    ({"image": {"tag": "latest"}}, ": image.tag is latest"),
    ({"trial": {"postgres": {"image": {"tag": "latest"}}}}, "trial.postgres.image.tag is latest"),
    ({"kubeVersion": "1.29"}, "Kubernetes 1.29 is too old"),
    ({"kubeVersion": "v1.32.4"}, "Kubernetes 1.32 has no user namespaces"),
    ({"kuberay": {"version": "1.5.1"}}, "KubeRay 1.5.1 is too old"),
    ({"ray": {"version": "2.40.0"}}, "Ray 2.40.0 is too old"),
    ({"fullnameOverride": "a" * 41}, "cannot be the name of a RayCluster"),
    ({"fullnameOverride": "1a"}, "1a cannot be the name of a RayCluster"),
    ({"users": {"node": 1000}}, "users.ray and users.node are one user"),
    ({"trial": {"enabled": True}}, "leave database and bucket empty"),
    ({"database": {"existingSecret": {"name": ""}}}, "Set database.existingSecret.name"),
    ({"database": {"url": ""}}, "Set database.url to where the journal is"),
    ({"database": {"existingSecret": {"urlKey": "uri"}}}, "not both"),
    ({"database": {"url": "sqlite:///a"}}, "only PostgreSQL is reached"),
    ({"database": {"url": "postgresql://podium:secret@db/podium"}}, "database.url has a password"),
    ({"bucket": {"url": "/data"}}, "Set bucket.url to where the files are"),
    ({"settings": {"journal_url": "postgresql://db/x"}}, "settings.journal_url is set by the chart"),
    ({"settings": {"presentation": "fuse"}}, "settings.presentation is set by the chart"),
    ({"agentEnv": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]}, "agentEnv has AWS_SECRET_ACCESS_KEY"),
    ({"agentEnv": [{"name": "PGPASSWORD", "value": "x"}]}, "agentEnv has PGPASSWORD"),
    ({"agentEnv": [{"name": "OPENAI_API_KEY", "value": "x"}]}, "agentEnv has OPENAI_API_KEY"),
    ({"workers": [GROUP, GROUP]}, "Two groups of workers are called agents"),
    ({"workers": [{**GROUP, "minReplicas": 2}]}, "minReplicas, 2, is more than maxReplicas, 1"),
    ({"gateway": {"ingress": {"enabled": True}}}, "gateway.ingress is enabled without hosts"),
    ({"gateway": {"httpRoute": {"enabled": True}}}, "gateway.httpRoute is enabled without hostnames"),
    ({"monitoring": {"scrape": {"enabled": True}}}, "monitoring.scrape needs a key of podium"),
]

BY_THE_SCHEMA = [
    ({"fuse": {"mode": "hostpath"}}, "mode"),
    ({"imagee": {}}, "imagee"),
    ({"settings": {"warm_host": 1}}, "warm_host"),
    ({"gateway": {"replicas": 0}}, "replicas"),
    ({"gateway": {"podDisruptionBudget": {"minAvailable": "50%"}}}, "minAvailable"),
    ({"workers": []}, "workers"),
    ({"workers": [{"name": "agents", "minReplicas": 0, "maxReplicas": 1}]}, "resources"),
    ({"workers": [{**GROUP, "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1}}}]}, "memory"),
    ({"ray": {"redis": {"address": "redis"}}}, "address"),
    ({"image": {"digest": "sha256:12"}}, "digest"),
    ({"drainSeconds": 1}, "drainSeconds"),
]


def refusal(change: dict[str, Any], case: str = "minimal") -> str:
    with pytest.raises(helm_python.HelmError) as caught:
        chart.manifests(merged(values_of(case), change))
    return str(caught.value)


@pytest.mark.parametrize(("change", "sentence"), TOGETHER, ids=[sentence for _, sentence in TOGETHER])
def test_values_that_do_not_go_together(change: dict[str, Any], sentence: str) -> None:
    said = refusal(change)
    assert sentence in said
    assert said.rstrip().endswith(".")


@pytest.mark.parametrize(("change", "name"), BY_THE_SCHEMA, ids=str)
def test_values_of_the_wrong_name_or_type(change: dict[str, Any], name: str) -> None:
    assert name in refusal(change)


def test_a_trial_with_two_replicas() -> None:
    assert "trial.replicas is 1" in refusal({"trial": {"replicas": 2}}, "trial")
