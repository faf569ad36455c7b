"""Versions within a turn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from chronicle.testing.workspace_contract.contract import Contract, ops
from chronicle.testing.workspace_contract.files import files_in

if TYPE_CHECKING:
    from chronicle.testing.workspace_contract.contract import WorkspaceNode
    from chronicle.workspace.port import Workspace

__all__ = ["CloseContract"]


class CloseContract(Contract):
    """Each operation makes a version, for writing when the file is closed."""

    def test_each_close_is_a_version(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        for data in (b"one", b"two!", b""):
            file.write_bytes(data)
        with file.open("r+b") as opened:
            opened.write(b"x" * 100_000)
        with file.open("r+b") as opened:
            opened.seek(50_000)
            opened.write(b"y")
        assert ops(workspace, "a") == ["write"] * 5
        seen = [workspace.at("a", number).read() for number in range(1, 6)]
        assert seen[:3] == [b"one", b"two!", b""]
        assert seen[3] == b"x" * 100_000
        assert seen[4] == b"x" * 50_000 + b"y" + b"x" * 49_999
        workspace.adopt(workspace.seal())
        assert [workspace.at("a", number).read() for number in range(1, 6)] == seen

    def test_what_happened_within_a_turn(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "a").write_bytes(b"one")
        (root / "a").chmod(0o600)
        os.link(root / "a", root / "l")
        (root / "a").rename(root / "b")
        (root / "b").unlink()
        (root / "a").write_bytes(b"again")
        os.setxattr(root / "a", "user.one", b"1")
        assert ops(workspace, "a") == ["write", "mode", "delete", "write", "xattr"]
        assert ops(workspace, "b") == ["rename", "delete"]
        assert ops(workspace, "l") == ["link"]
        assert workspace.history("l")[0].source == "a"
        with workspace.at("a", 2) as first, workspace.at("b", 1) as moved:
            assert first.read() == moved.read() == b"one"

    def test_saving_by_rename(self, workspace: Workspace) -> None:
        root = workspace.root
        for data in (b"one", b"two", b"three"):
            (root / ".new").write_bytes(data)
            (root / ".new").rename(root / "a")
        assert ops(workspace, "a") == ["rename"] * 3
        assert [workspace.at("a", number).read() for number in (1, 2, 3)] == [b"one", b"two", b"three"]

    def test_a_renamed_directory(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "d" / "e").mkdir(parents=True)
        (root / "d" / "e" / "a").write_bytes(b"one")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        (root / "d").rename(root / "n")
        for sealed in (False, True):
            if sealed:
                workspace.adopt(workspace.seal())
                workspace.begin_turn(3)
            assert [(item.op, item.source) for item in workspace.history("n/e/a")] == [("rename", "d/e/a")]
            assert ops(workspace, "d/e/a") == ["write", "delete"]
            assert workspace.at("n/e/a", 1).read() == b"one"
        (root / "n" / "e" / "a").write_bytes(b"two")
        (root / "n").rename(root / "d")
        workspace.adopt(workspace.seal())
        assert ops(workspace, "n/e/a") == ["rename", "write", "delete"]
        assert ops(workspace, "d/e/a") == ["write", "delete", "rename"]
        assert workspace.at("d/e/a", 3).read() == b"two"

    def test_a_long_history(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        total = 0
        for turn in range(1, 8):
            workspace.begin_turn(turn)
            for _ in range(37):
                total += 1
                file.write_bytes(b"%d" % total)
            workspace.adopt(workspace.seal())
        history = workspace.history("a")
        assert [item.iteration for item in history] == list(range(1, total + 1))
        for number in (1, 2, 16, 17, 100, total - 20, total):
            assert workspace.at("a", number).read() == b"%d" % number

    def test_a_file_that_stays_open(self, node: WorkspaceNode, workspace: Workspace) -> None:
        with open(workspace.root / "a", "wb", buffering=0) as file:
            file.write(b"one")
            first = workspace.seal()
            workspace.adopt(first)
            workspace.begin_turn(2)
            file.write(b" two")
            second = workspace.seal()
            workspace.adopt(second)
        assert files_in(node.blobs, first.tree_id) == {"a": b"one"}
        assert files_in(node.blobs, second.tree_id) == {"a": b"one two"}
        assert [item.turn for item in workspace.history("a")] == [1, 2]
