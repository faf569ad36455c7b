"""The chart against the product: its commands, settings, probes, metrics, and versions are those of the code."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from coordinator.cli.main import app_of
from coordinator.home import Home
from coordinator.registry.project import load_project
from coordinator.settings import read_settings
from coordinator.telemetry.instruments import INSTRUMENTS
from tests.k8s.rendering import NAMES, container, objects, of_kind, pods, ray_cluster, values_of, variables
from tools import chart

ROOT = chart.ROOT
EVERY = pytest.mark.parametrize("name", NAMES)


def commands_of(each: dict[str, Any]) -> list[list[str]]:
    """Return the commands of podium that a container runs: its own, those of its probes and hooks, and in a shell."""
    hooks = [each.get(f"{kind}Probe", {}).get("exec", {}) for kind in ("startup", "readiness", "liveness")]
    hooks += [hook.get("exec", {}) for hook in each.get("lifecycle", {}).values()]
    lines = [[*each.get("command", ()), *each.get("args", ())], *(hook.get("command", []) for hook in hooks)]
    found = []
    for line in lines:
        if line[:2] == ["/bin/bash", "-c"]:
            parts = [shlex.split(part) for part in re.split(r"[;&|]+", " ".join(line[2:]))]
            found += [part[part.index("podium") :] for part in parts if "podium" in part]
        elif line[:1] == ["podium"]:
            found.append(line)
    return found


@EVERY
def test_every_command_is_one_of_podium(name: str) -> None:
    app = typer.main.get_command(app_of())
    seen = set()
    for pod in pods(objects(name)):
        for each in pod.containers:
            for line in commands_of(each):
                context = app.make_context("podium", line[1:2], resilient_parsing=True)
                command = app.get_command(context, line[1])  # type: ignore[attr-defined]
                assert command is not None, line
                command.make_context(line[1], line[2:])  # raises for an option that is not known
                seen.add(line[1])
    assert seen == {"up", "node", "down", "keys", "doctor", "hand-over"}


@EVERY
def test_every_variable_is_a_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    documented = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for pod in pods(objects(name)):
        for each in pod.containers:
            with monkeypatch.context() as patch:
                for variable, entry in variables(each).items():
                    if variable.startswith(("PODIUM_", "CHRONICLE_")):
                        assert f"`{variable}`" in documented, variable
                        patch.setenv(variable, entry.get("value", "postgresql://podium@db/podium"))
                read_settings()  # raises for a value that cannot be used


@EVERY
def test_the_project_is_one(name: str, tmp_path: Path) -> None:
    (configuration,) = (
        each for each in of_kind("ConfigMap", objects(name)) if each["metadata"]["name"] == "podium-project"
    )
    file = tmp_path / "podium.toml"
    file.write_text(configuration["data"]["podium.toml"], encoding="utf-8")
    assert load_project(file).agents == ()


@EVERY
def test_the_ports_and_paths_of_probes_are_those_that_commands_listen_at(name: str) -> None:
    found = objects(name)
    gateway = container("gateway", found)
    assert {"name": "http", "containerPort": 8700} in gateway["ports"]
    assert "--port=8700" in gateway["args"]
    health = (ROOT / "coordinator" / "gateway" / "routes" / "health.py").read_text(encoding="utf-8")
    service = container("service", found)
    for probe, path in (("readiness", "/readyz"), ("liveness", "/healthz")):
        assert service[f"{probe}Probe"]["exec"]["command"][-1] == f"http://127.0.0.1:8700{path}"
        assert gateway[f"{probe}Probe"]["httpGet"]["path"] == path
        assert f'@router.get("{path}"' in health
    node = container("node", found)
    for each in (service, node):
        port = variables(each)["PODIUM_SERVICE_LISTEN"]["value"].rpartition(":")[2]
        assert {"name": "door", "containerPort": int(port)} in each["ports"]
    port = variables(node)["PODIUM_HEALTH_LISTEN"]["value"].rpartition(":")[2]
    assert {"name": "health", "containerPort": int(port)} in node["ports"]
    answered = (ROOT / "coordinator" / "health.py").read_text(encoding="utf-8")
    for probe, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        assert node[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "health"}
        assert f'"{path}"' in answered


def test_the_socket_that_a_hook_looks_for_is_where_the_product_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = objects("minimal")
    for ray, sidecar in (("ray-head", "service"), ("ray-worker", "node")):
        monkeypatch.setenv("PODIUM_RUN_DIR", variables(container(sidecar, found))["PODIUM_RUN_DIR"]["value"])
        hook = container(ray, found)["lifecycle"]["preStop"]["exec"]["command"][2]
        assert f"-S {Home(Path('/var/lib/podium/home')).run_dir / 'store.sock'} " in hook
    supervisor = (ROOT / "coordinator" / "store" / "supervisor.py").read_text(encoding="utf-8")
    assert 'run_dir / "store.sock"' in supervisor


def test_one_version_of_ray_everywhere() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    dockerfile = (ROOT / "k8s" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^FROM \S*ray:([0-9.]+)-py311", dockerfile, re.MULTILINE) == [pinned["ray"]] * 2
    assert {ray_cluster(objects(name))["spec"]["rayVersion"] for name in NAMES} == {pinned["ray"]}


def test_one_version_of_podium_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    described = chart.values_of(chart.CHART / "Chart.yaml")
    assert (described["version"], described["appVersion"]) == (version, version)
    assert container("gateway", objects("minimal"))["image"].endswith(f":{version}")


def test_alerts_ask_for_what_a_home_exports() -> None:
    known = {instrument.name for instrument in INSTRUMENTS} | {"podium_service_up"}
    (rules,) = of_kind("PrometheusRule", objects("production"))
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    assert len(alerts) > 4
    for alert in alerts:
        named = set(re.findall(r"podium_\w+", alert["expr"]))
        assert named, alert["alert"]
        assert named <= known, alert["alert"]


def test_the_scrape_asks_the_service_of_the_gateways() -> None:
    (scrape,) = of_kind("ScrapeConfig", objects("production"))
    (service,) = of_kind("Service", objects("production"))
    (target,) = scrape["spec"]["staticConfigs"][0]["targets"]
    assert target == f"{service['metadata']['name']}.podium.svc:{service['spec']['ports'][0]['port']}"
    # The gateway refuses a request for another host than those that it knows.
    assert f"--allowed-host={target.partition(':')[0]}" in container("gateway", objects("production"))["args"]


def test_what_ingress_and_routes_are_for_the_gateway_takes() -> None:
    arguments = container("gateway", objects("production"))["args"]
    assert "--allowed-host=podium.example.com" in arguments
    assert "--allowed-host=agents.example.com" in arguments


def test_the_image_has_what_the_chart_counts_on() -> None:
    dockerfile = (ROOT / "k8s" / "Dockerfile").read_text(encoding="utf-8")
    assert "fuse3" in dockerfile
    assert "pyfuse3" in dockerfile
    assert "wget" in dockerfile  # of probes
    assert "sudoers" in dockerfile  # agents' containers may escalate privileges, for fusermount3
    assert re.search(r"^USER 1000$", dockerfile, re.MULTILINE)
    pod = next(pods(objects("minimal")))
    assert pod.spec["securityContext"]["runAsUser"] == 1000


@EVERY
def test_models_are_for_the_service_alone(name: str) -> None:
    named = values_of(name).get("models", {}).get("existingSecret")
    having = [each["name"] for pod in pods(objects(name)) for each in pod.containers if "envFrom" in each]
    assert having == (["service"] if named else [])
