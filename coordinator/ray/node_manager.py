"""The node manager: the Ray actor of each node that starts and ends hosts there, and owns the node's mounts.

It decides nothing: which hosts are wanted is the coordinator's plan. What it keeps is on the node's disk or in Ray, so
that it can be started again at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import ray
import structlog

from chronicle.errors import ChronicleError, NotFound
from chronicle.fuse import zygote
from chronicle.fuse.client import unmount_workspace
from coordinator.hosting import HostConfig
from coordinator.logs import log_to, rotate_logs
from coordinator.process_end import OomKills, WatchedProcess, describe_end, last_words
from coordinator.ray.cluster import NAMESPACE, find_actor
from coordinator.ray.host import HostActor
from podium.errors import HostDied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.model import Code

__all__ = ["NodeConfig", "NodeManagerActor"]

_LOAD_DEADLINE_S: Final = 120.0
"""For a process to be made and user code to be imported, while others are on a busy machine."""

_DYING_S: Final = 15.0
"""How long a process that Ray holds to be dead may take to end: the kernel may write a core dump first, say."""

_ROTATE_EVERY_S: Final = 2.0
"""How often the lengths of log files are looked at; what is written meanwhile is what they may grow beyond theirs."""

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
    log_bytes: int
    """How long each log file may grow, about."""
    presentation: Literal["fuse", "dir"]
    fuse_transport: Literal["raw", "pyfuse3"]
    host_cpus: float
    lease_ttl_s: float
    owner_pid: int
    """The service's process: mounts end with it."""


@ray.remote(max_restarts=-1, max_task_retries=-1)
class NodeManagerActor:
    """Starts and ends hosts on its node. Each method may be called twice: Ray does, if this actor dies under a call.

    Args:
        config: of this node.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        log_to(Path(config.logs) / "node.log")
        self._mounts = Path(config.directory) / "mounts"
        self._layers = Path(config.directory) / "layers"
        self._ends = Path(config.run_dir) / "ends"
        self._zygote_socket = Path(config.run_dir) / "zygote.sock"
        self._processes: dict[str, WatchedProcess] = {}
        self._oom_kills = OomKills()
        for directory in (self._mounts, self._layers, self._ends):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        threading.Thread(target=self._rotate_logs, name="log-rotation", daemon=True).start()
        if config.presentation == "fuse":
            self._start_zygote()

    async def ready(self) -> None:
        """Answer when the node can take hosts, its mount service started again if it is gone."""
        if self._config.presentation == "fuse":
            await asyncio.to_thread(self._start_zygote)

    async def start_host(self, host_id: str, code: Code) -> None:
        """Start a host under that name and let it import an agent's code. Takes a second or more.

        Raises:
            AgentLoadError: the code cannot be used; the host is ended.
            HostDied: its process ended meanwhile; the message says how.
        """
        await self.ready()
        mountpoint = self._mounts / host_id
        mountpoint.mkdir(mode=0o700, exist_ok=True)
        host: Any = HostActor.options(  # type: ignore[attr-defined]
            name=host_id,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
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
                last_words=str(self._ends / host_id),
            )
        )
        try:
            async with asyncio.timeout(_LOAD_DEADLINE_S):
                self._watch(host_id, await host.process_id.remote())
                await host.load.remote(code)
        except ray.exceptions.RayActorError as error:
            how = await self.end_host(host_id, died=True)
            log = Path(self._config.logs) / "hosts.log"
            raise HostDied(
                f"the agent's process died while it imported {code.file}{f': {how}' if how else ''}; {log} says more"
            ) from error
        except BaseException:
            await self.end_host(host_id)
            raise

    async def end_host(self, host_id: str, *, died: bool = False) -> str | None:
        """End a host's process, if it lives, and leave nothing mounted at its place. Doing it twice is harmless.

        Args:
            died: whether it is known to be dead or dying.

        Returns:
            how it ended by itself before, in a few words; ``None`` if it did not, or that is not known.
        """
        host, process = find_actor(host_id), self._processes.pop(host_id, None)
        died = died or host is None
        how = await asyncio.to_thread(self._how_it_ended, host_id, process, died=died)
        if host is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(host)
        if process is not None:
            process.close()
        await self._clear_mountpoint(host_id)
        return how

    def _watch(self, host_id: str, pid: int) -> None:
        try:
            self._processes[host_id] = WatchedProcess(pid)
        except OSError as error:  # it died at once, or the kernel has no pidfds
            _log.warning("host_not_watched", host_id=host_id, error=str(error))

    def _how_it_ended(self, host_id: str, process: WatchedProcess | None, *, died: bool) -> str | None:
        status = process.wait_status(_DYING_S if died else 0) if process is not None else None
        words = last_words(self._ends / host_id)
        if not died and status is None:  # it lives
            return None
        return describe_end(status, oom=self._oom_kills.lately(), words=words)

    async def _clear_mountpoint(self, host_id: str) -> None:
        mountpoint = self._mounts / host_id
        if os.path.islink(mountpoint):  # noqa: PTH114  is_symlink raises where a mount's server died with its host
            mountpoint.unlink()
            return
        if self._config.presentation == "fuse":
            try:
                await asyncio.to_thread(unmount_workspace, self._zygote_socket, mountpoint)
            except NotFound:
                pass  # it was never mounted, or went with its host
            except ChronicleError as error:
                _log.warning("not_unmounted", host_id=host_id, error=str(error))
        try:
            mountpoint.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:  # still mounted, or written to after the mount was gone: not ours to delete
            _log.warning("mountpoint_left", host_id=host_id, error=str(error))

    async def end_others(self, host_ids: Sequence[str]) -> None:
        """End all hosts of this node but these, and clear up after those that died with an earlier service."""
        for mountpoint in list(self._mounts.iterdir()):
            if mountpoint.name not in host_ids:
                await self.end_host(mountpoint.name)

    async def stop(self) -> None:
        """Unmount everything, end the mount service, and leave no places of mounts behind."""
        if self._config.presentation == "fuse":
            await asyncio.to_thread(zygote.shut_down, self._zygote_socket)
        for mountpoint in list(self._mounts.iterdir()):
            if mountpoint.is_symlink():
                mountpoint.unlink(missing_ok=True)
                continue
            try:
                mountpoint.rmdir()
            except OSError as error:  # as in `end_host`: not ours to delete
                _log.warning("mountpoint_left", host_id=mountpoint.name, error=str(error))

    def _rotate_logs(self) -> None:
        while True:
            self._oom_kills.sample()
            try:
                rotate_logs(Path(self._config.logs), self._config.log_bytes)
            except OSError as error:
                _log.warning("logs_not_rotated", error=str(error))
            time.sleep(_ROTATE_EVERY_S)

    def _start_zygote(self) -> None:
        """Start the mount service, or find it running."""
        zygote.start(
            self._zygote_socket,
            self._mounts,
            Path(self._config.logs) / "mounts.log",
            owner_pid=self._config.owner_pid,
            transport=self._config.fuse_transport,
            blobs_url=self._config.blobs_url,
        )
