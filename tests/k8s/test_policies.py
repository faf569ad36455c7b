"""What every pod of the chart keeps to: rights, probes, limits, ends, networks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.k8s.rendering import NAMES, container, objects, of_kind, pod_of, pods, ray_cluster, values_of
from tools import chart

EVERY = pytest.mark.parametrize("name", NAMES)
OF_RAY = ("ray-head", "ray-worker")
MOUNTING = ("ray-worker", "doctor-agents")
"""Containers in which workspaces are mounted."""


@EVERY
def test_no_image_is_latest_and_all_of_ours_are_one(name: str) -> None:
    images = {each["image"] for pod in pods(objects(name)) for each in pod.containers}
    assert [image for image in images if not re.search(r"(:[^:/]*\d[^:/]*|@sha256:[0-9a-f]{64})$", image)] == []
    assert [image for image in images if image.endswith(":latest")] == []
    ours = {container(each, objects(name))["image"] for each in ("service", "node", "gateway", *OF_RAY)}
    assert len(ours) == 1


@EVERY
def test_containers_have_only_the_rights_that_they_need(name: str) -> None:
    mode = values_of(name).get("fuse", {}).get("mode", "device-plugin")
    for pod in pods(objects(name)):
        for each in pod.containers:
            rights = each["securityContext"]
            if each["name"] not in MOUNTING or mode == "none":
                assert rights["allowPrivilegeEscalation"] is False, each["name"]
                assert rights["capabilities"] == {"drop": ["ALL"]}, each["name"]
                assert "privileged" not in rights
            elif mode == "device-plugin":
                assert rights["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
                assert "privileged" not in rights
            else:
                assert rights == {"privileged": True}
            if each["name"] not in (*OF_RAY, *MOUNTING):
                assert rights["readOnlyRootFilesystem"] is True, each["name"]
        if pod.component != "fuse":
            assert pod.spec["securityContext"]["runAsNonRoot"] is True
            assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_who_mounts_does_it_in_a_user_namespace_with_the_plugins_device() -> None:
    found = objects("minimal")
    assert pod_of("agents", found).spec["hostUsers"] is False
    resources = container("ray-worker", found)["resources"]
    assert resources["limits"]["smarter-devices/fuse"] == resources["requests"]["smarter-devices/fuse"] == 1
    for other in ("privileged", "no-fuse"):
        assert "hostUsers" not in pod_of("agents", objects(other)).spec
        assert "smarter-devices/fuse" not in json.dumps(objects(other))


@EVERY
def test_the_hosts_files_are_for_the_plugin_alone(name: str) -> None:
    for pod in pods(objects(name)):
        paths = [volume["hostPath"]["path"] for volume in pod.spec.get("volumes", ()) if "hostPath" in volume]
        assert pod.component == "fuse" or paths == [], pod.owner
        assert "/dev/fuse" not in paths
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys()


@EVERY
def test_every_container_says_what_it_needs_and_may_take(name: str) -> None:
    for pod in pods(objects(name)):
        for each in pod.containers:
            for amounts in (each["resources"]["requests"], each["resources"]["limits"]):
                assert {"cpu", "memory"} <= amounts.keys(), each["name"]
            if each["name"] in OF_RAY:  # Ray counts the limit as its own
                assert each["resources"]["requests"]["memory"] == each["resources"]["limits"]["memory"]


@EVERY
def test_no_container_has_a_token_of_kubernetes_but_the_autoscaler_and_the_one_that_deletes_clusters(name: str) -> None:
    found = objects(name)
    for pod in pods(found):
        assert pod.spec["automountServiceAccountToken"] is False, pod.owner
        tokens = {
            volume["name"] for volume in pod.spec.get("volumes", ()) if "serviceAccountToken" in json.dumps(volume)
        }
        for each in pod.containers:
            mounted = {mount["name"] for mount in each.get("volumeMounts", ())}
            assert not tokens & mounted or each["name"] == "delete-clusters", each["name"]
    assert all(each["automountServiceAccountToken"] is False for each in of_kind("ServiceAccount", found))
    (mount,) = ray_cluster(found)["spec"]["autoscalerOptions"]["volumeMounts"]
    assert mount["name"] in {volume["name"] for volume in pod_of("head", found).spec["volumes"]}
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"


@EVERY
def test_the_cluster_is_one_that_kuberay_takes(name: str) -> None:
    spec = ray_cluster(objects(name))["spec"]
    assert spec["authOptions"]["mode"] == "token"
    assert spec["authOptions"]["secretName"]
    assert spec["autoscalerOptions"]["version"] == "v2"
    assert "idleTerminationSeconds" not in spec["autoscalerOptions"]  # it ignores actors on the head
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert group["template"]["spec"].get("restartPolicy", "Never") == "Never"
        assert group["template"]["spec"]["containers"][0]["name"] in OF_RAY  # the first one is Ray's
        assert len(group["template"]["spec"]["containers"]) == 1  # others would not be started again
    for group in spec["workerGroupSpecs"]:
        assert "replicas" not in group  # the autoscaler's


@EVERY
def test_what_kuberay_would_not_start_again_is_a_sidecar(name: str) -> None:
    found = objects(name)
    for component, sidecar in (("head", "service"), ("agents", "node")):
        (each,) = pod_of(component, found).spec["initContainers"]
        assert (each["name"], each["restartPolicy"]) == (sidecar, "Always")
    # The containers after a sidecar are started when its startupProbe has passed, and the service waits for Ray.
    assert "startupProbe" not in container("service", found)
    assert "startupProbe" in container("node", found)


@EVERY
def test_an_end_leaves_time_to_drain(name: str) -> None:
    found = objects(name)
    seconds = values_of(name).get("drainSeconds", 60)
    for component in ("head", "agents"):
        pod = pod_of(component, found)
        assert pod.spec["terminationGracePeriodSeconds"] >= seconds + 60
        assert all("preStop" in each["lifecycle"] for each in pod.containers)
    for each in (container("service", found), container("node", found)):
        assert {"name": "PODIUM_STOP_TIMEOUT_S", "value": str(seconds)} in each["env"]
    assert "preStop" in container("gateway", found)["lifecycle"]


@EVERY
def test_budgets_are_numbers_of_pods_that_leave_one_to_be_evicted(name: str) -> None:
    found = objects(name)
    budgets = {each["metadata"]["name"]: each["spec"] for each in of_kind("PodDisruptionBudget", found)}
    (gateway,) = of_kind("Deployment", found)
    workers = sum(group["minReplicas"] for group in ray_cluster(found)["spec"]["workerGroupSpecs"])
    least = {"podium-gateway": gateway["spec"]["replicas"], "podium-agents": workers}
    assert budgets.keys() == {budget for budget, pods_of_it in least.items() if pods_of_it > 1}
    for budget, spec in budgets.items():
        # Of pods that no object with a scale has, Kubernetes takes no maxUnavailable and no percentage.
        assert isinstance(spec["minAvailable"], int)
        assert 0 < spec["minAvailable"] < least[budget]
        assert "maxUnavailable" not in spec


@EVERY
def test_gateways_are_probed_by_what_they_say(name: str) -> None:
    found = objects(name)
    each = container("gateway", found)
    scheme = "HTTPS" if values_of(name).get("gateway", {}).get("tlsSecret") else "HTTP"
    probes = {kind: each[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startup": "/healthz",
        "readiness": "/readyz",
        "liveness": "/healthz",  # a database that is away is no reason to end the process
    }
    assert {probe["scheme"] for probe in probes.values()} == {scheme}


@EVERY
def test_no_service_of_the_namespace_becomes_a_variable(name: str) -> None:
    # One called `podium` would be PODIUM_SERVICE_HOST, which is a setting.
    for pod in pods(objects(name)):
        assert pod.spec["enableServiceLinks"] is False, pod.owner


@EVERY
def test_sizes_of_directories_are_limited(name: str) -> None:
    for pod in pods(objects(name)):
        if pod.component in {"head", "agents", "gateway"}:
            for volume in pod.spec["volumes"]:
                assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], (pod.owner, volume["name"])


# -- networks ---------------------------------------------------------------------------------------------------------


def policy(component: str, name: str) -> dict[str, Any]:
    (found,) = (
        each["spec"]
        for each in of_kind("NetworkPolicy", objects(name))
        if each["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component") == component
    )
    return dict(found)


def peers(rules: list[dict[str, Any]], direction: str) -> list[str]:
    """Return who is named by rules: components, networks, or everybody."""
    found = []
    for rule in rules:
        for peer in rule.get(direction, [{}]):
            labels = peer.get("podSelector", {}).get("matchLabels", {})
            network = peer.get("ipBlock", {}).get("cidr")
            ports = ",".join(str(port["port"]) for port in rule.get("ports", ()))
            found.append(f"{labels.get('app.kubernetes.io/component') or network or 'any'}:{ports or 'all'}")
    return found


def test_what_agents_code_can_reach() -> None:
    agents = policy("agents", "minimal")
    assert agents["policyTypes"] == ["Ingress", "Egress"]
    assert peers(agents["ingress"], "from") == ["head:all", "agents:all"]
    assert peers(agents["egress"], "to") == [
        "head:all",
        "agents:all",
        "any:53,53",
        "any:5432",
        "any:443",
        "0.0.0.0/0:443,80",
        "::/0:443,80",
    ]
    (internet,) = (
        peer["ipBlock"] for rule in agents["egress"] for peer in rule.get("to", ()) if "0.0.0.0/0" in str(peer)
    )
    assert {"169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} <= set(internet["except"])


def test_who_reaches_the_head_and_the_gateways() -> None:
    assert peers(policy("head", "minimal")["ingress"], "from") == [
        "head:all",
        "agents:all",
        "gateway:8701",
        "doctor:8701",
    ]
    assert peers(policy("gateway", "minimal")["ingress"], "from") == ["any:8700"]
    assert peers(policy("gateway", "minimal")["egress"], "to") == ["any:53,53", "any:5432", "any:443", "head:8701"]
    assert "namespaceSelector" in policy("gateway", "production")["ingress"][0]["from"][0]
    assert peers(policy("gateway", "production")["ingress"], "from")[1:] == ["doctor:8700"]


def test_the_doctor_is_where_those_are_whom_it_stands_for() -> None:
    of_gateway, of_doctor = (peers(policy(each, "minimal")["egress"], "to") for each in ("gateway", "doctor"))
    assert of_doctor == [*of_gateway, "gateway:8700"]
    found = objects("minimal")
    doctor, agents = (each for each in pods(found) if each.owner.startswith("Pod/"))
    worker = pod_of("agents", found)
    assert (doctor.component, agents.component) == ("doctor", worker.component), "so that the same policies hold"
    mine, theirs = container("doctor-agents", found), container("ray-worker", found)
    assert mine["securityContext"] == theirs["securityContext"]
    assert agents.spec["hostUsers"] == worker.spec["hostUsers"]
    assert mine["resources"]["limits"]["smarter-devices/fuse"] == 1
    head = f"{ray_cluster(found)['metadata']['name']}-head-svc:6379"  # KubeRay's name for it
    assert f"--reaches={head}" in mine["args"]
    assert {"--misses=podium-gateway:8700", "--misses=169.254.169.254:80"} <= set(mine["args"])
    assert f"--misses={head}" in container("doctor", found)["args"]


def test_the_stores_of_a_trial_are_for_its_release() -> None:
    assert "postgres:5432" in peers(policy("agents", "trial")["egress"], "to")
    assert "bucket:8333" in peers(policy("agents", "trial")["egress"], "to")
    (stores,) = (
        each for each in of_kind("NetworkPolicy", objects("trial")) if each["metadata"]["name"] == "podium-trial"
    )
    assert stores["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/instance": chart.RELEASE
    }
    assert stores["spec"]["egress"] == []


@EVERY
def test_a_policy_selects_the_pods_that_there_are(name: str) -> None:
    found = objects(name)
    components = {pod.component for pod in pods(found)}
    policies = of_kind("NetworkPolicy", found)
    assert bool(policies) == values_of(name).get("networkPolicy", {}).get("enabled", True)
    for each in policies:
        component = each["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component", "postgres")
        assert component in components, each["metadata"]["name"]
    for each in of_kind("Service", found) + of_kind("PodDisruptionBudget", found):
        selector = each["spec"]["selector"]
        labels = selector.get("matchLabels", selector)
        assert any(labels.items() <= dict(pod.labels).items() for pod in pods(found)), each["metadata"]["name"]
