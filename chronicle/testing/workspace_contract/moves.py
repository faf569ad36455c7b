"""Moves to trees that a lost attempt sealed on top of the base."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Conflict, NotFound
from chronicle.ids import BlobId
from chronicle.testing.workspace_contract.contract import Contract
from chronicle.testing.workspace_contract.files import files_below, files_in, fill, spoil
from chronicle.workspace.port import TreeRef

if TYPE_CHECKING:
    from chronicle.testing.workspace_contract.contract import WorkspaceNode
    from chronicle.testing.workspace_contract.files import Model
    from chronicle.workspace.port import Iteration, Workspace

__all__ = ["MoveContract", "OpenFileMoveContract"]

Histories = dict[str, "list[Iteration]"]


def histories(workspace: Workspace, *files: Model) -> Histories:
    """Return the versions of all paths in some models."""
    found: Histories = {}
    for path in sorted({path for model in files for path in model}):
        try:
            found[path] = list(workspace.history(path))
        except NotFound:
            found[path] = []
    return found


class MoveContract(Contract):
    """The tree is there as though this attempt had sealed it, and the base stays the base."""

    def test_what_a_lost_attempt_sealed_is_taken_over(self, workspace: Workspace) -> None:
        before = fill(workspace.root)
        base = workspace.seal()
        workspace.adopt(base)
        workspace.begin_turn(2)
        spoil(workspace.root)
        sealed = workspace.seal()
        after = files_below(workspace.root)
        known = histories(workspace, before, after)
        workspace.rollback()
        assert files_below(workspace.root) == before
        workspace.move_to(sealed)
        assert files_below(workspace.root) == after
        assert os.stat(workspace.root / "empty").st_mode & 0o777 == 0o400
        assert os.stat(workspace.root / "a.txt").st_mtime_ns == 1
        assert histories(workspace, before, after) == known
        assert workspace.base == base
        assert workspace.seal() == sealed
        workspace.adopt(sealed)
        assert workspace.base == sealed
        assert files_below(workspace.root) == after

    def test_steps_forward(self, node: WorkspaceNode, workspace: Workspace) -> None:
        root = workspace.root
        (root / "kept").write_bytes(b"kept")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        sealed, seen = [], []
        for number in range(5):
            (root / "log").write_bytes(b"line\n" * (number + 1))
            (root / f"d{number}").mkdir()
            (root / f"d{number}" / "f").write_bytes(b"%d" % number)
            if number > 1:
                (root / f"d{number - 2}").rename(root / f"old{number - 2}")
            sealed.append(workspace.seal())
            seen.append((files_below(root), histories(workspace, files_below(root))))
        workspace.rollback()
        for number, ref in enumerate(sealed):
            if number % 2:  # what the attempt does between the steps again
                (root / "log").write_bytes(b"again")
                (root / "own").write_bytes(b"own")
            workspace.move_to(ref)
            files, known = seen[number]
            assert files_below(root) == files
            assert histories(workspace, files) == known
            assert workspace.seal() == ref
        (root / "log").write_bytes(b"the end")
        last = workspace.seal()
        assert files_in(node.blobs, last.tree_id) == {**seen[-1][0], "log": b"the end"}
        workspace.adopt(last)
        assert [item.turn for item in workspace.history("log")][-1] == 2

    def test_a_newer_epoch_takes_it_over(self, node: WorkspaceNode, workspace: Workspace) -> None:
        before = fill(workspace.root)
        base = workspace.seal()
        workspace.adopt(base)
        workspace.begin_turn(2)
        spoil(workspace.root)
        sealed = workspace.seal()
        after = files_below(workspace.root)
        known = histories(workspace, before, after)
        (workspace.root / "a.txt").write_bytes(b"not sealed")
        workspace.close()
        far = node.elsewhere()
        for machine in (node, far):
            opened = machine.open(self.spec(machine, base, epoch=2, turn=2))
            assert (opened.recovered is not None) == (machine is node)
            taking = opened.workspace
            taking.begin_turn(2)
            (taking.root / "own").write_bytes(b"before the step")
            taking.move_to(sealed)
            assert files_below(taking.root) == after
            assert histories(taking, before, after) == known
            assert taking.seal() == sealed
            taking.close()

    def test_in_the_first_turn(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        sealed = workspace.seal()
        workspace.close()
        far = node.elsewhere()
        for machine in (node, far):
            taking = machine.open(self.spec(machine, epoch=2, turn=1)).workspace
            taking.begin_turn(1)
            taking.move_to(sealed)
            assert files_below(taking.root) == expected
            assert taking.seal() == sealed
            taking.rollback()
            assert files_below(taking.root) == {}
            taking.move_to(sealed)
            taking.adopt(sealed)
            assert files_below(taking.root) == expected
            taking.close()

    def test_the_base_is_what_a_rollback_gives(self, workspace: Workspace) -> None:
        before = fill(workspace.root)
        base = workspace.seal()
        workspace.adopt(base)
        workspace.begin_turn(2)
        spoil(workspace.root)
        sealed = workspace.seal()
        workspace.rollback()
        workspace.move_to(sealed)
        (workspace.root / "later").write_bytes(b"later")
        workspace.rollback()
        assert files_below(workspace.root) == before
        assert workspace.seal().tree_id == base.tree_id
        workspace.move_to(sealed)
        workspace.move_to(base)
        assert files_below(workspace.root) == before
        assert workspace.seal().tree_id == base.tree_id

    def test_numbers_go_on_behind_those_that_were_lost(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        file.write_bytes(b"one")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        file.write_bytes(b"two!")
        sealed = workspace.seal()
        file.write_bytes(b"three")
        workspace.seal()
        assert [item.iteration for item in workspace.history("a")] == [1, 2, 3]
        workspace.rollback()
        workspace.move_to(sealed)
        assert [item.iteration for item in workspace.history("a")] == [1, 2]
        file.write_bytes(b"fourth")
        workspace.adopt(workspace.seal())
        assert [item.iteration for item in workspace.history("a")] == [1, 2, 4]
        assert workspace.at("a", 2).read() == b"two!"
        workspace.begin_turn(3)
        file.write_bytes(b"fifth!!")
        workspace.adopt(workspace.seal())
        assert [item.iteration for item in workspace.history("a")] == [1, 2, 4, 5]

    def test_what_is_open_again_is_where_it_moved(self, node: WorkspaceNode, workspace: Workspace) -> None:
        fill(workspace.root)
        base = workspace.seal()
        workspace.adopt(base)
        workspace.begin_turn(2)
        spoil(workspace.root)
        sealed = workspace.seal()
        workspace.rollback()
        workspace.move_to(sealed)
        after = files_below(workspace.root)
        workspace.close()
        again = node.open(self.spec(node, base, turn=2))
        assert again.recovered is None
        assert again.workspace.base == base
        assert files_below(again.workspace.root) == after
        assert again.workspace.seal() == sealed
        again.workspace.close()
        newer = node.open(self.spec(node, base, epoch=2, turn=2))
        assert newer.recovered == sealed
        assert newer.workspace.seal().tree_id == base.tree_id
        newer.workspace.begin_turn(2)
        newer.workspace.move_to(sealed)
        newer.workspace.close()
        committed = node.open(self.spec(node, sealed, epoch=3, turn=3))
        assert committed.recovered is None
        assert files_below(committed.workspace.root) == after

    def test_what_it_cannot_move_to(self, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        first = workspace.seal()
        workspace.adopt(first)
        workspace.begin_turn(2)
        (workspace.root / "a").write_bytes(b"two!")
        sealed = workspace.seal()
        workspace.adopt(sealed)
        workspace.begin_turn(3)
        (workspace.root / "a").write_bytes(b"three")
        with pytest.raises(NotFound):
            workspace.move_to(TreeRef(BlobId("0" * 64), BlobId("1" * 64)))
        with pytest.raises(Conflict, match="on top of another commit"):
            workspace.move_to(first)
        assert (workspace.root / "a").read_bytes() == b"three"
        assert workspace.base == sealed


class OpenFileMoveContract(Contract):
    """Open files go on, in presentations that see each operation."""

    def test_open_files_have_the_content_of_the_tree(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "same").write_bytes(b"same")
        (root / "changed").write_bytes(b"1" * 5000)
        (root / "gone").write_bytes(b"gone")
        (root / "d").mkdir()
        (root / "d" / "moved").write_bytes(b"moved")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        (root / "changed").write_bytes(b"2" * 6000)
        (root / "gone").unlink()
        (root / "d" / "moved").rename(root / "there")
        (root / "made").write_bytes(b"made")
        sealed = workspace.seal()
        workspace.rollback()
        number = os.stat(root / "same").st_ino
        opened = {
            name: open(root / name, "r+b", buffering=0)  # noqa: SIM115 - closed below
            for name in ("same", "changed", "gone", "d/moved")
        }
        assert opened["changed"].read(3) == b"111"
        opened["same"].write(b"SA")  # given up
        made = open(root / "made", "wb", buffering=0)  # noqa: SIM115
        made.write(b"by this attempt")
        workspace.move_to(sealed)
        assert opened["changed"].read(3) == b"222"
        opened["same"].seek(0)
        assert opened["same"].read(9) == b"same"
        assert opened["gone"].read(9) == b"gone"
        assert opened["d/moved"].read(9) == b"moved"
        assert os.stat(root / "same").st_ino == number
        assert (root / "made").read_bytes() == b"made"
        assert workspace.seal() == sealed
        opened["d/moved"].seek(0)
        opened["d/moved"].write(b"MOVED")
        opened["same"].seek(0)
        opened["same"].write(b"SAME")
        made.seek(0)
        made.write(b"MADE")
        for file in (*opened.values(), made):
            file.close()
        assert {name: (root / name).read_bytes() for name in os.listdir(root) if name != "d"} == {
            "same": b"SAME",
            "changed": b"2" * 6000,
            "there": b"MOVED",
            "made": b"MADE",
        }
        assert os.listdir(root / "d") == []
        assert [item.iteration for item in workspace.history("same")] == [1, 2]
        workspace.adopt(workspace.seal())

    def test_a_log_that_is_open_for_appending(self, workspace: Workspace) -> None:
        log = workspace.root / "log"
        with open(log, "ab", buffering=0) as file:
            file.write(b"first")
            first = workspace.seal()
            file.write(b", second and all that follows")
            second = workspace.seal()
        workspace.rollback()
        with open(log, "ab", buffering=0) as file:
            file.write(b"fi")
            workspace.move_to(second)
            file.write(b", third")
            assert log.read_bytes() == b"first, second and all that follows, third"
            workspace.move_to(first)
            file.write(b", again")
            assert log.read_bytes() == b"first, again"
        workspace.adopt(workspace.seal())

    def test_what_each_attempt_opens_again(self, node: WorkspaceNode, workspace: Workspace) -> None:
        """An attempt makes its files again, comes to what the one before it sealed, and gets one step further."""
        base, expected = workspace.base, b""
        sealed: list[TreeRef] = []
        for attempt in range(5):
            with open(workspace.root / "log", "ab", buffering=0) as file:
                for ref in sealed:
                    workspace.move_to(ref)
                    file.write(b"after %d\n" % len(sealed))
                    (workspace.root / "own").write_bytes(b"own")
                sealed.append(workspace.seal())
                file.write(b"lost")
            expected = (workspace.root / "log").read_bytes().removesuffix(b"lost")
            workspace.close()
            workspace = node.open(self.spec(node, base, epoch=attempt + 2, turn=1)).workspace
            workspace.begin_turn(1)
        workspace.move_to(sealed[-1])
        assert (workspace.root / "log").read_bytes() == expected
        assert [expected.count(b"after"), files_in(node.blobs, sealed[-1].tree_id)["own"]] == [4, b"own"]

    def test_names_of_one_file(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "d").mkdir()
        (root / "a").write_bytes(b"one")
        os.link(root / "a", root / "d" / "b")
        (root / "single").write_bytes(b"single")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        (root / "a").unlink()
        os.link(root / "d" / "b", root / "c")
        os.link(root / "single", root / "d" / "second")
        (root / "d").rename(root / "e")
        (root / "c").write_bytes(b"two!")
        sealed = workspace.seal()
        expected = files_below(root)
        workspace.rollback()
        with open(root / "a", "rb", buffering=0) as file:
            workspace.move_to(sealed)
            assert file.read() == b"two!"
        assert files_below(root) == expected
        assert os.path.samefile(root / "c", root / "e" / "b")
        assert os.path.samefile(root / "single", root / "e" / "second")
        assert os.stat(root / "c").st_nlink == os.stat(root / "single").st_nlink == 2
        assert workspace.seal() == sealed
        (root / "e" / "second").write_bytes(b"both")
        assert (root / "single").read_bytes() == b"both"
        (root / "c").unlink()
        workspace.adopt(workspace.seal())
        assert os.stat(root / "e" / "b").st_nlink == 1
