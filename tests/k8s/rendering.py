"""What the tests of the chart share: the objects of a case, and the containers in them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools import chart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMES: Final = [case.name.removesuffix(".values.yaml") for case in chart.CASES]


@dataclass(frozen=True, slots=True)
class Pod:
    """The pods that an object makes."""

    owner: str
    """Such as ``Deployment/podium-gateway``, and ``RayCluster/…/agents`` for a group of workers."""
    component: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]

    @property
    def containers(self) -> list[dict[str, Any]]:
        """All of its containers, sidecars included."""
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]


def values_of(name: str) -> dict[str, Any]:
    """Return the values of a case."""
    return copy.deepcopy(_values(name))


def merged(values: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return values with some of them changed."""
    found = copy.deepcopy(values)
    for key, value in change.items():
        found[key] = merged(found.get(key, {}), value) if isinstance(value, dict) else value
    return found


@cache
def _values(name: str) -> dict[str, Any]:
    return chart.values_of(Path(chart.CHART) / "ci" / f"{name}.values.yaml")


@cache
def objects(name: str) -> list[dict[str, Any]]:
    """Return the objects of a case; not to be changed."""
    return chart.objects(_values(name))


def of_kind(kind: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects of a kind."""
    return [each for each in found if each["kind"] == kind]


def ray_cluster(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the RayCluster."""
    (cluster,) = of_kind("RayCluster", found)
    return cluster


def pods(found: list[dict[str, Any]]) -> Iterator[Pod]:
    """Yield the pods of all objects."""
    for each in found:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] in {"Deployment", "StatefulSet", "DaemonSet", "Job"}:
            yield _pod(name, each["spec"]["template"])
        elif each["kind"] == "Pod":  # of `helm test`
            yield _pod(name, each)
        elif each["kind"] == "RayCluster":
            yield _pod(name, each["spec"]["headGroupSpec"]["template"])
            for group in each["spec"]["workerGroupSpecs"]:
                yield _pod(f"{name}/{group['groupName']}", group["template"])


def _pod(owner: str, template: dict[str, Any]) -> Pod:
    labels = template["metadata"]["labels"]
    return Pod(owner, labels["app.kubernetes.io/component"], labels, template["spec"])


def pod_of(component: str, found: list[dict[str, Any]]) -> Pod:
    """Return the first pod of a component."""
    return next(pod for pod in pods(found) if pod.component == component)


def container(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first container of that name."""
    return next(each for pod in pods(found) for each in pod.containers if each["name"] == name)


def variables(of: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the entries of a container's ``env``, by name."""
    return {entry["name"]: entry for entry in of.get("env", ())}


def secrets_of(pod: Pod, of: Mapping[str, Any]) -> set[str]:
    """Return the names of the Secrets that a container has, in variables or in mounted files."""
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", ())}
    mounted = [volumes[mount["name"]] for mount in of.get("volumeMounts", ()) if mount["name"] in volumes]
    found = {entry["valueFrom"]["secretKeyRef"]["name"] for entry in of.get("env", ()) if _is_secret(entry)}
    found |= {each["secretRef"]["name"] for each in of.get("envFrom", ()) if "secretRef" in each}
    found |= {volume["secret"]["secretName"] for volume in mounted if "secret" in volume}
    return found


def _is_secret(entry: Mapping[str, Any]) -> bool:
    return "secretKeyRef" in entry.get("valueFrom", {})
