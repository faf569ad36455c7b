"""Start or join a Ray cluster, and find Podium's actors in it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from importlib.metadata import version
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from chronicle.errors import Unavailable
from coordinator.cluster_address import check_address
from coordinator.environment import disable_ray_usage_statistics
from coordinator.fleet.liveness import TASKS_CANCELLED
from coordinator.fleet.nodes.node_names import Member
from coordinator.ray.embedded import worker_template
from coordinator.ray.embedded.starting import few_processes
from coordinator.ray.token_auth import check_token, refuse_open_cluster
from podium.errors import HostDied, PodiumError

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

__all__ = [
    "COORDINATOR_NAME",
    "cause_of",
    "disconnect",
    "end_actors",
    "find_actor",
    "has_actors",
    "join",
    "lives",
    "living_nodes",
    "lost_process",
    "node_manager_name",
    "of_machine",
    "on_node",
    "podium_on",
    "probe",
    "refusal_of_versions",
    "start",
    "versions_in",
]

COORDINATOR_NAME: Final = "coordinator"

_OBJECT_STORE_BYTES: Final = 100 * 1024 * 1024
"""Ray's minimum is 75 MiB; Podium sends nothing large through the object store."""
_SYSTEM_CONFIG: Final = {
    "prestart_worker_first_driver": False,
    "worker_niceness": 0,
    "enable_pipe_based_agent_to_parent_health_check": True,
    "gcs_max_active_rpcs_per_handler": 16,
    "task_events_report_interval_ms": 0,
}
"""No prestarted workers: the start of Ray took 1.7 s instead of 3 to 4 s, and no worker is idle. Workers have the
priority of the service: Ray's default, a niceness of 15, leaves agents on a busy machine little time. The raylet's end
closes the standard input of what stands in for its agents. Ray's GCS allocates its calls in progress ahead: 12 MB with
Ray's default of 100 for each method, on four cores, and more on others. What takes long (the start of an actor,
subscriptions) has no such limit. Nobody asks for Ray's events of tasks, which each process would send every second."""
_EMBEDDED_CPUS_PER_CORE: Final = 4
"""Logical CPUs per core of an embedded Ray: agents mostly wait, and Ray warns above a factor of four."""
_templates: Final[list[subprocess.Popen[bytes]]] = []
"""The template of the workers, while this process has an embedded cluster."""
_needed: Final[dict[str, subprocess.Popen[bytes]]] = {}
"""Ray's processes that an embedded cluster cannot lose, by their type."""
_LEAST_SHARE: Final = 0.0001
"""Ray has one of the resource that names the address of a node."""
_LOOK_S: Final = 0.5
"""Interval of looks whether they live."""
_ACTORS_END_S: Final = 30.0
"""Timeout for actors of the home that are killed to end."""
_ACTORS_POLL_S: Final = 0.05
_RAY_VERSION: Final = re.compile(r"^ *Ray: (\S+)$", re.MULTILINE)
_PYTHON_VERSION: Final = re.compile(r"^ *Python: (\S+)$", re.MULTILINE)
_SIDES: Final = 2
"""Ray names the versions of the cluster first, then those of this process."""
_NOT_SENT: Final = (ray.exceptions.UnserializableException, ray.exceptions.RayError)
"""Ray's substitutes for an exception that cannot be unpickled in the receiver, and for one that cannot be pickled."""


def node_manager_name(ray_id: str) -> str:
    """Return the name of the actor that manages a node, by Ray's id of the node."""
    return f"node-manager-{ray_id}"


def on_node(ray_id: str, *, or_another: bool = False) -> NodeAffinitySchedulingStrategy:
    """Have an actor run on a node.

    Args:
        or_another: whether it may run elsewhere if the node is gone.
    """
    return NodeAffinitySchedulingStrategy(ray_id, soft=or_another)


def of_machine(ray_id: str) -> dict[str, float]:
    """Return a resource for actors that are to run on a node, or on another one with its address."""
    return {f"node:{member.address}": _LEAST_SHARE for member in living_nodes() if member.ray_id == ray_id}


def living_nodes() -> list[Member]:
    """Return the nodes of the cluster that Ray takes for alive. Blocks for a call of Ray's control process."""
    return [
        Member(node["NodeID"], node["NodeName"], node["NodeManagerAddress"], node["NodeManagerHostname"])
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]


async def podium_on(ray_id: str) -> str:
    """Return the version of Podium on a node. A process is started there, which takes a second."""
    ask: Any = ray.remote(version).options(num_cpus=0, scheduling_strategy=on_node(ray_id))
    found: str = await ask.remote("podium")
    return found


def join(address: str, namespace: str) -> None:
    """Join a cluster that runs; what an earlier service of the home has left there stays.

    Args:
        address: as `coordinator.cluster_address` has it.
        namespace: Ray's namespace for the named actors of the home.

    Raises:
        InvalidInput: it is not an address.
        Unavailable: no cluster answers there, or one of another version of Ray or Python, or it has no authentication,
            or another token.
    """
    disable_ray_usage_statistics()
    check_address(address)
    authenticates = check_token(address)
    try:
        ray.init(address=address, namespace=namespace, log_to_driver=False)
    except ConnectionError as error:
        raise Unavailable(
            f"no Ray cluster runs at {address}; start one with `ray start --head`, or give another address with --ray"
        ) from error
    except RuntimeError as error:
        ray.shutdown()
        if (refusal := refusal_of_versions(address, str(error))) is None:
            raise
        raise refusal from error
    if not authenticates:
        try:
            refuse_open_cluster(address, [member.address for member in living_nodes()])
        except Unavailable:
            ray.shutdown()
            raise


