"""Who has which Secret, and runs as whom: the table of k8s/README.md, and what agents' containers have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.home import Home
from coordinator.store.credentials import credentials_of
from tests.k8s.rendering import NAMES, container, objects, pod_of, pods, secrets_of, variables
from tools import chart

if TYPE_CHECKING:
    from tests.k8s.rendering import Pod

README = (chart.ROOT / "k8s" / "README.md").read_text(encoding="utf-8")
SECRETS = {
    "database": "podium-database",
    "bucket": "podium-bucket",
    "models": "podium-models",
    "Ray's token": "podium-ray",
    "door": "podium-door",
    "gateway's certificate": "podium-gateway",
}


PLACES = ("PODIUM_HOME", "CHRONICLE_CACHE_DIR", "TMPDIR", "PODIUM_RUN_DIR", "PODIUM_HOSTS_DIR")


def table() -> dict[str, tuple[int, set[str]]]:
    """Return the table of the README: of which user containers are, and which Secrets they have."""
    lines = README.partition("## Who has which Secret")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    names = rows[0][2:]
    return {
        row[0].strip("`"): (int(row[1]), {name for name, cell in zip(names, row[2:], strict=True) if cell == "yes"})
        for row in rows[2:]
    }


def user_of(pod: Pod, each: dict[str, Any]) -> int:
    return int(each["securityContext"].get("runAsUser", pod.spec["securityContext"]["runAsUser"]))


def test_the_table_is_what_is_rendered() -> None:
    assert set(table()) == {
        *("service", "ray-head", "node", "ray-worker", "gateway", "hand-over", "delete-clusters"),
        *("home", "doctor", "doctor-agents"),
    }
    values = chart.values_of(chart.CHART / "ci" / "production.values.yaml")
    values["bucket"]["existingSecret"] = {"name": "podium-bucket"}
    found = chart.objects(values)
    rendered = {
        each["name"]: (
            user_of(pod, each),
            {kind for kind, name in SECRETS.items() if name in secrets_of(pod, each)},
        )
        for pod in pods(found)
        if pod.component in {"head", "agents", "gateway", "doctor", "hand-over"}
        for each in pod.containers
    }
    assert rendered == table()


@pytest.mark.parametrize("name", NAMES)
def test_agents_write_to_nothing_of_the_container_beside_them(name: str) -> None:
    """Modes keep the two users apart; what neither may write, nobody can move away or replace."""
    found = objects(name)
    for pod in pods(found):
        if pod.component != "agents" or len(pod.containers) == 1:
            continue
        node, ray = (next(each for each in pod.containers if each["name"] == of) for of in ("node", "ray-worker"))
        assert user_of(pod, node) != user_of(pod, ray)
        assert "runAsGroup" not in {**node["securityContext"], **ray["securityContext"]}
        assert pod.spec["securityContext"]["runAsGroup"] == pod.spec["securityContext"]["fsGroup"]
        mounts = {each["name"]: {mount["name"]: mount for mount in each["volumeMounts"]} for each in (node, ray)}
        both = mounts["node"].keys() & mounts["ray-worker"].keys()
        assert both == {"home", "sockets"}
        for volume in both:
            assert mounts["node"][volume]["mountPath"] == mounts["ray-worker"][volume]["mountPath"]
        assert mounts["node"]["home"]["readOnly"] is mounts["ray-worker"]["sockets"]["readOnly"] is True
        places = {variable: variables(node)[variable]["value"] for variable in PLACES}
        where = {mount["mountPath"] for mount in node["volumeMounts"]}
        assert {
            of: max((each for each in where if value.startswith(each)), key=len) for of, value in places.items()
        } == {
            "PODIUM_HOME": mounts["node"]["node"]["mountPath"],
            "CHRONICLE_CACHE_DIR": mounts["node"]["node"]["mountPath"],
            "TMPDIR": mounts["node"]["node"]["mountPath"],
            "PODIUM_RUN_DIR": mounts["node"]["sockets"]["mountPath"],
            "PODIUM_HOSTS_DIR": mounts["node"]["home"]["mountPath"],
        }
        assert variables(ray)["CHRONICLE_CACHE_BYTES"]["value"] == "0"


@pytest.mark.parametrize("name", NAMES)
def test_containers_of_agents_have_no_credential(name: str) -> None:
    found = objects(name)
    for component, of_ray in (("head", "ray-head"), ("agents", "ray-worker")):
        pod = pod_of(component, found)
        each = container(of_ray, found)
        assert secrets_of(pod, each) == {secret for secret in secrets_of(pod, each) if secret.endswith("-ray")}
        assert "envFrom" not in each
        named = variables(each)
        assert [variable for variable in named if re.match(r"PG|PODIUM_|AWS_|FSSPEC_", variable)] == []
        assert {variable for variable, entry in named.items() if "valueFrom" in entry} == {"RAY_AUTH_TOKEN"}


def test_what_the_product_takes_for_a_credential_is_in_no_container_of_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Home, "is_shared", True)
    monkeypatch.setattr(Home, "blobs_url", "s3://bucket/prefix")
    is_credential = credentials_of(Home(chart.ROOT))
    found = objects("production")
    assert not any(
        is_credential(variable) for each in ("ray-head", "ray-worker") for variable in variables(container(each, found))
    )
    assert any(is_credential(variable) for variable in variables(container("node", found)))


@pytest.mark.parametrize("name", NAMES)
def test_agents_see_no_process_of_those_who_have_credentials(name: str) -> None:
    assert "shareProcessNamespace" not in pod_of("agents", objects(name)).spec
    # The head has no agents, and Ray's client needs it there.
    assert pod_of("head", objects(name)).spec["shareProcessNamespace"] is True


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_has_a_text_in_a_manifest_of_kubectl(name: str) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (chart.ROOT / "k8s" / "rendered").glob("*.yaml"))
    assert "kind: Secret\n" not in text
    assert "stringData" not in str(objects(name))
