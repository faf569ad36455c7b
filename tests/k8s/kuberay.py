"""What stands for KubeRay and the API server of Kubernetes: as much of them as the rendered RayCluster needs.

`ApiServer` has the RayCluster and its pods, over HTTPS, for Ray's own autoscaler. `head_of` and `worker_of` add to
rendered pods what KubeRay adds: Ray's commands and variables, and the container of the autoscaler. Read from KubeRay
1.7; its own code does not run here.
"""

from __future__ import annotations

import copy
import json
import ssl
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self

from tests.certificates import write_certificate
from tests.k8s.rendering import variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.cluster.machines import Machine
    from tests.k8s.rendering import Pod

__all__ = ["HEAD_GROUP", "RAY_PORT", "ApiServer", "head_of", "labels_of", "worker_of"]

RAY_PORT: Final = 6379
HEAD_GROUP: Final = "headgroup"
_PORT: Final = 6443
_STORE_BYTES: Final = "100000000"
_UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


class ApiServer:
    """Serves the RayCluster and its pods, from a machine of its own.

    Args:
        cluster: the RayCluster, as it is applied.
        machine: where it listens.
        pods: returns the pods that there are.
    """

    def __init__(self, cluster: Mapping[str, Any], machine: Machine, pods: Callable[[], list[dict[str, Any]]]) -> None:
        self.patches: list[str] = []
        """The paths of what was changed, with the new values."""
        self.changed = threading.Event()
        self.token: Final = "of the service account"
        self._lock = threading.Lock()
        self._cluster = copy.deepcopy(dict(cluster))
        self._cluster["metadata"]["resourceVersion"] = "1"
        for group in self.groups():
            group.setdefault("numOfHosts", 1)
            group.setdefault("replicas", group["minReplicas"])  # the operator's, for those that have less
        self._pods = pods
        certificate, key = machine.directory / "tls.crt", machine.directory / "tls.key"
        write_certificate(certificate, key, address=machine.address)
        self.certificate: Final = certificate.read_text()
        self.environment: Final = {
            "KUBERNETES_SERVICE_HOST": machine.address,
            "KUBERNETES_SERVICE_PORT_HTTPS": str(_PORT),
        }
        """Of all containers."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        with machine.network():
            self._server = ThreadingHTTPServer((machine.address, _PORT), _handler_of(self))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="api-server")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups of workers, as they are now."""
        found: list[dict[str, Any]] = self._cluster["spec"]["workerGroupSpecs"]
        return found

    def get(self, path: str) -> dict[str, Any] | None:
        """Return the object at a path, or the list."""
        kind, _, name = path.partition("/namespaces/")[2].partition("/")[2].partition("/")
        with self._lock:
            version = self._cluster["metadata"]["resourceVersion"]
            if kind == "rayclusters" and name == self._cluster["metadata"]["name"]:
                return copy.deepcopy(self._cluster)
            if kind == "pods" and not name:
                return {"metadata": {"resourceVersion": version}, "items": self._pods()}
            if kind == "pods":
                return next((pod for pod in self._pods() if pod["metadata"]["name"] == name), None)
        return None

    def patch(self, path: str, operations: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Change the RayCluster by a JSON Patch of replacements, as Ray's autoscaler sends them."""
        if self.get(path) is None:
            return None
        with self._lock:
            changed = copy.deepcopy(self._cluster)
            for operation in operations:
                assert operation["op"] == "replace", operation
                *way, last = operation["path"].strip("/").split("/")
                target: Any = changed
                for step in way:
                    target = target[int(step)] if isinstance(target, list) else target[step]
                target[last] = operation["value"]  # in Kubernetes, too, it need not be there
                self.patches.append(f"{operation['path']} {json.dumps(operation['value'])}")
            changed["metadata"]["resourceVersion"] = str(int(changed["metadata"]["resourceVersion"]) + 1)
            self._cluster = changed
        self.changed.set()
        return copy.deepcopy(changed)


def _handler_of(api: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(lambda: api.get(self.path.partition("?")[0]))

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(lambda: api.patch(self.path, body))

        def _answer(self, ask: Callable[[], dict[str, Any] | None]) -> None:
            found = ask() if self.headers["Authorization"] == f"Bearer {api.token}" else {}
            said = json.dumps(found or {}).encode()
            self.send_response(404 if found is None else 200 if found else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:  # what it was asked is in its patches
            pass

    return Handler


def head_of(rendered: Pod, cluster: Mapping[str, Any], address: str, more: Mapping[str, str]) -> Pod:
    """Return the head's pod as KubeRay makes it, with its autoscaler.

    Args:
        rendered: as the chart has it.
        address: of the pod.
        more: variables of the autoscaler.
    """
    spec, options = cluster["spec"], cluster["spec"]["autoscalerOptions"]
    (ray,) = rendered.spec["containers"]
    given = {"RAY_enable_autoscaler_v2": "1", "RAY_ADDRESS": f"127.0.0.1:{RAY_PORT}"}
    started = ["--head", f"--port={RAY_PORT}", "--no-monitor", "--include-dashboard=false"]
    autoscaler = {
        "name": "autoscaler",
        "command": ["ray", "kuberay-autoscaler"],
        "args": [
            f"--cluster-name={cluster['metadata']['name']}",
            f"--cluster-namespace={cluster['metadata']['namespace']}",
        ],
        "env": [
            *(entry for name, entry in variables(ray).items() if name.startswith("RAY_AUTH_")),
            *_entries({"KUBERAY_CRD_VER": "v1", **more}),
            {"name": "RAY_HEAD_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "securityContext": options["securityContext"],
        "volumeMounts": [*options["volumeMounts"], {"name": "ray-logs", "mountPath": "/tmp/ray"}],
    }
    return _with(rendered, spec["headGroupSpec"], HEAD_GROUP, address, started, given, autoscaler)


def worker_of(rendered: Pod, group: Mapping[str, Any], address: str, head: str) -> Pod:
    """Return a worker's pod as KubeRay makes it.

    Args:
        address: of the pod.
        head: the address of the head.
    """
    given = {"RAY_ADDRESS": f"{head}:{RAY_PORT}"}
    return _with(rendered, group, group["groupName"], address, [f"--address={head}:{RAY_PORT}"], given)


def labels_of(cluster: Mapping[str, Any], group: str) -> dict[str, str]:
    """Return the labels by which KubeRay, and Ray, know a pod."""
    kind = "head" if group == HEAD_GROUP else "worker"
    return {"ray.io/cluster": cluster["metadata"]["name"], "ray.io/node-type": kind, "ray.io/group": group}


def _with(
    rendered: Pod,
    group: Mapping[str, Any],
    name: str,
    address: str,
    started: list[str],
    given: Mapping[str, str],
    *more: dict[str, Any],
) -> Pod:
    (ray,) = rendered.spec["containers"]
    limits = ray["resources"]["limits"]
    parameters = {"num-cpus": limits["cpu"], "memory": str(_bytes(limits["memory"])), **group["rayStartParams"]}
    parameters.pop("dashboard-host", None)  # the dashboard is not tried here, and takes the most
    ray = {
        **ray,
        "command": ["ray", "start", "--block", *started],
        "args": [
            *(f"--{parameter}={value}" for parameter, value in parameters.items()),
            *(f"--node-ip-address={address}", f"--object-store-memory={_STORE_BYTES}"),
        ],
        "env": [
            *ray["env"],
            *_entries({"RAY_NODE_TYPE_NAME": name, **given}),
            {"name": "RAY_CLOUD_INSTANCE_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }
    return replace(rendered, spec={**rendered.spec, "restartPolicy": "Never", "containers": [ray, *more]})


def _entries(given: Mapping[str, str]) -> Iterator[dict[str, str]]:
    return ({"name": name, "value": value} for name, value in given.items())


def _bytes(amount: str) -> int:
    return int(amount[:-2]) * _UNITS[amount[-2:]]
