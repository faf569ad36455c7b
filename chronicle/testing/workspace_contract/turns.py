"""Turns: sealed, adopted, rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput
from chronicle.testing.workspace_contract.contract import Contract
from chronicle.testing.workspace_contract.files import files_below, files_in, fill, spoil
from chronicle.workspace.history.oplog import commit_at, read_root

if TYPE_CHECKING:
    from chronicle.testing.workspace_contract.contract import WorkspaceNode
    from chronicle.workspace.port import Workspace

__all__ = ["TurnContract"]


class TurnContract(Contract):
    """Sealed content stays, rolled back content is gone, and numbers of versions only grow."""

    def test_changes_after_the_seal_stay_changed(self, node: WorkspaceNode, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        first = workspace.seal()
        (workspace.root / "a").write_bytes(b"two!")
        (workspace.root / "b").write_bytes(b"new")
        workspace.adopt(first)
        assert files_in(node.blobs, first.tree_id) == {"a": b"one"}
        second = workspace.seal()
        assert files_in(node.blobs, second.tree_id) == {"a": b"two!", "b": b"new"}
        workspace.adopt(second)

    def test_each_commit_is_of_a_turn_of_its_own(self, node: WorkspaceNode, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        first = workspace.seal()
        (workspace.root / "b").write_bytes(b"after the seal")
        workspace.adopt(first)
        (workspace.root / "c").write_bytes(b"before anybody has begun a turn")
        second = workspace.seal()
        workspace.adopt(second)
        workspace.begin_turn(1)  # that is over
        (workspace.root / "d").write_bytes(b"four")
        third = workspace.seal()
        workspace.adopt(third)
        assert [workspace.history(path)[-1].turn for path in "abcd"] == [1, 2, 2, 3]
        commits = read_root(node.blobs, third.oplog_id).commits
        assert [commit_at(node.blobs, commits, turn) for turn in (1, 2)] == [(1, first), (2, second)]
        assert read_root(node.blobs, third.oplog_id).committed_turn == 3

    def test_what_was_sealed_in_one_turn_and_is_committed_in_another_is_of_the_other(
        self, node: WorkspaceNode, workspace: Workspace
    ) -> None:
        (workspace.root / "a").write_bytes(b"one")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        (workspace.root / "a").write_bytes(b"two!")
        sealed = workspace.seal()
        workspace.begin_turn(3)
        ref = workspace.seal()
        assert ref.tree_id == sealed.tree_id
        assert [read_root(node.blobs, of.oplog_id).turn for of in (sealed, ref)] == [2, 3]
        workspace.adopt(ref)
        assert [item.iteration for item in workspace.history("a")] == [1, 2]

    def test_a_turn_is_after_the_one_that_was_opened(self, node: WorkspaceNode, workspace: Workspace) -> None:
        workspace.begin_turn(4)
        (workspace.root / "a").write_bytes(b"one")
        workspace.adopt(workspace.seal())
        far = node.elsewhere()
        other = far.open(self.spec(far, workspace.base, turn=2)).workspace
        (other.root / "a").write_bytes(b"two!")
        assert read_root(far.blobs, other.seal().oplog_id).turn == 5
        assert [item.turn for item in other.history("a")] == [4, 5]

    def test_only_what_was_sealed_last_is_adopted(self, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        first = workspace.seal()
        (workspace.root / "a").write_bytes(b"other")
        workspace.seal()
        with pytest.raises(InvalidInput):
            workspace.adopt(first)

    def test_rollback_gives_back_the_base(self, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        spoil(workspace.root)
        workspace.rollback()
        assert files_below(workspace.root) == expected
        assert workspace.seal().tree_id == ref.tree_id
        assert workspace.base == ref

    def test_rollback_of_what_was_sealed(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        spoil(workspace.root)
        failed = workspace.seal()
        workspace.rollback()
        assert files_below(workspace.root) == expected
        assert files_in(node.blobs, failed.tree_id) != expected
        (workspace.root / "a.txt").write_bytes(b"again")
        assert files_in(node.blobs, workspace.seal().tree_id) == {**expected, "a.txt": b"again"}

    def test_numbers_are_not_given_out_again(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        file.write_bytes(b"one")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        file.write_bytes(b"two!")
        workspace.seal()
        given = workspace.history("a")[-1].iteration
        assert given == 2
        workspace.rollback()
        assert [item.iteration for item in workspace.history("a")] == [1]
        file.write_bytes(b"three")
        workspace.adopt(workspace.seal())
        assert [item.iteration for item in workspace.history("a")] == [1, 3]
