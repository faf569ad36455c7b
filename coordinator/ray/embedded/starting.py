"""Start Ray on this machine without the processes that Podium does not use, and with forked workers.

``ray.init`` starts five Python processes beside the scheduler, and execs each worker afresh: 70 MB and a second of CPU
time each. None of its parameters changes that. While this module starts Ray, it sets switches that ``ray.init`` does
not expose, and replaces four functions of Ray's start-up code:

* the autoscaler and the log monitor are switched off (150 MB with the dashboard's server);
* the dashboard's server is told to be one that did not start: ``include_dashboard=False`` starts it without its pages.
  Its libraries are not imported to see whether they are installed (5 MB of aiohttp, more with ``ray[default]``);
* the dashboard's agent and the runtime environments' agent (100 MB) become a program that waits for its end, as the
  raylet exits with either of them. So there are no metrics of Ray's, and no ``runtime_env``;
* the GCS and the raylet allocate with the C library: Ray's jemalloc has more arenas than they fill (7 MB);
* the raylet starts workers with `coordinator.ray.embedded.worker_launcher`, which has them forked from
  `coordinator.ray.embedded.worker_template`.

That is done for the Ray version that it was written for. Others start all of their processes.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

__all__ = ["Started", "few_processes"]

_KNOWN: Final = "2.60."
"""Prefix of the Ray versions whose start-up code this module changes."""
_NO_PORT: Final = -1
"""Port that an agent records which does not listen."""
_WAITING: Final = "cat"
"""Command in an agent's place: it ends when the raylet does, to which its standard input is connected."""


@dataclass
class Started:
    """Started processes."""

    raylet_pid: int | None = None
    """The raylet's process, if it starts forked workers."""
    needed: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """The processes without which nothing of Ray works, by their type in Ray."""


@contextlib.contextmanager
def few_processes() -> Iterator[Started]:
    """Have ``ray.init`` start few processes while the context lasts."""
    started = Started()
    if not ray.__version__.startswith(_KNOWN):
        yield started
        return
    from ray._private import parameter, services, utils  # noqa: PLC0415  private modules: other versions may lack them

    launcher = str(Path(__file__).with_name("worker_launcher.py"))
    params: Any = parameter.RayParams
    replaced: list[tuple[Any, str, Any]] = [
        (parameter, "RayParams", partial(params, no_monitor=True, include_log_monitor=False, worker_path=launcher)),
        (services, "propagate_jemalloc_env_var", lambda **_: {}),
        (utils, "get_dashboard_dependency_error", lambda: None),
        (services, "start_api_server", lambda *_args, **_kwargs: (None, None)),
        (services, "start_ray_process", partial(_start_process, started, services.start_ray_process)),
    ]
    with contextlib.ExitStack() as stack:
        for module, name, replacement in replaced:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, replacement)
        yield started


def _start_process(
    started: Started, start: Callable[..., Any], command: list[str], process_type: str, *rest: Any, **options: Any
) -> Any:
    """Start one of Ray's processes; the raylet without its agents."""
    from ray._private import ray_constants  # noqa: PLC0415  as above

    is_raylet = process_type == ray_constants.PROCESS_TYPE_RAYLET
    process = start(_without_agents(command) if is_raylet else command, process_type, *rest, **options)
    if is_raylet:
        started.raylet_pid = process.process.pid
    if is_raylet or process_type == ray_constants.PROCESS_TYPE_GCS_SERVER:
        started.needed[process_type] = process.process
    return process


def _without_agents(command: list[str]) -> list[str]:
    """Return the raylet's command with agents that only wait; record for them that they do not listen."""
    raylet: Any = importlib.import_module("ray._raylet")  # it has no types
    options = dict(part.removeprefix("--").split("=", 1) for part in command if part.startswith("--") and "=" in part)
    for port in (
        raylet.METRICS_AGENT_PORT_NAME,
        raylet.METRICS_EXPORT_PORT_NAME,
        raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
        raylet.RUNTIME_ENV_AGENT_PORT_NAME,
    ):
        raylet.persist_port(options["session_dir"], options["node_id"], port, _NO_PORT)
    agents = ("--dashboard_agent_command=", "--runtime_env_agent_command=")
    kept = [part for part in command if not part.startswith(agents)]
    return [*kept, *(agent + _WAITING for agent in agents)]
