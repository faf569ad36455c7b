"""The node manager: the Ray actor of each node that starts and ends hosts there, and owns the node's mounts.

It decides nothing: which hosts are wanted is the coordinator's plan. What it keeps is on the node's disk or in Ray, so
that it can be started again at any time.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import ray
import structlog

from chronicle.errors import ChronicleError, NotFound
from chronicle.fuse import zygote
from chronicle.fuse.client import unmount_workspace
from coordinator.hosting import HostConfig
from coordinator.logs import log_to
from coordinator.ray.cluster import NAMESPACE, find_actor
from coordinator.ray.host import HostActor

if TYPE_CHECKING:
    from coordinator.model import Code

__all__ = ["NodeConfig", "NodeManagerActor"]

_log = structlog.stdlib.get_logger("coordinator.node_manager")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What a node manager is told when it is started."""

    journal: str
    blobs_url: str
    directory: str
    """The node's part of the home: layers and mounts."""
    run_dir: str
    """Short directory for sockets."""
    logs: str
    presentation: Literal["fuse", "dir"]
    host_cpus: float
    lease_ttl_s: float
    owner_pid: int
    """The service's process: mounts end with it."""


@ray.remote(max_restarts=-1, max_task_retries=0)
class NodeManagerActor:
    """Starts and ends hosts on its node.

    Args:
        config: of this node.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        log_to(Path(config.logs) / "node.log")
        self._mounts = Path(config.directory) / "mounts"
        self._layers = Path(config.directory) / "layers"
        self._zygote_socket = Path(config.run_dir) / "zygote.sock"
        for directory in (self._mounts, self._layers):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if config.presentation == "fuse":
            self._start_zygote()

    async def ready(self) -> bool:
        """Answer when the node can take hosts."""
        return True

    async def start_host(self, host_id: str, code: Code) -> None:
        """Start a host under that name and let it import an agent's code. Takes a second or more.

        Raises:
            AgentLoadError: the code cannot be used; the host is ended.
        """
        if self._config.presentation == "fuse":
            self._start_zygote()
        mountpoint = self._mounts / host_id
        mountpoint.mkdir(mode=0o700)
        host: Any = HostActor.options(  # type: ignore[attr-defined]
            name=host_id,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=self._config.host_cpus,
            scheduling_strategy=ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            ),
        ).remote(
            HostConfig(
                host_id=host_id,
                journal=self._config.journal,
                blobs_url=self._config.blobs_url,
                layers=str(self._layers),
                mountpoint=str(mountpoint),
                zygote_socket=str(self._zygote_socket),
                presentation=self._config.presentation,
                logs=self._config.logs,
                lease_ttl_s=self._config.lease_ttl_s,
            )
        )
        try:
            await host.load.remote(code)
        except BaseException:
            await self.end_host(host_id)
            raise

    async def end_host(self, host_id: str) -> None:
        """End a host's process, if it lives, and leave nothing mounted at its place. Doing it twice is harmless."""
        host = find_actor(host_id)
        if host is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(host)
        mountpoint = self._mounts / host_id
        if mountpoint.is_symlink():
            mountpoint.unlink()
            return
        if self._config.presentation == "fuse":
            try:
                unmount_workspace(self._zygote_socket, mountpoint)
            except NotFound:
                pass  # it was never mounted, or went with its host
            except ChronicleError as error:
                _log.warning("not_unmounted", host_id=host_id, error=str(error))
        with contextlib.suppress(FileNotFoundError):
            mountpoint.rmdir()

    async def stop(self) -> None:
        """Unmount everything and end the mount service."""
        if self._config.presentation == "fuse":
            zygote.shut_down(self._zygote_socket)

    def _start_zygote(self) -> None:
        """Start the mount service, or find it running."""
        zygote.start(
            self._zygote_socket, self._mounts, Path(self._config.logs) / "mounts.log", owner_pid=self._config.owner_pid
        )
