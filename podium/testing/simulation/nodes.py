"""The nodes of a simulation, which hold the workspaces, and the store of their trees."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

from podium.testing.simulation.scratch import ScratchNode, ScratchTrees

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from chronicle.blobs.port import BlobStore
    from chronicle.workspace.port import Opened, TreeRef, Workspace
    from podium.turn.ports import WorkspaceRequest

__all__ = ["ScratchNodes", "SimulatedNodes"]


class SimulatedNodes:
    """Nodes that hold workspaces, and the store of their trees."""

    count: int
    blobs: BlobStore | None = None
    """The store of trees that are blobs, for rewinds of files; ``None`` if trees are not blobs."""

    def open(self, node: int, request: WorkspaceRequest) -> Opened:
        """Open a workspace on a node."""
        raise NotImplementedError

    def files(self, workspace: Workspace) -> MutableMapping[str, str]:
        """Return an open workspace's files; writing to the mapping writes them."""
        raise NotImplementedError

    def tree(self, ref: TreeRef) -> dict[str, str]:
        """Return a sealed tree's files."""
        raise NotImplementedError

    def lose_power(self, node: int, generator: random.Random) -> None:
        """Lose some unsynced writes of a node's disk, after its processes ended."""


class ScratchNodes(SimulatedNodes):
    """Workspaces in memory."""

    count = 3

    def __init__(self) -> None:
        self._forest = ScratchTrees()
        self._nodes = [ScratchNode(f"node{number}", self._forest) for number in range(self.count)]

    def open(self, node: int, request: WorkspaceRequest) -> Opened:
        """Open a workspace on a node."""
        return self._nodes[node].open(request.address.workspace_id, request.base, request.epoch)

    def files(self, workspace: Workspace) -> MutableMapping[str, str]:
        """Return an open workspace's files."""
        return cast("Any", workspace).files  # type: ignore[no-any-return]

    def tree(self, ref: TreeRef) -> dict[str, str]:
        """Return a sealed tree's files."""
        return self._forest.files(ref)

    def lose_power(self, node: int, generator: random.Random) -> None:
        """Tear writes that were not sealed."""
        self._nodes[node].lose_power(generator)
