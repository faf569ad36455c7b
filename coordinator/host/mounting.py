"""Opening an agent's workspace at its path, in the agent's host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec
from coordinator.host.path_locks import PathLocks, PathOwner, clear_path
from coordinator.host.workspace_paths import WorkspacePaths

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from chronicle.workspace.port import Opened, Quota
    from coordinator.host.host_config import HostConfig
    from podium.turn.ports import WorkspaceRequest

__all__ = ["Mounting"]


class Mounting:
    """Opens workspaces of agents on this node. Its methods block.

    Args:
        config: the host's.
        clock: gives the time of changes, in plain directories.
    """

    def __init__(self, config: HostConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._paths = WorkspacePaths(Path(config.workspaces), config.home_id)
        self._locks = PathLocks(Path(config.path_locks), config.home_identity)
        self._held: dict[Path, int] = {}
        """The descriptors that hold the locks of paths until this process ends."""

    def claim(self, request: WorkspaceRequest) -> Path:
        """Lock an agent's workspace path until this process ends, and return it; kills processes of earlier hosts.

        Raises:
            StaleEpoch: an activation of a newer epoch has the path.
            Conflict: another agent owns the path.
            Unavailable: a process of the previous owner cannot be killed.
        """
        path = self._paths.of(request.address)
        owner = PathOwner(self._config.host_id, request.epoch, str(request.address), self._config.home_identity)
        self._held[path] = self._locks.acquire(path, owner)
        self._paths.create()
        clear_path(path, self._config.host_id)
        return path

    def open(self, request: WorkspaceRequest, quota: Quota | None, path: Path) -> Opened:
        """Open an agent's workspace at its path, which was claimed; raises as its presentation does."""
        config = self._config
        spec = LayerSpec(
            workspace_id=request.address.workspace_id,
            layers=Path(config.layers),
            base=request.base,
            epoch=request.epoch,
            turn=request.turn,
            quota=quota,
            gives_up_when_full=True,
        )
        if config.presentation == "fuse":
            return open_fuse_workspace(Path(config.zygote_socket), spec, config.blobs_url, path)
        root = spec.layers / spec.workspace_id / "files"
        opened = open_dir_workspace(spec, PackBlobStore(config.blobs_url), root, self._clock, shown_at=path)
        path.symlink_to(root, target_is_directory=True)
        return opened

    def link_to(self, path: Path) -> None:
        """Point this host's link at a workspace path, for code that read the link at its import."""
        link = Path(self._config.link)
        new = link.with_name(f"{link.name}.new")
        new.symlink_to(path, target_is_directory=True)
        new.replace(link)
