"""The rendered pods as machines of namespaces: their commands, variables, probes and hooks, with all that these start.

A pod is a machine of `tests.cluster.machines`. A container has mounts of its own, the rights that the chart gives it,
and, unless its pod shares them, processes of its own. What KubeRay and the kubelet do is done by the test: Ray's
commands, the order of the start, and the order of the end.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.machines import new_network
from tests.contract.postgres_server import new_postgres
from tests.contract.test_home_in_postgres import url_of
from tests.k8s import rendering
from tests.s3_server import BUCKET, running_s3
from tests.waiting import wait_until
from tools import chart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.cluster.machines import Machine, Network, Started

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.fuse, pytest.mark.postgres]

SECRETS: Final = {
    ("podium-database", "password"): "in vain",
    ("podium-bucket", "AWS_ACCESS_KEY_ID"): "testing",
    ("podium-bucket", "AWS_SECRET_ACCESS_KEY"): "testing",
    ("podium-ray", "auth_token"): "0123456789abcdef" * 4,
}
CONTAINER: Final = """
set -e
volumes=$1 root=$2 capabilities=$3 privileges=$4; shift 4
mount --make-rprivate /
mount --bind "$volumes" "$volumes"
mount -t tmpfs tmpfs /dev/shm
[ "$root" = writable ] || mount -o bind,remount,ro /
exec setpriv --inh-caps=-all --bounding-set="$capabilities" $privileges "$@"
"""
AGENT: Final = """
import os
from pathlib import Path
from podium import BaseAgent, DeltaState

class Spy(BaseAgent):
    idle_timeout_s = 600

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx, message):
        ctx.state.count += 1
        (ctx.workspace / "out.txt").write_text(message["text"])
        commands = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                commands.append(entry.read_text())
            except OSError:
                pass
        ctx.reply({"count": ctx.state.count, "variables": sorted(os.environ), "commands": commands})
