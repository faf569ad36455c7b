from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import Conflict, InvalidInput
from chronicle.testing.workspace_contract import WorkspaceContract
from chronicle.workspace.dir import open_dir_workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.workspace.port import LayerSpec, Opened, Workspace


@dataclass
class DirNode:
    directory: Path
    blobs: MemoryBlobStore
    opened: list[Opened] = field(default_factory=list)
    others: list[DirNode] = field(default_factory=list)

    @property
    def layers(self) -> Path:
        return self.directory / "layers"

    def open(self, spec: LayerSpec) -> Opened:
        opened = open_dir_workspace(spec, self.blobs, self.directory / "roots" / spec.workspace_id, SystemClock())
        self.opened.append(opened)
        return opened

    def elsewhere(self) -> DirNode:
        other = DirNode(self.directory / f"node{len(self.others)}", self.blobs)
        self.others.append(other)
        return other

    def close(self) -> None:
        for other in self.others:
            other.close()
        for opened in self.opened:
            opened.workspace.close()


class TestDirWorkspace(WorkspaceContract):
    @pytest.fixture
    def node(self, tmp_path: Path) -> Iterator[DirNode]:
        made = DirNode(tmp_path, MemoryBlobStore())
        yield made
        made.close()

    def test_a_directory_of_someone_else_is_refused(self, node: DirNode) -> None:
        other = node.directory / "roots" / "w"
        other.mkdir(parents=True)
        (other / "mine").write_bytes(b"")
        with pytest.raises(InvalidInput):
            node.open(self.spec(node))
        assert (other / "mine").exists()

    def test_the_hidden_name_is_no_content(self, node: DirNode) -> None:
        workspace = node.open(self.spec(node)).workspace
        (workspace.root / ".chronicle").mkdir()
        (workspace.root / ".chronicle" / "x").write_bytes(b"")
        assert workspace.seal() == workspace.base

    def test_is_opened_once(self, node: DirNode, workspace: Workspace) -> None:
        with pytest.raises(Conflict):
            node.open(self.spec(node, workspace.base))