def refusal_of_versions(address: str, text: str) -> Unavailable | None:
    """Return the error of a cluster whose versions Ray says do not match this process's; ``None`` for another text."""
    if (found := versions_in(text)) is None:
        return None
    theirs, ours = found
    return Unavailable(
        f"the Ray cluster at {address} has {theirs}, and podium here has {ours}: start both with the same versions"
    )


def versions_in(text: str) -> tuple[str, str] | None:
    """Return the versions of a cluster and of this process that Ray says do not match; ``None`` for another text."""
    pairs = zip(_RAY_VERSION.findall(text), _PYTHON_VERSION.findall(text), strict=False)
    found = [f"Ray {of_ray} with Python {of_python}" for of_ray, of_python in pairs]
    return (found[0], found[1]) if "Version mismatch" in text and len(found) == _SIDES else None


def has_actors() -> bool:
    """Whether the cluster has actors of the home; blocks."""
    return bool(ray.util.list_named_actors())


def end_actors() -> None:
    """End all actors of the home on the cluster, and wait until Ray knows of it; blocks.

    Raises:
        Unavailable: they were not ended in time.
    """
    names = [name for name in ray.util.list_named_actors() if isinstance(name, str)]
    for name in sorted(names, key=lambda name: name != COORDINATOR_NAME):  # it would replace the others
        actor = find_actor(name)
        if actor is not None:
            ray.kill(actor)
    until_s = time.monotonic() + _ACTORS_END_S
    while left := ray.util.list_named_actors():
        if time.monotonic() > until_s:
            raise Unavailable(
                f"{len(left)} processes of an earlier service of this home do not end; end the Ray cluster"
            )
        time.sleep(_ACTORS_POLL_S)


def start(namespace: str, run_dir: Path, log: Path) -> None:
    """Start an embedded cluster that ends with this process.

    It takes two seconds on two idle cores, more on busy ones.

    Args:
        namespace: Ray's namespace for the named actors of the home.
        run_dir: a short directory for an embedded cluster's session: Ray's sockets lie below it. The caller is its
            only user.
        log: for what the template of an embedded cluster's workers writes.
    """
    disable_ray_usage_statistics()
    sessions = run_dir / "ray"
    shutil.rmtree(sessions, ignore_errors=True)  # sessions of earlier services: the caller holds the home
    with few_processes() as started:
        ray.init(
            address="local",
            namespace=namespace,
            num_cpus=_EMBEDDED_CPUS_PER_CORE * (os.cpu_count() or 1),
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(sessions),
            _system_config=_SYSTEM_CONFIG,
        )
    _needed.update(started.needed)
    if started.raylet_pid is not None:
        job_id = ray.get_runtime_context().get_job_id()
        _templates.append(worker_template.start(run_dir, log, started.raylet_pid, job_id))


async def lost_process() -> str:
    """Wait until an embedded cluster has lost a process that it cannot do without; return which.

    Ray does not start its scheduler again, and calls to its actors then wait for ever. Of a joined cluster, and of a
    version of Ray that is not known, no process is watched.
    """
    while True:
        for name, process in _needed.items():
            if process.poll() is not None:
                return f"{name} (process {process.pid}, exit code {process.returncode})"
        await asyncio.sleep(_LOOK_S)


def disconnect() -> None:
    """Leave the cluster; an embedded one ends."""
    _needed.clear()
    ray.shutdown()
    for template in _templates:
        template.communicate()  # it ends with its standard input
    _templates.clear()


def cause_of(error: Exception) -> Exception:
    """Return the exception that an actor's method raised, unwrapped from Ray's exceptions.

    The death of an actor becomes a `HostDied`, as does a call that an agent's code has cancelled. An exception that
    could not be transferred, such as one of a user's class, becomes a `PodiumError` with its type and text.
    """
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause  # which may be the death of an actor that the method called
    if isinstance(error, ray.exceptions.RayActorError):
        return HostDied("the agent's process died while it was being woken; its log in the home's logs says more")
    if isinstance(error, ray.exceptions.TaskCancelledError):  # its text is an id of Ray's
        return HostDied(TASKS_CANCELLED)
    if type(error) in _NOT_SENT:
        return PodiumError(_end_of_traceback(str(error)))
    return error


def _end_of_traceback(text: str) -> str:
    """Extract the type and text of an exception from a text that ends with its traceback."""
    lines = text.strip().splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[frames[-1] + 1 :] if frames else lines
    return "\n".join(dropwhile(lambda line: line.startswith(" "), after))


async def probe(actor: Any, silence_s: float) -> None:
    """Probe the liveness of one of Podium's actors, which answers concurrently with its other calls.

    Args:
        silence_s: timeout of the answer.

    Raises:
        HostDied: the actor did not answer: it hangs.
        ray.exceptions.RayError: the actor is dead.
    """
    try:
        async with asyncio.timeout(silence_s):
            await actor.ping.remote()
    except TimeoutError:
        raise HostDied(f"a process of the service has not answered for {silence_s:g} s: it hangs") from None


def find_actor(name: str) -> Any | None:
    """Return the handle of a living named actor of the home, ``None`` if there is none."""
    try:
        return ray.get_actor(name)
    except ValueError:
        return None


def lives(name: str) -> bool:
    """Whether an actor of that name is alive."""
    return find_actor(name) is not None
