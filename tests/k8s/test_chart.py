"""The chart of k8s/chart: it lints, renders with each of its cases, and makes another cluster when pods change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import helm_python
import pytest

from coordinator.cli.exits import ExitCode
from coordinator.settings import Settings
from tests.k8s.rendering import NAMES, container, merged, objects, of_kind, pod_of, ray_cluster, values_of, variables
from tools import chart

if TYPE_CHECKING:
    from pathlib import Path


# C.12
@pytest.mark.parametrize("name", NAMES)
def test_it_lints(name: str) -> None:
    report = helm_python.lint(chart.CHART, values_of(name), strict=True, kube_version="v1.36.0")
    assert report["errors"] == []
    assert [found for found in report["messages"] if found["severity"] > 1] == []  # above: an icon is recommended


@pytest.mark.parametrize("name", NAMES)
def test_objects_have_unique_names_and_the_labels_of_the_release(name: str) -> None:
    found = objects(name)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(names) == len(set(names)) > 5
    for each in found:
        if each["metadata"]["name"].endswith("-extra"):  # of `extraObjects`
            continue
        assert each["metadata"]["namespace"] == chart.NAMESPACE, each["metadata"]["name"]
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == chart.RELEASE


def test_the_least_values_name_what_nothing_can_be_guessed_of() -> None:
    def leaves(value: Any, prefix: str = "") -> list[str]:
        if not isinstance(value, dict):
            return [prefix]
        return [leaf for key, part in value.items() for leaf in leaves(part, f"{prefix}.{key}".strip("."))]

    assert leaves(values_of("minimal")) == [
        "image.repository",
        "database.url",
        "database.existingSecret.name",
        "bucket.url",
    ]


def test_every_setting_can_be_given_but_those_of_the_chart() -> None:
    schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]["settings"]["properties"]) == set(Settings.model_fields)


def test_a_setting_reaches_all_processes_that_read_it() -> None:
    found = objects("production")
    for name in ("service", "node", "gateway"):
        assert {"name": "PODIUM_WARM_HOSTS", "value": "2"} in container(name, found)["env"], name


# -- revisions --------------------------------------------------------------------------------------------------------


def cluster_name(values: dict[str, Any]) -> str:
    return str(ray_cluster(chart.objects(values))["metadata"]["name"])


@pytest.mark.parametrize(
    "change",
    [
        {"image": {"tag": "0.2.0"}},
        {"ray": {"version": "2.61.0"}},
        {"fuse": {"mode": "none"}},
        {"head": {"resources": {"limits": {"memory": "8Gi"}}}},
        {"settings": {"warm_hosts": 3}},
        {"agentEnv": [{"name": "LANG", "value": "C.UTF-8"}]},
        {"workerDefaults": {"labels": {"disk": "fast"}}},
        {"ray": {"redis": {"address": "redis:6379"}}},
    ],
    ids=str,
)
def test_what_changes_pods_makes_another_cluster(change: dict[str, Any]) -> None:
    values = values_of("minimal")
    assert cluster_name(merged(values, change)) != cluster_name(values)


@pytest.mark.parametrize(
    "change",
    [
        {"workers": [{"minReplicas": 3, "maxReplicas": 7}]},
        {"gateway": {"replicas": 5}},
        {"ray": {"autoscaler": {"idleTimeoutSeconds": 5}}},
        {"project": "# other\n"},
        {"networkPolicy": {"enabled": False}},
    ],
    ids=str,
)
def test_what_changes_no_pod_of_it_leaves_the_cluster(change: dict[str, Any]) -> None:
    values = values_of("minimal")
    if "workers" in change:
        group = {"name": "agents", "resources": _resources(), "minReplicas": 1, "maxReplicas": 10}
        values = merged(values, {"workers": [group]})
        change = {"workers": [{**group, **change["workers"][0]}]}
    assert cluster_name(merged(values, change)) == cluster_name(values)


def _resources() -> dict[str, Any]:
    amounts = {"cpu": 2, "memory": "8Gi"}
    return {"requests": amounts, "limits": amounts}


def test_an_upgrade_leaves_the_cluster_before_to_its_agents() -> None:
    cluster = ray_cluster(objects("minimal"))
    assert cluster["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert cluster["spec"]["upgradeStrategy"] == {"type": "None"}
    assert re.fullmatch(r"podium-[0-9a-f]{8}", cluster["metadata"]["name"])


def test_ten_groups_with_long_names_have_a_name_that_kuberay_takes() -> None:
    values = merged(values_of("minimal"), {"fullnameOverride": "a" * 40})
    assert len(cluster_name(values)) <= 53


# -- hand-over --------------------------------------------------------------------------------------------------------


def test_one_job_of_all_revisions_has_its_cluster_take_the_home_over() -> None:
    values = values_of("minimal")
    for changed in (values, merged(values, {"image": {"tag": "0.2.0"}})):
        found = chart.objects(changed)
        name = str(ray_cluster(found)["metadata"]["name"])
        (job,) = of_kind("Job", found)
        assert job["metadata"]["name"] == "podium-hand-over"
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-upgrade,post-rollback"
        assert job["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"
        (rule,) = job["spec"]["podFailurePolicy"]["rules"]
        assert rule["onExitCodes"]["values"] == [ExitCode.HOME_ERROR], "it does not order again after a later order"
        command = container("hand-over", found)
        assert command["command"][:5] == ["podium", "hand-over", name, "--order", "$(ORDER)"]
        same_in_all_pods = {
            "fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"
        }  # which Kubernetes writes
        assert variables(command)["ORDER"]["valueFrom"] == {"fieldRef": same_in_all_pods}
        assert container("delete-clusters", found)["args"][1:] == [chart.RELEASE, name]


def test_services_have_the_names_of_their_clusters_and_stand_by() -> None:
    found = objects("minimal")
    service = container("service", found)
    field = {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}  # which KubeRay writes
    assert variables(service)["PODIUM_SERVICE_NAME"]["valueFrom"] == field
    assert service["command"][:4] == ["podium", "up", "--standby", "--ray"]


def test_the_job_may_list_and_delete_ray_clusters_and_nothing_else() -> None:
    found = objects("minimal")
    (role,) = of_kind("Role", found)
    assert role["rules"] == [{"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["list", "delete"]}]
    (binding,) = of_kind("RoleBinding", found)
    assert [each["name"] for each in binding["subjects"]] == [pod_of("hand-over", found).spec["serviceAccountName"]]
    without = chart.objects(merged(values_of("minimal"), {"handOver": {"enabled": False}}))
    assert [each for kind in ("Job", "Role", "RoleBinding") for each in of_kind(kind, without)] == []


class Api(BaseHTTPRequestHandler):
    """As much of the API server of Kubernetes as the Job asks."""

    clusters: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret"
        assert (
            self.path == "/apis/ray.io/v1/namespaces/ours/rayclusters?labelSelector=app.kubernetes.io%2Finstance%3Done"
        )
        self._say({"items": [{"metadata": {"name": name}} for name in sorted(self.clusters)]})

    def do_DELETE(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret"
        self.clusters.remove(self.path.removeprefix("/apis/ray.io/v1/namespaces/ours/rayclusters/"))
        self._say({})

    def _say(self, answer: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


def test_the_job_deletes_the_other_clusters_of_the_release_if_its_own_is_there(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "namespace").write_text("ours")
    program = container("delete-clusters", objects("minimal"))["args"][0]
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {**os.environ, "API": f"http://127.0.0.1:{server.server_port}", "ACCOUNT": str(tmp_path)}

        def delete_but(kept: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", program, "one", kept]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        Api.clusters = {"podium-new", "podium-old", "podium-older"}
        refused = delete_but("podium-other")
        assert refused.returncode
        assert "there is no RayCluster podium-other: nothing is deleted" in refused.stderr
        assert len(Api.clusters) == 3
        for _ in range(2):  # it is repeated if it was interrupted
            assert delete_but("podium-new").returncode == 0
            assert Api.clusters == {"podium-new"}
        server.shutdown()
