"""A Ray cluster of several nodes on this machine: real raylets, which a test may kill.

The cluster is a process of its own, ``python -m tests.ray_cluster NODE=PATH...``, which says where it is and ends with
its standard input. So the test's process has no Ray. ``NODE@HOSTNAME`` is a node that takes itself for another
machine, and has the resource ``HOSTNAME``; it needs root.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.leftovers import new_directory
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOKEN: Final = "t" * 32
"""For Ray's authentication. It is the same in all clusters, as a process keeps the one that it has read."""
CPUS: Final = 2
"""Of each node, as Ray counts them."""
_CLONE_NEWUTS: Final = 0x04000000
_STORE_BYTES: Final = 100 * 1024 * 1024
_STARTED: Final = re.compile(r"ray start --address='([^']+)'")
_LOOPBACK: Final = "PODIUM_TEST_LOOPBACK"
_FAST: Final = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Ray takes a node for dead after about two seconds, instead of fourteen."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A cluster that runs."""

    address: str
    raylets: Mapping[str, int]
    """The processes of the nodes, by their names; the first one is the head."""


@contextmanager
def running_cluster(
    *names: str, paths: Mapping[str, Path] | None = None, token: str = TOKEN, loopback: bool = False
) -> Iterator[RayCluster]:
    """Run a cluster of nodes with these names. Meanwhile this process has the variables that joining it takes.

    Args:
        paths: by nodes, directories whose Python packages are installed there only.
        token: that callers need; empty for none.
        loopback: whether the nodes listen at the loopback only.
    """
    with new_directory("ray-") as directory:
        variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
        environment = {**os.environ, **_FAST, "RAY_TMPDIR": str(directory), **variables, _LOOPBACK: str(int(loopback))}
        environment.pop("RAY_ADDRESS", None)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.ray_cluster", *(f"{name}={(paths or {}).get(name, '')}" for name in names)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=Path(__file__).parents[1],
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            assert said, "the Ray cluster did not start"
            with pytest.MonkeyPatch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(name, value)
                yield RayCluster(**json.loads(said))
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()


@contextmanager
def autoscaling_cluster(cpus: int, most_nodes: int, idle_s: float) -> Iterator[str]:
    """Run a cluster whose autoscaler starts raylets on this machine; its address. Otherwise as `running_cluster`.

    Args:
        cpus: of each node that it starts; the head has none.
        most_nodes: limit of these.
        idle_s: for how long one is idle until it is ended.
    """
    from ray.util import get_node_ip_address

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address: str = get_node_ip_address()  # type: ignore[no-untyped-call]
    config = {
        "cluster_name": "podium-test",
        "provider": {
            "type": "fake_multinode",
            "disable_node_updaters": True,
            "use_node_id_as_ip": True,
            "gcs_address": f"{address}:{port}",
        },
        "available_node_types": {
            "worker": {"resources": {"CPU": cpus}, "node_config": {}, "min_workers": 0, "max_workers": most_nodes},
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        },
        "head_node_type": "ray.head.default",
        "max_workers": most_nodes,
        "idle_timeout_minutes": idle_s / 60,
        "upscaling_speed": 1.0,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in ("initialization", "setup", "head_setup", "worker_setup")},
        **{f"{name}_start_ray_commands": [] for name in ("head", "worker")},
    }
    with new_directory("ray-") as directory, pytest.MonkeyPatch.context() as patch:
        (directory / "config.json").write_text(json.dumps(config))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.delenv("RAY_ADDRESS", raising=False)
        started = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1", "RAY_TMPDIR": str(directory)}
        options = ["--head", f"--port={port}", "--num-cpus=0", f"--object-store-memory={_STORE_BYTES}", "--block"]
        with (directory / "said").open("wb") as said:
            process = subprocess.Popen(
                [
                    Path(sys.executable).with_name("ray"),
                    "start",
                    *options,
                    f"--autoscaling-config={directory}/config.json",
                ],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_FAST, **started},
                start_new_session=True,
            )
        try:
            wait_until(lambda: _STARTED.search((directory / "said").read_text()))
            yield _STARTED.findall((directory / "said").read_text())[0]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _end_all_of(directory)


def _end_all_of(directory: Path) -> None:
    """End the processes of a cluster, which have its directory in their arguments or variables."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if os.fsencode(f"{directory}/") in said or os.fsencode(f"RAY_TMPDIR={directory}\0") in said:
                os.kill(pid, signal.SIGKILL)


def take_hostname(hostname: str) -> None:
    """Give this process another hostname, and those that it starts from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "a hostname of its own needs root")
    socket.sethostname(hostname)


def main(names: Sequence[str]) -> None:
    """Run a cluster until the end of the standard input."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    nodes: dict[str, Any] = {}
    for each in names:
        name, _, path = each.partition("=")
        name, _, hostname = name.partition("@")
        options: dict[str, Any] = {} if nodes else {"include_dashboard": False}
        if os.environ[_LOOPBACK] == "1":
            options["node_ip_address"] = "127.0.0.1"
        if hostname:
            take_hostname(hostname)
            options["resources"] = {hostname: 100}
        nodes[name] = cluster.add_node(
            num_cpus=CPUS,
            node_name=name,
            object_store_memory=_STORE_BYTES,
            wait=False,
            env_vars={"PYTHONPATH": path} if path else {},
            **options,
        )
    cluster.wait_for_nodes()
    raylets = {name: node.all_processes["raylet"][0].process.pid for name, node in nodes.items()}
    print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
    sys.stdin.read()
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
