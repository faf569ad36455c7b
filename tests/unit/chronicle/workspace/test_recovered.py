"""What opening a workspace had to discard is reported again until its opener begins a turn: it may die meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.workspace.api.workspace import open_api_workspace
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.gc_roots import layer_refs
from chronicle.workspace.port import LayerSpec, TreeRef
from chronicle.workspace.trees.tree import entry_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.workspace.api.workspace import ApiWorkspace
    from chronicle.workspace.port import Workspace


class Node:
    """Opens one workspace as one of its presentations."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.blobs = MemoryBlobStore()
        self.layers = directory / "layers"
        self._files = directory / "files"
        self._kind = kind
        self.base: TreeRef | None = None
        self.turn = 1

    def open(self, epoch: int) -> tuple[ApiWorkspace | Workspace, TreeRef | None]:
        spec = LayerSpec("w", self.layers, self.base, epoch, self.turn)
        if self._kind == "api":
            workspace = open_api_workspace(spec, self.blobs)
            return workspace, workspace.recovered
        opened = open_dir_workspace(spec, self.blobs, self._files, SystemClock())
        return opened.workspace, opened.recovered

    def write(self, workspace: ApiWorkspace | Workspace, data: bytes) -> None:
        if self._kind == "api":
            workspace.write("a", data)  # type: ignore[union-attr]
        else:
            (self._files / "a").write_bytes(data)

    def told(
        self, epoch: int, then: Callable[[ApiWorkspace | Workspace], object] = lambda _workspace: None
    ) -> bytes | None:
        """What opening it says that there was."""
        workspace, recovered = self.open(epoch)
        assert recovered is None or recovered in list(layer_refs(self.layers)), "it is not to be collected meanwhile"
        then(workspace)
        workspace.close()
        if recovered is None:
            return None
        entry = entry_at(self.blobs, recovered.tree_id, b"a")
        assert entry is not None
        assert entry.content is not None
        return self.blobs.get(entry.content.id)


@pytest.fixture(params=["api", "dir"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Node:
    return Node(tmp_path, request.param)


@pytest.mark.parametrize("committed", [False, True])
def test_it_is_told_until_a_turn_is_begun(node: Node, committed: bool) -> None:
    workspace, _ = node.open(1)
    if committed:
        node.write(workspace, b"one")
        node.base = workspace.seal()
        workspace.adopt(node.base)
    node.write(workspace, b"beyond it")
    workspace.close()
    for epoch in (2, 2, 3, 4, 4):
        assert node.told(epoch) == b"beyond it"
    assert node.told(4, lambda workspace: workspace.rollback()) == b"beyond it"
    assert node.told(4, lambda workspace: workspace.seal()) == b"beyond it"
    assert node.told(4, lambda workspace: workspace.begin_turn(1)) == b"beyond it"
    for epoch in (4, 5):
        assert node.told(epoch) is None


def test_a_committed_tree_that_the_journal_has_lost_is_told(node: Node) -> None:
    workspace, _ = node.open(1)
    trees = []
    for turn in (1, 2, 3):
        workspace.begin_turn(turn)
        node.write(workspace, b"of turn %d" % turn)
        trees.append(workspace.seal())
        workspace.adopt(trees[-1])
    workspace.begin_turn(4)
    workspace.close()
    node.base, node.turn = trees[0], 2  # the journal was restored as it was after turn 1
    for epoch in (5, 6):
        assert node.told(epoch) == b"of turn 3"
    assert node.told(6, lambda workspace: workspace.begin_turn(2)) == b"of turn 3"
    assert node.told(6) is None
    node.base, node.turn = trees[2], 4  # a layer that has missed commits has lost nothing
    assert node.told(7) is None


def test_a_new_workspace_that_never_committed_has_lost_nothing(node: Node) -> None:
    assert node.told(1) is None
    assert node.told(2) is None


def test_what_came_later_is_told_instead(node: Node) -> None:
    workspace, _ = node.open(1)
    node.write(workspace, b"first")
    workspace.close()
    workspace, recovered = node.open(2)
    assert recovered is not None
    node.write(workspace, b"second")
    workspace.close()
    assert node.told(3) == b"second"
    assert node.told(3) == b"second"


def test_what_was_heard_of_is_not_needed_any_more(node: Node) -> None:
    workspace, _ = node.open(1)
    node.write(workspace, b"first")
    workspace.close()
    workspace, recovered = node.open(2)
    workspace.begin_turn(1)
    node.write(workspace, b"second")
    workspace.adopt(workspace.seal())
    assert recovered not in list(layer_refs(node.layers))
    workspace.close()
