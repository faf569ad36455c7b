"""The versions of a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput, NotFound
from chronicle.testing.workspace_contract.contract import Contract, ops
from chronicle.workspace.trees import tree

if TYPE_CHECKING:
    from chronicle.testing.workspace_contract.contract import WorkspaceNode
    from chronicle.workspace.port import Workspace

__all__ = ["HistoryContract"]


class HistoryContract(Contract):
    """Each turn that changes a path makes a version of it, which says what happened and has its content."""

    def test_history_of_a_file(self, node: WorkspaceNode, workspace: Workspace) -> None:
        file = workspace.root / "d" / "a"
        file.parent.mkdir()
        contents = [b"one", b"two, longer", b"three"]
        for turn, data in enumerate(contents, 1):
            workspace.begin_turn(turn)
            file.write_bytes(data)
            workspace.adopt(workspace.seal())
        history = workspace.history("d/a")
        assert [item.iteration for item in history] == [1, 2, 3]
        assert [item.op for item in history] == ["write", "write", "write"]
        assert [item.size for item in history] == [len(data) for data in contents]
        assert [item.turn for item in history] == [1, 2, 3]
        assert [item.timestamp for item in history] == sorted(item.timestamp for item in history)
        entry = tree.entry_at(node.blobs, workspace.base.tree_id, b"d/a")
        assert entry is not None
        assert entry.content is not None
        assert history[-1].hash == entry.content.id
        for item, data in zip(history, contents, strict=True):
            with workspace.at("d/a", item.iteration) as opened:
                assert opened.read() == data

    def test_history_says_what_happened(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "a").write_bytes(b"one")
        (root / "empty").write_bytes(b"")
        (root / "s").symlink_to("a")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        (root / "a").chmod(0o600)
        (root / "empty").unlink()
        workspace.adopt(workspace.seal())
        workspace.begin_turn(3)
        (root / "a").rename(root / "b")
        workspace.adopt(workspace.seal())
        assert ops(workspace, "a") == ["write", "mode", "delete"]
        assert ops(workspace, "b") == ["rename"]
        assert workspace.history("b")[0].source == "a"
        assert ops(workspace, "empty") == ["create", "delete"]
        assert ops(workspace, "s") == ["symlink"]
        gone = workspace.history("a")[-1]
        assert (gone.size, gone.hash, gone.turn) == (0, "", 3)
        with workspace.at("a", 1) as old, workspace.at("b", 1) as new:
            assert old.read() == new.read() == b"one"

    def test_history_goes_on_after_a_deletion(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        for turn, data in enumerate([b"one", None, b"two"], 1):
            workspace.begin_turn(turn)
            if data is None:
                file.unlink()
            else:
                file.write_bytes(data)
            workspace.adopt(workspace.seal())
        assert [(item.iteration, item.op) for item in workspace.history("a")] == [
            (1, "write"),
            (2, "delete"),
            (3, "write"),
        ]
        with pytest.raises(NotFound):
            workspace.at("a", 2)

    def test_history_travels(self, node: WorkspaceNode, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        workspace.adopt(workspace.seal())
        here = workspace.history("a")
        far = node.elsewhere()
        other = far.open(self.spec(far, workspace.base, turn=2)).workspace
        assert list(other.history("a")) == list(here)
        other.begin_turn(2)
        (other.root / "a").write_bytes(b"two")
        other.adopt(other.seal())
        assert [item.iteration for item in other.history("a")] == [1, 2]
        assert [item.iteration for item in workspace.history("a")] == [1]

    def test_what_never_was_has_no_history(self, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        workspace.seal()
        with pytest.raises(NotFound):
            workspace.history("b")
        with pytest.raises(NotFound):
            workspace.at("b", 1)
        with pytest.raises(NotFound):
            workspace.at("a", 99)
        for path in ("/a", "../a", "./a", "d/../a"):
            with pytest.raises(InvalidInput):
                workspace.history(path)
