"""The node manager: a Ray actor on each node that starts and ends the node's hosts, and owns its mounts.

It makes no decisions: the coordinator's plan determines the hosts. Its state is on the node's disk or in Ray, so it can
be restarted at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import ray
import structlog

from chronicle.control.messages import Ended
from chronicle.errors import ChronicleError, NotFound
from chronicle.fuse import available
from chronicle.fuse.mountpoints import mounts
from chronicle.fuse.server.client import list_mounts, unmount_workspace
from chronicle.fuse.zygote import launcher
from chronicle.ids import BlobId
from chronicle.system.permissions import make_searchable
from coordinator.fleet.nodes.nodes import CPU, GPU, MEMORY, Node
from coordinator.home import Home
from coordinator.host.delivery import DELIVERIES
from coordinator.host.host_config import HostConfig
from coordinator.host.node.layers import clear_forks, latest_epochs, remove_workspace
from coordinator.host.node.path_locks import PathLocks
from coordinator.host.node.process_exit import (
    OomKills,
    WatchedProcess,
    available_bytes,
    computes,
    describe_end,
    last_culprit,
    last_words,
    own_bytes,
)
from coordinator.host.node.process_marks import ProcessMark, end_marked
from coordinator.host.node.workspace_paths import WorkspacePaths
from coordinator.logs import log_to, rotate_logs
from coordinator.ray.cluster import COORDINATOR_NAME, find_actor, node_manager_name, on_node
from coordinator.store.links import manager_of
from podium.errors import HostDied, PodiumError
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.fleet.facts import NodeState
    from coordinator.fleet.model import Code, Loaded
    from coordinator.fleet.nodes.nodes import Needs, NodeId
    from coordinator.store.links import StoreAccess, StoreLink
    from podium.agent.base import Isolation

__all__ = ["NodeConfig", "NodeManagerActor", "start_node_manager"]

_LOAD_DEADLINE_S: Final = 120.0
"""Timeout for a process to start and to import user code, on a busy machine."""
_PID_DEADLINE_S: Final = 10.0
"""Timeout for a running host to tell its process id."""
_DYING_S: Final = 30.0
"""Timeout for the exit of a process that Ray reports as dead: the kernel may write a core dump first."""

_NO_PLACE: Final = "not-awake-yet"
"""Target of a host's link before the activation. It does not exist, so code cannot use the link during its import."""

_LOOK_S: Final = 2.0
"""Interval of looks whether there is a coordinator."""
_ROTATE_EVERY_S: Final = 2.0
"""Interval of checks of log files' sizes; a file may exceed its limit between two checks."""

_log = structlog.stdlib.get_logger("coordinator.node_manager")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The configuration of a node manager, fixed for its life."""

    node: NodeId
    home: str
    """The directory of the home."""
    journal: str
    """As of `coordinator.host.host_config.HostConfig`."""
    blobs_url: str
    """Empty with ``store``."""
    store: StoreAccess | None
    """The store process of this node, if hosts are to open no store themselves."""
    home_id: str
    home_identity: str
    """`coordinator.home.Home.identity`."""
    workspaces: str
    """Absolute directory of agents' workspace paths; see `coordinator.host.node.workspace_paths`."""
    run_dir: str
    """Short directory for sockets."""
    logs: str
    log_bytes: int
    """Approximate size at which a log file is rotated."""
    presentation: Literal["auto", "fuse", "dir"]
    """``auto``: FUSE, if it is available on the node."""
    fuse_transport: Literal["raw", "pyfuse3"]
    inbox_limit: int
    """Messages that may be pending for one agent."""
    lease_ttl_s: float
    report_interval_s: float
    """See `coordinator.host.agent_host.HostConfig`."""
    shared_host_bytes: int
    """As of `coordinator.host.host_config.HostConfig`."""
    block_limit_s: float
    """As of `coordinator.host.host_config.HostConfig`."""
    owner_pid: int | None
    """The process with which mounts end: that of the service. ``None`` on another machine: they end with the node."""
    models: str
    """As of `coordinator.host.host_config.HostConfig`."""
    group: int | None
    """As of `coordinator.fleet.nodes.machines.Machine`."""
    ends_with_coordinator: bool
    """Whether it ends when there is no coordinator any more: on a cluster that outlives the service."""


