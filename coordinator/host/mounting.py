"""Opening an agent's workspace at its path, in the agent's host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs.opening import open_blobs
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec
from coordinator.host.node.layers import fork_name, remove_fork
from coordinator.host.node.path_locks import PathLocks, PathOwner, clear_path
from coordinator.host.node.workspace_paths import WorkspacePaths

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from chronicle.workspace.port import Opened, Quota, Workspace
    from coordinator.host.host_config import HostConfig
    from podium.address import Address
    from podium.turn.ports import WorkspaceRequest

__all__ = ["USED", "Mounting"]

USED: Final = "used"
"""Directory of use records, beside the node's layers: files that note which workspaces of shared hosts are in use."""


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
        """The descriptors that hold the locks of paths."""

    def claim(self, request: WorkspaceRequest) -> Path:
        """Lock an agent's workspace path until `leave` or the end of this process, and return it.

        Processes of earlier hosts that may use it are killed.

        Raises:
            StaleEpoch: an activation of a newer epoch has the path.
            Conflict: another agent owns the path.
            Unavailable: a process of the previous owner cannot be killed.
        """
        path = self._paths.of(request.address)
        self._unlock(path)  # of an activation in this host that was evicted
        owner = PathOwner(self._config.host_id, request.epoch, str(request.address), self._config.home_identity)
        self._held[path] = self._locks.acquire(path, owner)
        self._paths.create()
        clear_path(path, self._config.host_id)
        return path

    def open(self, request: WorkspaceRequest, quota: Quota | None, path: Path) -> Opened:
        """Open an agent's workspace at its path, which was claimed; raises as its presentation does."""
        config = self._config
        spec = self._spec(request, quota, request.address.workspace_id)
        if config.presentation == "fuse":
            return open_fuse_workspace(Path(config.zygote_socket), spec, config.blobs_url, path)
        root = spec.layers / spec.workspace_id / "files"
        opened = open_dir_workspace(spec, open_blobs(config.blobs_url), root, self._clock, shown_at=path)
        path.symlink_to(root, target_is_directory=True)
        return opened

    @contextlib.contextmanager
    def fork(self, request: WorkspaceRequest, quota: Quota | None) -> Iterator[Workspace]:
        """Open a fork of an agent's workspace, which is open; see `Environment.open_fork`."""
        config = self._config
        path = self._paths.of(request.address)
        at = path.with_name(fork_name(path))
        spec = self._spec(request, quota, at.name)
        try:
            if config.presentation == "fuse":
                opened = open_fuse_workspace(Path(config.zygote_socket), spec, config.blobs_url, at)
            else:
                root = spec.layers / spec.workspace_id / "files"
                opened = open_dir_workspace(spec, open_blobs(config.blobs_url), root, self._clock)
            with contextlib.closing(opened.workspace):
                yield opened.workspace
        finally:
            remove_fork(spec.layers, at)

    def _spec(self, request: WorkspaceRequest, quota: Quota | None, workspace_id: str) -> LayerSpec:
        return LayerSpec(
            workspace_id=workspace_id,
            layers=Path(self._config.layers),
            base=request.base,
            epoch=request.epoch,
            turn=request.turn,
            quota=quota,
            gives_up_when_full=True,
        )

    def record_use(self, path: Path) -> None:
        """Note durably that a workspace is in use, until `leave`: see `may_have_changes`."""
        record = self._use_record(path)
        record.parent.mkdir(mode=0o700, exist_ok=True)
        record.touch(mode=0o600)

    def may_have_changes(self, address: Address, *, unclean: bool) -> bool:
        """Whether an earlier activation may have left uncommitted changes in an agent's workspace on this node.

        Args:
            unclean: the previous activation did not end in order.
        """
        layers = Path(self._config.layers) / address.workspace_id
        return (unclean and layers.is_dir()) or self._use_record(self._paths.of(address)).exists()

    def has(self, address: Address) -> bool:
        """Whether an agent's workspace path is locked by this host."""
        return self._paths.of(address) in self._held

    def leave(self, address: Address, *, evicted: bool) -> None:
        """Unlock an agent's workspace path after its workspace was closed, and remove the path; idempotent.

        The lock file goes in any case: the next owner of the path would end the process that the file names, which is
        this one, with all of its other agents.

        Args:
            evicted: another host has the agent, or will have it, and cleans up.
        """
        path = self._paths.of(address)
        if path not in self._held:
            return
        if not evicted:
            with contextlib.suppress(OSError):
                path.unlink() if path.is_symlink() else path.rmdir()
            self._use_record(path).unlink(missing_ok=True)
        self._locks.forget(path)
        self._unlock(path)

    def _unlock(self, path: Path) -> None:
        held = self._held.pop(path, None)
        if held is not None:
            os.close(held)

    def _use_record(self, path: Path) -> Path:
        return Path(self._config.layers).parent / USED / path.name

    def link_to(self, path: Path) -> None:
        """Point this host's link at a workspace path, for code that read the link at its import."""
        link = Path(self._config.link)
        new = link.with_name(f"{link.name}.new")
        new.symlink_to(path, target_is_directory=True)
        new.replace(link)
