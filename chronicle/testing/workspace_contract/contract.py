"""Base of the parts of the contract: machines, and workspaces opened on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

import pytest

from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.workspace.port import Opened, TreeRef, Workspace

__all__ = ["Contract", "WorkspaceNode", "ops"]


class WorkspaceNode(Protocol):
    """A machine on which workspaces are opened."""

    @property
    def layers(self) -> Path:
        """Its directory of layers."""

    @property
    def blobs(self) -> BlobStore:
        """The blob store that all nodes share."""

    def open(self, spec: LayerSpec) -> Opened:
        """Open a workspace. What is still open at the end is closed by the fixture."""

    def elsewhere(self) -> WorkspaceNode:
        """Return another machine with the same blob store."""


class Contract(ABC):
    """Base of each part of the contract."""

    @pytest.fixture
    @abstractmethod
    def node(self) -> WorkspaceNode:
        """Return a machine without any workspace."""

    def spec(
        self, node: WorkspaceNode, base: TreeRef | None = None, *, epoch: int = 1, turn: int = 0, name: str = "w"
    ) -> LayerSpec:
        """Return what opening takes."""
        return LayerSpec(workspace_id=name, layers=node.layers, base=base, epoch=epoch, turn=turn)

    @pytest.fixture
    def workspace(self, node: WorkspaceNode) -> Workspace:
        """An empty workspace in its first turn."""
        workspace = node.open(self.spec(node)).workspace
        workspace.begin_turn(1)
        return workspace


def ops(workspace: Workspace, path: str) -> list[str]:
    """Return what happened to a path."""
    return [item.op for item in workspace.history(path)]