"""


class Pod:
    """A pod of the chart on a machine.

    Args:
        machine: which is the pod.
        rendered: as the chart has it.
    """

    def __init__(self, machine: Machine, rendered: rendering.Pod) -> None:
        self.machine = machine
        self._rendered = rendered
        self._volumes = machine.directory / "volumes"
        for volume in ("home", "project"):
            (self._volumes / volume).mkdir(parents=True)
        (self._volumes / "project" / "podium.toml").write_text("agents = []\n")

    def _here(self, text: str) -> str:
        """A text with the paths and the address that it stands for here."""
        text = text.replace("/etc/podium/project", str(self._volumes / "project"))
        return text.replace("/var/lib/podium", str(self._volumes / "home")).replace("$(POD_IP)", self.machine.address)

    def container(self, name: str) -> dict[str, Any]:
        return next(each for each in self._rendered.containers if each["name"] == name)

    def environment(self, name: str) -> dict[str, str]:
        found = {}
        for variable, entry in rendering.variables(self.container(name)).items():
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                found[variable] = self.machine.address
            elif "secretKeyRef" in source:
                found[variable] = SECRETS[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
            else:
                found[variable] = self._here(entry["value"])
        return found

    def start(self, name: str, *command: str) -> Started:
        """Start a container, by its own command or by one that KubeRay gives it."""
        each = self.container(name)
        rights = each["securityContext"]
        added = [capability.lower() for capability in rights["capabilities"].get("add", ())]
        own = [] if self._rendered.spec.get("shareProcessNamespace") else ["--pid", "--fork", "--mount-proc"]
        return self.machine.start(
            *("unshare", "--mount", *own, "--kill-child", "bash", "-c", CONTAINER, name, str(self._volumes)),
            "read-only" if rights.get("readOnlyRootFilesystem") else "writable",
            ",".join(["-all", *(f"+{capability}" for capability in added)]),
            "" if rights["allowPrivilegeEscalation"] else "--no-new-privs",
            *(command or map(self._here, [*each["command"], *each.get("args", ())])),
            log=f"{name}.log",
            environment=self.environment(name),
        )

    def end(self, ray: str, sidecar: str, started: Started) -> None:
        """End both containers as the kubelet does: their ``preStop`` hooks begin at once.

        That of Ray's waits until the other one has ended, which its own begins; what would come then is a SIGTERM.
        """
        waiting = self.machine.start(*self._hook(ray), log=f"{ray}.log")
        own = [] if self._rendered.spec.get("shareProcessNamespace") else ["nsenter", "-t", inner(started), "--pid"]
        self.machine.run(*own, *self._hook(sidecar), environment=self.environment(sidecar))
        assert waiting.wait() == 0
        assert started.wait() == 0

    def _hook(self, name: str) -> list[str]:
        return list(self.container(name)["lifecycle"]["preStop"]["exec"]["command"])

    def passes(self, name: str, probe: str) -> bool:
        """Whether a probe of a container passes now."""
        found = self.container(name)[f"{probe}Probe"]
        if "httpGet" in found:
            ports = {port["name"]: port["containerPort"] for port in self.container(name)["ports"]}
            with self.machine.network():
                return answers(f"http://127.0.0.1:{ports[found['httpGet']['port']]}{found['httpGet']['path']}")
        return self.machine.run(*found["exec"]["command"], check=False).returncode == 0

    def podium(self, name: str, *arguments: str) -> str:
        """Run the command in a container, and return what it prints."""
        return self.machine.run("podium", *arguments, environment=self.environment(name)).stdout


def inner(started: Started) -> str:
    """Return the id, on its machine, of the first process of a container with processes of its own."""
    (child,) = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    (line,) = (line for line in Path(f"/proc/{child}/status").read_text().splitlines() if line.startswith("NSpid:"))
    return line.split()[2]  # after that outside


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def stores(network: Network, directory: Path) -> Iterator[dict[str, Any]]:
    """A database and a bucket on machines; yields the values of the chart that name them."""
    database, bucket = network.add("db", "s3")
    with new_postgres(address=database.address) as postgres:
        with database.network():
            postgres.start()
        try:
            with bucket.network(), running_s3(directory / "s3", address=bucket.address) as s3:
                url = url_of(f"host={database.address} user=journal dbname=postgres", "home")
                yield {"database": {"url": url}, "bucket": {"url": f"s3://{BUCKET}/home", "endpoint": s3.endpoint}}
        finally:
            postgres.stop_at_once()


def ray_start(group: dict[str, Any], address: str, *more: str) -> Sequence[str]:
    """Return the command that KubeRay makes of a group, with a small object store and no dashboard."""
    limit = group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    parameters = {"num-cpus": limit, **group["rayStartParams"]}
    parameters.pop("dashboard-host", None)
    given = [f"--{name}={value}" for name, value in parameters.items()]
    kept = [f"--node-ip-address={address}", "--object-store-memory=100000000"]
    return ["ray", "start", "--block", *more, *given, *kept]


def test_the_rendered_pods_serve_agents_and_end_in_order(tmp_path: Path) -> None:
    with new_network(tmp_path / "network") as network, stores(network, tmp_path) as values:
        found = chart.objects(rendering.merged(rendering.values_of("kubectl"), values))
        spec = rendering.ray_cluster(found)["spec"]
        machines = dict(zip(("head", "agents", "gateway"), network.add("head", "worker", "gateway"), strict=True))
        head, worker, gateway = (Pod(machine, rendering.pod_of(name, found)) for name, machine in machines.items())

        service = head.start("service")  # the first of its pod, which waits for the other one
        gateway.start("gateway")
        wait_until(lambda: head.passes("service", "liveness"), "the service does not answer while it waits")
        wait_until(lambda: gateway.passes("gateway", "liveness"), "the gateway does not answer while it waits")
        assert not head.passes("service", "readiness")
        assert not gateway.passes("gateway", "readiness")
        ray_head = head.start(
            "ray-head", *ray_start(spec["headGroupSpec"], head.machine.address, "--head", "--port=6379")
        )
        node = worker.start("node")
        wait_until(lambda: worker.passes("node", "startup"), "the worker's store process is not there")
        joins = f"--address={head.machine.address}:6379"
        ray_worker = worker.start("ray-worker", *ray_start(spec["workerGroupSpecs"][0], worker.machine.address, joins))
        try:
            wait_until(lambda: head.passes("service", "readiness"), "the service is not ready")
            assert head.passes("service", "liveness")
            assert not gateway.passes("gateway", "readiness"), "there is no key yet, nor one of the head's"
            key = head.podium("service", "keys", "create", "me", "--scope", "admin").split()[0]
            wait_until(lambda: gateway.passes("gateway", "readiness"), "the gateway is not ready")
            assert worker.passes("node", "readiness")
            assert worker.passes("node", "liveness")

            project = gateway.machine.directory / "project"
            project.mkdir()
            (project / "spy.py").write_text(AGENT)
            (project / "podium.toml").write_text('agents = ["spy.py:Spy"]\n')
            to = ["--url", "http://127.0.0.1:8700", "--key", key]
            gateway.machine.run("podium", "deploy", *to, "--project", str(project / "podium.toml"))
            wait_until(lambda: "fuse" in states(head).get("worker", ""), "the worker is not joined")
            seen = replied(gateway.machine.run("podium", "send", "spy/ann", "hi", *to, "--json").stdout)
            assert seen["count"] == 1
            secret = {"PGPASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PODIUM_JOURNAL_URL"}
            assert secret <= worker.environment("node").keys()
            assert not secret & set(seen["variables"])
            programs = ("podium\0node", "coordinator.store")
            assert not [command for command in seen["commands"] if any(each in command for each in programs)]

            worker.end("ray-worker", "node", node)
            assert ray_worker.runs()
            (agent,) = json.loads(head.podium("service", "ps", "--all", "--json"))["agents"]
            assert (agent["status"], agent["turn"], agent["pending"]) == ("asleep", 1, 0)

            head.end("ray-head", "service", service)
            assert ray_head.runs()
        except BaseException:
            for log in sorted(network.directory.glob("*/*.log")):
                print(f"-- {log.parent.name}/{log.name}\n{log.read_text()[-3000:]}")
            raise


def states(head: Pod) -> dict[str, str]:
    """The presentations of the nodes that are ready, by their names."""
    found = json.loads(head.podium("service", "nodes", "--json"))
    return {each["node"]: each["presentation"] for each in found["nodes"] if each["problem"] is None}


def replied(lines: str) -> dict[str, Any]:
    """The value that an agent has replied with, of the frames of a message."""
    frames = [json.loads(line) for line in lines.splitlines()]
    (found,) = (frame["data"] for frame in frames if frame.get("data"))
    return dict(found)
