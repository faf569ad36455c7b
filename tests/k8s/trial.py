"""A cluster without Kubernetes: the rendered chart, served by pods of namespaces.

It has the head, the workers and the gateways of the chart, with their commands, variables, probes and hooks, a balancer
before the gateways, PostgreSQL, a server that speaks S3, and, in `tests.k8s.kuberay`, what stands for KubeRay. The
workers are as many as Ray's own autoscaler asks for. It takes root. `tests.k8s.tour` is the command.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tests.cluster.machines import ROOT, Network, new_network
from tests.contract.postgres_server import new_postgres
from tests.contract.test_home_in_postgres import url_of
from tests.k8s import kuberay, rendering
from tests.k8s.pods import Pod
from tests.s3_server import BUCKET, running_s3
from tests.waiting import wait_until
from tools import chart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Trial", "running_trial", "workers"]

_SECRETS: Final = {
    ("podium-database", "password"): "in vain",
    ("podium-bucket", "AWS_ACCESS_KEY_ID"): "testing",
    ("podium-bucket", "AWS_SECRET_ACCESS_KEY"): "testing",
    ("podium-ray", "auth_token"): "0123456789abcdef" * 4,
}
_FILES: Final = {"project": {"podium.toml": "agents = []\n"}}
"""What pods have in their volumes."""
_LOOK_S: Final = 0.5
"""Interval of looks at what pods need: they take a tenth of a core of each, as probes are processes."""
_START_S: Final = 300.0


class Trial:
    """The pods of the chart.

    Args:
        network: of their machines.
        values: of the chart.
        autoscaler: variables of Ray's autoscaler.
    """

    def __init__(self, network: Network, values: Mapping[str, Any], autoscaler: Mapping[str, str]) -> None:
        found = chart.objects(values)
        self.network: Final = network
        self.pods: Final[dict[str, Pod]] = {}
        """All pods, by name."""
        self._cluster = rendering.ray_cluster(found)
        self._rendered = {name: rendering.pod_of(name, found) for name in ("head", "agents", "gateway")}
        (machine,) = network.add("api")
        self.api: Final = kuberay.ApiServer(self._cluster, machine, self._list)
        self.url = self.key = ""
        """The balancer's, and a client's, when gateways are ready."""
        self._groups: dict[str, str] = {}
        """Of the pods of Ray."""
        self._leaving: set[str] = set()
        self._made = 0
        self._scales = True
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="kubelets")
        self._problem: BaseException | None = None
        self._threads = ThreadPoolExecutor(thread_name_prefix="pod-end")
        (head,) = network.add("head")
        name = f"{self._cluster['metadata']['name']}-head"
        rendered = kuberay.head_of(
            self._rendered["head"], self._cluster, head.address, {**self.api.environment, **autoscaler}
        )
        token = {"token": self.api.token, "ca.crt": self.api.certificate, "namespace": "podium"}
        self.head: Final = self._add(name, Pod(name, head, rendered, _SECRETS, {**_FILES, "autoscaler-token": token}))
        self._groups[name] = kuberay.HEAD_GROUP
        (deployment,) = rendering.of_kind("Deployment", found)
        names = [f"gateway-{number + 1}" for number in range(deployment["spec"]["replicas"])]
        self.gateways: Final = [
            self._add(name, Pod(name, machine, self._rendered["gateway"], _SECRETS, _FILES))
            for name, machine in zip(names, network.add(*names), strict=True)
        ]

    def _add(self, name: str, pod: Pod) -> Pod:
        self.pods[name] = pod
        return pod

    def __enter__(self) -> Self:
        self.api.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ending.set()
        self._thread.join()
        self._threads.shutdown()
        self.api.__exit__()

    @property
    def workers(self) -> list[Pod]:
        """The pods of workers, but for those that are ended."""
        workers = [name for name, group in self._groups.items() if group != kuberay.HEAD_GROUP]
        return [self.pods[name] for name in workers if name not in self._leaving]

    def check(self) -> None:
        """Raise what has ended that which looks after the pods."""
        if self._problem is not None:
            raise AssertionError("the pods are not looked after") from self._problem

    def end(self, pod: Pod) -> Future[None]:
        """Delete a pod, which has its grace period then; a worker is replaced by another one."""
        self._leaving.add(pod.name)
        return self._threads.submit(self._end, pod)

    def end_workers(self) -> None:
        """Delete the workers; none is replaced any more."""
        self._scales = False
        for ended in [self.end(worker) for worker in self.workers]:
            ended.result()

    def wait(self, condition: Callable[[], object], message: str) -> None:
        """Wait until something is so."""

        def holds() -> bool:
            self.check()
            return bool(condition())

        wait_until(holds, message, _START_S)

    def wait_for_ever(self) -> None:
        """Look after the pods until Ctrl-C."""
        while True:
            self.check()
            time.sleep(_LOOK_S)

    def wait_until_ready(self) -> None:
        """Wait until head and gateways are ready."""
        self.wait(lambda: self.head.passes("service", "readiness"), "the service is not ready")
        self.key = self.head.podium("service", "keys", "create", "trial", "--scope", "admin").split()[0]
        for gateway in self.gateways:
            self.wait(partial(gateway.passes, "gateway", "readiness"), "a gateway is not ready")

    def podium(self, *arguments: str) -> str:
        """Run a command on this machine, through the balancer and a gateway; return what it prints."""
        environment = {**os.environ, "PODIUM_URL": self.url, "PODIUM_KEY": self.key, "NO_COLOR": "1"}
        command = [str(Path(sys.executable).with_name("podium")), *arguments]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert not done.returncode, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def print_logs(self) -> None:
        """Print the ends of all logs; pytest shows them with a failed test."""
        for log in sorted(
            [*self.network.directory.glob("*/*.log"), *self.network.directory.glob("*/volumes/*/home/logs/*")]
        ):
            print(f"-- {log.relative_to(self.network.directory)}", log.read_text(errors="replace")[-3000:], sep="\n")

    # -- the operator and the kubelets ------------------------------------------------------------------------------

    def _look_after(self) -> None:
        served = False  # until then the others would only wait, which takes a core
        try:
            while not self._ending.is_set():
                self.api.changed.clear()
                self._replace_failed()
                if self._scales:
                    self._scale()
                served = served or (self.head.runs("service") and self.head.passes("service", "readiness"))
                for name, pod in list(self.pods.items()):
                    if name not in self._leaving and (served or pod is self.head):
                        pod.go_on()
                self.api.changed.wait(_LOOK_S)
        except BaseException as error:  # noqa: BLE001  the main thread raises it
            self._problem = error

    def _replace_failed(self) -> None:
        """Replace the pods of Ray whose Ray has ended, or did not start: none of their containers runs again."""
        for name in self._groups.keys() - self._leaving:
            pod = self.pods[name]
            if pod.has_failed() and pod is self.head:
                pod.replace()
            elif pod.has_failed():
                pod.machine.lose_power()
                del self._groups[name], self.pods[name]

    def _scale(self) -> None:
        """Have as many workers as the RayCluster has."""
        for group in self.api.groups():
            asked = group.get("scaleStrategy", {}).get("workersToDelete", ())
            for name in set(asked) & self._groups.keys() - self._leaving:
                self.end(self.pods[name])
            there = [
                name for name, of in self._groups.items() if of == group["groupName"] and name not in self._leaving
            ]
            for _ in range(len(there), group["replicas"]):
                self._add_worker(group)

    def _add_worker(self, group: dict[str, Any]) -> None:
        self._made += 1
        name = f"{group['groupName']}-worker-{self._made}"
        (machine,) = self.network.add(name)
        rendered = kuberay.worker_of(self._rendered["agents"], group, machine.address, self.head.machine.address)
        self._add(name, Pod(name, machine, rendered, _SECRETS, _FILES))
        self._groups[name] = group["groupName"]

    def _end(self, pod: Pod) -> None:
        try:
            pod.end()
            self._groups.pop(pod.name, None)
            pod.machine.lose_power()
            del self.pods[pod.name]
        except BaseException as error:
            self._problem = error
            raise

    def _list(self) -> list[dict[str, Any]]:
        """The pods of the RayCluster, as the API server has them."""
        return [
            {
                "metadata": {
                    "name": name,
                    "labels": kuberay.labels_of(self._cluster, group),
                    "resourceVersion": "1",
                    **({"deletionTimestamp": "now"} if name in self._leaving else {}),
                },
                "spec": {"containers": [{"name": each, "resources": {}} for each in pod.main]},
                "status": pod.status(),
            }
            for name, group in list(self._groups.items())
            if (pod := self.pods.get(name)) is not None
        ]


@contextlib.contextmanager
def running_trial(
    directory: Path,
    change: Mapping[str, Any],
    *,
    port: int = 0,
    autoscaler: Mapping[str, str] | None = None,
) -> Iterator[Trial]:
    """Run a cluster. Its balancer listens on this machine.

    Args:
        directory: for the machines' disks.
        change: values of the chart.
        port: of the balancer; any if 0.
        autoscaler: variables of Ray's autoscaler.
    """
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(new_network(directory / "network"))
        served = stack.enter_context(_stores(network, directory))
        values = rendering.merged(rendering.merged(rendering.values_of("kubectl"), served), dict(change))
        trial = stack.enter_context(Trial(network, values, autoscaler or {}))
        trial.url = stack.enter_context(_balancer(network, [pod.machine.address for pod in trial.gateways], port))
        try:
            yield trial
        except KeyboardInterrupt:
            raise
        except BaseException:
            trial.print_logs()
            raise


@contextlib.contextmanager
def _stores(network: Network, directory: Path) -> Iterator[dict[str, Any]]:
    """A database and a bucket on machines; yields the values of the chart that name them."""
    database, bucket = network.add("db", "s3")
    with new_postgres(address=database.address) as postgres:
        with database.network():
            postgres.start()
        try:
            with contextlib.ExitStack() as stack:
                with bucket.network():
                    s3 = stack.enter_context(running_s3(directory / "s3", address=bucket.address))
                url = url_of(f"host={database.address} user=journal dbname=postgres", "home")
                yield {"database": {"url": url}, "bucket": {"url": f"s3://{BUCKET}/home", "endpoint": s3.endpoint}}
        finally:
            postgres.stop_at_once()


@contextlib.contextmanager
def _balancer(network: Network, addresses: list[str], port: int) -> Iterator[str]:
    """A balancer that listens on this machine and connects from one of the network's."""
    (machine,) = network.add("balancer")
    with socket.create_server(("127.0.0.1", port)) as listener:
        with machine.network():
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.k8s.balancer", str(listener.fileno()), "/readyz"]
                + [f"{address}:8700" for address in addresses],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C is for this process, which ends it
                cwd=ROOT,
            )
        with process:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            assert process.stdin is not None
            process.stdin.close()


def workers(least: int, most: int, **more: Any) -> dict[str, Any]:
    """Return the values of a group of workers."""
    amounts = {"cpu": "4", "memory": "8Gi"}
    given = {"resources": {"requests": amounts, "limits": amounts}, **more}
    return {"name": "agents", "minReplicas": least, "maxReplicas": most, **given}
