"""Opening what is there already: by the same epoch, by a newer one, on another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput, StaleEpoch
from chronicle.testing.workspace_contract.contract import Contract
from chronicle.testing.workspace_contract.files import files_below, files_in, fill, spoil

if TYPE_CHECKING:
    from chronicle.testing.workspace_contract.contract import WorkspaceNode
    from chronicle.workspace.port import Workspace

__all__ = ["OpeningContract"]


class OpeningContract(Contract):
    """Nothing is lost on the way from one epoch to the next, and nothing that was not committed passes for it."""

    def test_the_same_epoch_goes_on(self, node: WorkspaceNode, workspace: Workspace) -> None:
        base = workspace.base
        expected = fill(workspace.root)
        workspace.close()
        opened = node.open(self.spec(node, base, turn=1))
        assert opened.recovered is None
        assert files_below(opened.workspace.root) == expected
        assert files_in(node.blobs, opened.workspace.seal().tree_id) == expected

    def test_a_newer_epoch_recovers(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        spoil(workspace.root)
        spoilt = files_below(workspace.root)
        workspace.close()
        opened = node.open(self.spec(node, ref, epoch=2, turn=2))
        assert opened.recovered is not None
        assert files_in(node.blobs, opened.recovered.tree_id) == spoilt
        assert files_below(opened.workspace.root) == expected
        assert opened.workspace.base == ref
        assert opened.workspace.seal().tree_id == ref.tree_id

    def test_a_newer_epoch_takes_over_what_is_clean(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.close()
        opened = node.open(self.spec(node, ref, epoch=7, turn=2))
        assert opened.recovered is None
        assert files_below(opened.workspace.root) == expected
        opened.workspace.close()
        with pytest.raises(StaleEpoch):
            node.open(self.spec(node, ref, epoch=2, turn=2))

    def test_a_commit_that_was_not_adopted(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.close()
        for epoch in (1, 2):
            opened = node.open(self.spec(node, ref, epoch=epoch, turn=2))
            assert opened.recovered is None
            assert opened.workspace.base == ref
            assert files_below(opened.workspace.root) == expected
            opened.workspace.close()

    def test_another_node_went_on(self, node: WorkspaceNode, workspace: Workspace) -> None:
        fill(workspace.root)
        first = workspace.seal()
        workspace.adopt(first)
        workspace.close()
        far = node.elsewhere()
        other = far.open(self.spec(far, first, epoch=2, turn=2)).workspace
        other.begin_turn(2)
        spoil(other.root)
        second = other.seal()
        other.adopt(second)
        expected = files_below(other.root)
        opened = node.open(self.spec(node, second, epoch=3, turn=3))
        assert opened.recovered is None
        assert files_below(opened.workspace.root) == expected
        assert opened.workspace.seal().tree_id == second.tree_id

    def test_numbers_are_not_given_out_again_after_recovery(self, node: WorkspaceNode, workspace: Workspace) -> None:
        file = workspace.root / "a"
        file.write_bytes(b"one")
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        file.write_bytes(b"two!")
        workspace.close()
        opened = node.open(self.spec(node, ref, epoch=2, turn=2))
        assert opened.recovered is not None
        workspace = opened.workspace
        workspace.begin_turn(2)
        (workspace.root / "a").write_bytes(b"three")
        workspace.adopt(workspace.seal())
        assert [item.iteration for item in workspace.history("a")] == [1, 3]

    def test_nor_after_several_recoveries_before_the_first_commit(
        self, node: WorkspaceNode, workspace: Workspace
    ) -> None:
        root = workspace.root
        (root / "a").write_bytes(b"one")
        (root / "d").mkdir()
        (root / "d" / "f").write_bytes(b"f")
        workspace.seal()
        (root / "d").rename(root / "e")
        workspace.seal()
        for epoch in (2, 3, 4):
            workspace.close()
            workspace = node.open(self.spec(node, epoch=epoch)).workspace
        workspace.begin_turn(1)
        root = workspace.root
        (root / "a").write_bytes(b"two")
        (root / "e").mkdir()
        (root / "e" / "f").write_bytes(b"another")
        workspace.adopt(workspace.seal())
        assert min(item.iteration for item in workspace.history("a")) > 1
        assert min(item.iteration for item in workspace.history("e/f")) > 1

    @pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "x" * 129, "sp ace"])
    def test_ids_that_cannot_be(self, node: WorkspaceNode, name: str) -> None:
        with pytest.raises(InvalidInput):
            node.open(self.spec(node, name=name))
