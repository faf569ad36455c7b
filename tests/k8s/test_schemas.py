"""What the chart renders, against the schemas of Kubernetes and of KubeRay, and by Ray's own reading."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import kubernetes_validate.utils
import pytest
import yaml
from jsonschema import Draft4Validator

from tests.k8s.rendering import NAMES, objects, of_kind, pods, ray_cluster, values_of
from tools import chart

VERSIONS: Final = ("1.30", "1.33", "1.37")
OF_OTHERS: Final = {"RayCluster", "HTTPRoute", "ScrapeConfig", "PrometheusRule"}
"""Kinds that are not of Kubernetes itself."""
CRDS: Final = Path(os.environ.get("KUBERAY_CRDS", chart.ROOT.parent / "shared" / "kuberay-crds"))
"""A directory with the definitions of KubeRay: ``rayclusters.yaml``, as it is in ``config/crd/bases``."""


@pytest.fixture(autouse=True)
def schemas_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", read_schema)


read_schema = cache(kubernetes_validate.utils.schema_contents)
"""A megabyte of JSON for each object otherwise."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_of_kubernetes(name: str, version: str) -> None:
    # A container with `restartPolicy` and the like: the strict schemas know no field that the version has not.
    found = objects(name)
    checked = [each for each in found if each["kind"] not in OF_OTHERS]
    checked += [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": dict(pod.labels)}, "spec": pod.spec}
        for pod in pods(found)
    ]
    assert len(checked) > 8
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)


@cache
def cluster_schema() -> Draft4Validator:
    file = CRDS / "rayclusters.yaml"
    if not file.exists():
        pytest.skip(f"there is no {file}: set KUBERAY_CRDS to the directory config/crd/bases of KubeRay's operator")
    definition = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = (each for each in definition["spec"]["versions"] if each["name"] == "v1")
    schema: dict[str, Any] = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return Draft4Validator(schema)


def strict(schema: Any) -> Any:
    """Return a schema that takes no unknown field, where Kubernetes would drop it silently."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema and "additionalProperties" not in schema:
        found["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_of_kuberay(name: str) -> None:
    errors = [
        f"{error.json_path}: {error.message}" for error in cluster_schema().iter_errors(ray_cluster(objects(name)))
    ]
    assert errors == []


def test_the_schema_of_kuberay_finds_what_it_does_not_know() -> None:
    cluster = chart.objects(values_of("minimal"))
    spec = ray_cluster(cluster)["spec"]
    spec["headGroupSpec"]["template"]["spec"]["initContainers"][0]["restartPolicyy"] = "Always"
    spec["upgradeStrategy"]["type"] = "Rolling"
    errors = " ".join(error.message for error in cluster_schema().iter_errors(ray_cluster(cluster)))
    assert "restartPolicyy" in errors
    assert "Rolling" in errors


def test_rays_own_reading_of_the_cluster() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    cluster = ray_cluster(objects("production"))
    read = _derive_autoscaling_config_from_ray_cr(cluster)
    groups = read["available_node_types"]
    assert groups["headgroup"]["resources"]["CPU"] == 0
    assert groups["agents"]["resources"] == {"CPU": 8, "memory": 16 << 30}
    assert (groups["agents"]["min_workers"], groups["agents"]["max_workers"]) == (2, 30)
    assert "idle_timeout_s" not in groups["agents"]
    assert groups["gpu"]["resources"] == {"CPU": 8, "GPU": 1, "memory": 32 << 30}
    assert groups["gpu"]["labels"] == {"accelerator": "l4"}
    assert (groups["gpu"]["min_workers"], groups["gpu"]["idle_timeout_s"]) == (0, 600.0)
    assert (read["idle_timeout_minutes"], read["max_workers"]) == (2.0, 34)


def test_kinds_of_others_are_those_of_their_operators() -> None:
    versions = {each["kind"]: each["apiVersion"] for each in objects("production") if each["kind"] in OF_OTHERS}
    assert versions == {
        "RayCluster": "ray.io/v1",
        "HTTPRoute": "gateway.networking.k8s.io/v1",
        "ScrapeConfig": "monitoring.coreos.com/v1alpha1",
        "PrometheusRule": "monitoring.coreos.com/v1",
    }
    assert of_kind("ServiceMonitor", objects("production")) == []  # it would count the home once for each gateway