@ray.remote(max_restarts=-1, max_task_retries=-1)
class NodeManagerActor:
    """Starts and ends hosts on its node. Methods are idempotent: Ray repeats a call during which this actor died.

    Args:
        config: the configuration of this node manager.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._presentation = _presentation_of(config)
        Path(config.logs).mkdir(mode=0o700, exist_ok=True)
        log_to(Path(config.logs) / "node.log")
        home = Home(Path(config.home))
        self._mounts = home.node(config.node) / "mounts"
        self._layers = home.node(config.node) / "layers"
        self._bundles = home.node(config.node) / "bundles"
        self._ends = Path(config.run_dir) / "ends"
        self._deliveries = Path(config.run_dir) / DELIVERIES
        self._lock_files = home.places
        self._path_locks = PathLocks(self._lock_files, config.home_identity)
        self._paths = WorkspacePaths(Path(config.workspaces), config.home_id)
        self._zygote_socket = Path(config.run_dir) / "zygote.sock"
        self._processes: dict[str, WatchedProcess] = {}
        self._oom_kills = OomKills()
        for directory in (Path(config.run_dir), self._deliveries):
            make_searchable(directory, config.group)
        for directory in (self._mounts, self._layers, self._ends, self._lock_files):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        threading.Thread(target=self._rotate_logs, name="log-rotation", daemon=True).start()
        self._tasks = BackgroundTasks()
        self._tasks.spawn(self._watch_running(), "watch-running")
        self._host_died = asyncio.Event()
        if config.store is not None and config.group is not None:
            self._tasks.spawn(self._publish_roots(config.store.link(manager_of(config.node))), "publish-roots")
        if config.ends_with_coordinator:
            self._tasks.spawn(self._end_with_coordinator(), "end-with-coordinator")
        if self._presentation == "fuse":
            self._start_zygote()

    async def ready(self) -> None:
        """Return when the node is ready for hosts; restart its mount service if that has ended.

        Raises:
            HomeError: the directory of workspace paths is unusable.
            Unavailable: the mount service does not start.
        """
        self._paths.create()
        if self._presentation == "fuse":
            await asyncio.to_thread(self._start_zygote)

    async def measure(self) -> Node:
        """Return what Ray counts on this node."""
        ray_id = ray.get_runtime_context().get_node_id()
        found = next(node for node in ray.nodes() if node["NodeID"] == ray_id)  # type: ignore[no-untyped-call]
        return Node(self._config.node, found["Resources"], found["Labels"], os.cpu_count() or 1)

    async def hosts(self) -> list[str]:
        """Return the hosts that were started on this node and not ended, by their names; some may be dead."""
        return [link.name for link in self._mounts.iterdir()]

    async def layers(self, workspace_ids: Sequence[str]) -> dict[str, int]:
        """Return the epochs of the layers that workspaces have on this node; those without one are left out."""
        return await asyncio.to_thread(latest_epochs, self._layers, workspace_ids)

    async def lacks(self, bundle: str) -> str:
        """Return what this node lacks for a code bundle, such as ``httpx>=0.28 (has no httpx)``; empty for nothing.

        Raises:
            NotFound, Corrupt, UnsupportedFormat, Unavailable: its manifest cannot be read.
        """
        return await asyncio.to_thread(self._lacks, BlobId(bundle))

    async def forget(self, workspace_id: str) -> None:
        """Remove the layers and logs of an agent that is deleted."""
        await asyncio.to_thread(remove_workspace, self._layers, Path(self._config.logs), workspace_id)

    async def describe(self) -> NodeState:
        """Return the state of this node."""
        problem: str | None = None
        try:
            await self.ready()
        except (PodiumError, ChronicleError) as error:
            problem = str(error)
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return {
            "node": self._config.node,
            "problem": problem,
            "presentation": self._presentation,
            "cpus": os.cpu_count() or 1,
            "memory": pages * page,
            "memory_available": available_bytes(),
            "mounts": await asyncio.to_thread(self._count_mounts),
        }

    async def processes(self, host_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the ids and the memory, bytes, of hosts' processes; hosts that have ended are left out."""
        pids = {host_id: self._processes[host_id].pid for host_id in host_ids if host_id in self._processes}
        found = {host_id: (pid, own_bytes(pid)) for host_id, pid in pids.items()}
        return {host_id: (pid, size) for host_id, (pid, size) in found.items() if size is not None}

    async def computes(self, host_id: str) -> bool:
        """Return whether a host's process computes, as `process_exit.computes`; ``False`` if it has ended."""
        process = self._processes.get(host_id)
        return process is not None and computes(process.pid)

    async def start_host(self, host_id: str, code: Code, isolation: Isolation | None, needs: Needs) -> Loaded:
        """Start a host of a given name and have it import an agent's code. Takes a second or more.

        Args:
            isolation: as of `AgentHost.load`.
            needs: the resources that Ray reserves for it.

        Returns:
            the code that it imported.

        Raises:
            AgentLoadError: the code cannot be loaded; the host is ended.
            HostDied: its process ended meanwhile; the message contains the cause.
        """
        from coordinator.ray.host_actor import HostActor  # noqa: PLC0415  the service declares this class, and starts no host

        await self.ready()
        link = self._mounts / host_id
        with contextlib.suppress(FileExistsError):
            link.symlink_to(_NO_PLACE)
        resources = dict(needs.resources)
        store = self._config.store.link(host_id) if self._config.store is not None else None
        host: Any = HostActor.options(  # type: ignore[attr-defined]
            name=host_id,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=resources.pop(CPU, 0.0),
            num_gpus=resources.pop(GPU, 0.0),
            memory=resources.pop(MEMORY, None),
            resources=resources,
            scheduling_strategy=on_node(ray.get_runtime_context().get_node_id()),
        ).remote(
            HostConfig(
                host_id=host_id,
                home=self._config.home,
                journal=self._config.journal,
                blobs_url=store.blobs_url if store is not None else self._config.blobs_url,
                store=store,
                layers=str(self._layers),
                home_id=self._config.home_id,
                home_identity=self._config.home_identity,
                workspaces=self._config.workspaces,
                path_locks=str(self._lock_files),
                link=str(link),
                zygote_socket=str(self._zygote_socket),
                presentation=self._presentation,
                logs=self._config.logs,
                inbox_limit=self._config.inbox_limit,
                lease_ttl_s=self._config.lease_ttl_s,
                shared_host_bytes=self._config.shared_host_bytes,
                block_limit_s=self._config.block_limit_s,
                last_words=str(self._ends / host_id),
                deliveries=str(self._deliveries / host_id),
                report_interval_s=self._config.report_interval_s,
                models=self._config.models,
                bundles=str(self._bundles),
                group=self._config.group,
            )
        )
        try:
            async with asyncio.timeout(_LOAD_DEADLINE_S):
                self._watch(host_id, await host.process_id.remote())
                loaded: Loaded = await host.load.remote(code, isolation)
        except ray.exceptions.RayActorError as error:
            how = await self.end_host(host_id, died=True)
            where = f" on the machine {socket.gethostname()}" if self._config.owner_pid is None else ""
            log = f"{Path(self._config.logs) / 'hosts.log'}{where}"
            raise HostDied(
                f"the agent's process died while it imported {code.file}{f': {how}' if how else ''}; {log} says more"
            ) from error
        except BaseException:
            await self.end_host(host_id)
            raise
        return loaded

    async def end_host(self, host_id: str, *, died: bool = False) -> str | None:
        """End a host's process, if it is alive, and all processes that it started, and unmount its agent's workspace.

        It may be a host of another node on this machine that is gone. Idempotent. A process that cannot be ended keeps
        the lock of the workspace path from the agent's next host.

        Args:
            died: whether the host is known to be dead or dying.

        Returns:
            a short description of how it ended by itself before; ``None`` if it did not, or if not known.
        """
        host, process = find_actor(host_id), self._processes.pop(host_id, None)
        if process is not None:
            asyncio.get_running_loop().remove_reader(process.fileno())
        died = died or host is None
        how = await asyncio.to_thread(self._how_it_ended, host_id, process, died=died)
        if how is None and not died:  # it is ended in order
            last_culprit(self._ends / host_id)
        if host is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(host)
        if process is not None:
            process.close()
        try:
            await asyncio.to_thread(self._clear_after, host_id)
        except (ChronicleError, OSError) as error:
            _log.warning("host_left_behind", host_id=host_id, error=str(error))
        if died or how is not None:  # its last tree may be in no journal
            self._host_died.set()
        return how

    async def culprit(self, host_id: str) -> str | None:
        """Return which agent is to blame for the end of a host, once; ``None`` if that is not known.

        A host of one agent names that one when its activation begins, another host when it ends itself for one.
        """
        return await asyncio.to_thread(last_culprit, self._ends / host_id)

    async def _watch_running(self) -> None:
        """Watch the hosts that the node manager before this one has started."""
        for link in list(self._mounts.iterdir()):
            host = find_actor(link.name)
            if host is not None:
                with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
                    async with asyncio.timeout(_PID_DEADLINE_S):
                        pid = await host.process_id.remote()
                    if link.name not in self._processes and os.path.islink(link):  # noqa: PTH114  not ended meanwhile
                        self._watch(link.name, pid)

    async def _end_with_coordinator(self) -> None:
        """End this node's hosts, and this actor, when Ray has ended the coordinator with its service.

        The mounts have ended with that service, and the next one may be on another cluster, where it cannot end them.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            if not await asyncio.to_thread(_may_live, COORDINATOR_NAME):
                break
        _log.warning("service_gone", then="this node's hosts are ended")
        await self.end_others([])
        ray.kill(ray.get_runtime_context().current_actor)

    async def _publish_roots(self, link: StoreLink) -> None:
        """Publish what the layers of this machine refer to, from time to time and after the death of a host.

        What was told last counts until then. The store process cannot read the layers, which are another user's.
        """
        # Imported here: of homes on servers only.
        from coordinator.homes.node_roots import PUBLISH_EVERY_S, publish_roots  # noqa: PLC0415
        from coordinator.store.client import RemoteRoots  # noqa: PLC0415

        def publish() -> None:
            with contextlib.closing(link.calls()) as calls:
                publish_roots(RemoteRoots(calls), Path(self._config.home))

        while True:
            try:
                await asyncio.to_thread(publish)
            except (ChronicleError, OSError) as error:
                _log.warning("roots_not_published", error=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PUBLISH_EVERY_S):
                    await self._host_died.wait()
            self._host_died.clear()

    def _watch(self, host_id: str, pid: int) -> None:
        """Watch the process of a host. After a restart of this actor its start is repeated, and it is found running."""
        if host_id in self._processes:
            return
        try:
            process = self._processes[host_id] = WatchedProcess(pid)
        except OSError as error:  # it died at once, or the kernel has no pidfds
            _log.warning("host_not_watched", host_id=host_id, error=str(error))
        else:
            asyncio.get_running_loop().add_reader(process.fileno(), self._process_ended, host_id)

    def _process_ended(self, host_id: str) -> None:
        """Tell the coordinator at once: Ray reports the death of an actor up to a second later."""
        asyncio.get_running_loop().remove_reader(self._processes[host_id].fileno())
        coordinator = find_actor(COORDINATOR_NAME)
        if coordinator is not None:
            coordinator.process_ended.remote(host_id)

    def _how_it_ended(self, host_id: str, process: WatchedProcess | None, *, died: bool) -> str | None:
        status = process.wait_status(_DYING_S if died else 0) if process is not None else None
        words = last_words(self._ends / host_id)
        if not died and status is None and words is None:  # the process is alive
            return None
        return describe_end(status, oom=self._oom_kills.lately(), words=words)

    async def end_others(self, host_ids: Sequence[str]) -> None:
        """End all hosts of this node except the given ones, and clean up after hosts of an earlier service."""
        for link in list(self._mounts.iterdir()):
            if link.name not in host_ids:
                await self.end_host(link.name)

    async def stop(self) -> None:
        """Unmount everything, end the mount service, and remove the workspace paths."""
        if self._presentation == "fuse":
            await asyncio.to_thread(launcher.shut_down, self._zygote_socket)
        for link in list(self._mounts.iterdir()):
            await self.end_host(link.name)
        self._paths.remove()

    def _clear_after(self, host_id: str) -> None:
        """Kill all processes of a host, and remove its agent's workspace path and its link.

        Raises:
            ChronicleError: a process cannot be ended, or its mount cannot be unmounted.
            OSError: a mount of an earlier version cannot be removed.
        """
        link = self._mounts / host_id
        ended = end_marked(ProcessMark(self._config.home_identity, host_id))
        if ended:
            _log.info("ended_processes", host_id=host_id, count=ended)
        (self._deliveries / host_id).unlink(missing_ok=True)
        if not os.path.islink(link):  # noqa: PTH114  is_symlink raises where a mount's server is dead
            if os.path.lexists(link):  # a mount of a killed service of an earlier version
                mounts.unmount(link)
                link.rmdir()
            self._clear_owned(host_id)  # it was on a node that is gone, or there is nothing left
            return
        path = link.readlink()
        if path.name == _NO_PLACE:  # it was warm, or shared
            self._clear_owned(host_id)
        else:
            self._clear_path(path, host_id)
        link.unlink(missing_ok=True)

    def _clear_owned(self, host_id: str) -> None:
        """Unmount and remove the workspace paths whose lock files name a host."""
        for name in self._path_locks.owned_by(host_id):
            self._clear_path(self._paths.directory / name, host_id)

    def _clear_path(self, path: Path, host_id: str) -> None:
        """Unmount and remove a workspace path of a host whose processes have ended."""
        if path.parent.name == self._paths.directory.name:  # else it belongs to the home of which this one is a copy
            with self._path_locks.releasing(path, host_id) as owner:
                # In a directory that this service has not claimed, the original of a copied home may have mounts.
                ours = path.parent == self._paths.directory
                if owner is not None and (ours or owner.home == self._config.home_identity):
                    self._unmount(path)
                    clear_forks(self._layers, path, self._unmount)

    def _unmount(self, path: Path) -> None:
        """Unmount and remove a workspace path."""
        if os.path.islink(path):  # noqa: PTH114  as above
            path.unlink()
            return
        if self._presentation == "fuse":
            with contextlib.suppress(NotFound, Ended):  # never mounted, or unmounted with its host or service
                unmount_workspace(self._zygote_socket, path)
            if path.parent != self._paths.directory:  # of a killed service with another directory
                mounts.unmount(path)
        try:
            path.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:  # still mounted, or written to after the unmount: never delete files here
            _log.warning("workspace_path_left", path=str(path), error=str(error))

    def _lacks(self, bundle: BlobId) -> str:
        # Imported here: of homes with deploys, and several nodes, only.
        from chronicle.blobs.opening import open_blobs  # noqa: PLC0415
        from podium.code.manifest import read_manifest  # noqa: PLC0415
        from podium.code.requirements import lacking  # noqa: PLC0415

        store = self._config.store
        url = store.link(manager_of(self._config.node)).blobs_url if store is not None else self._config.blobs_url
        with contextlib.closing(open_blobs(url)) as blobs:
            manifest = read_manifest(blobs, bundle)
        return ", ".join(f"{needed} (has {there})" for needed, there in lacking(manifest))

    def _count_mounts(self) -> int:
        if self._presentation != "fuse":
            return 0
        try:
            return len(list_mounts(self._zygote_socket))
        except ChronicleError:
            return 0

    def _rotate_logs(self) -> None:
        while True:
            self._oom_kills.sample()
            try:
                rotate_logs(Path(self._config.logs), self._config.log_bytes)
            except OSError as error:
                _log.warning("logs_not_rotated", error=str(error))
            time.sleep(_ROTATE_EVERY_S)

    def _start_zygote(self) -> None:
        """Start the mount service if it does not run."""
        launcher.start(
            self._zygote_socket,
            self._paths.directory,
            Path(self._config.logs) / "mounts.log",
            owner_pid=self._config.owner_pid or os.getppid(),  # the raylet
            transport=self._config.fuse_transport,
            blobs_url=self._config.blobs_url,
        )


def _may_live(name: str) -> bool:
    """Whether an actor is alive or being started again, or Ray does not answer."""
    try:
        return find_actor(name) is not None
    except ray.exceptions.RayError:
        return True


def _presentation_of(config: NodeConfig) -> Literal["fuse", "dir"]:
    if config.presentation == "auto":
        return "fuse" if available(config.fuse_transport) is None else "dir"
    return config.presentation


def start_node_manager(ray_id: str, config: NodeConfig) -> Any:
    """Start the manager of a node unless it has one; return the handle of its actor.

    Args:
        ray_id: Ray's id of the node. A manager ends with it: it is not started elsewhere.
    """
    return NodeManagerActor.options(  # type: ignore[attr-defined]
        name=node_manager_name(ray_id),
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        scheduling_strategy=on_node(ray_id),
    ).remote(config)
