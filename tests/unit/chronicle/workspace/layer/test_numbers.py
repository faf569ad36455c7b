"""Numbers of versions are given out once, whatever became of the versions: sealed, rolled back, taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.workspace.committed.workspace import CommittedWorkspace
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.port import LayerSpec, TreeRef

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Workspace:
    """A layer, and what the tests do with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = MemoryBlobStore()
        self.clock = ManualClock()
        self.epoch = 1
        self.layer, self.recovered = open_layer(self._spec(None), self.blobs, self.clock)
        self.base = self.layer.base
        self.layer.begin_turn(1)

    def _spec(self, base: TreeRef | None) -> LayerSpec:
        return LayerSpec(workspace_id="w", layers=self.directory, base=base, epoch=self.epoch, turn=1)

    def _place(self, path: str) -> tuple[DirNode, bytes]:
        directory, _, name = path.rpartition("/")
        node = self.layer.resolve(directory.encode())
        assert isinstance(node, DirNode)
        return node, name.encode()

    def mkdir(self, path: str) -> None:
        self.clock.advance(1)
        self.layer.make(*self._place(path), 0o40755, *self.layer.owner)

    def rmdir(self, path: str) -> None:
        self.clock.advance(1)
        self.layer.rmdir(*self._place(path))

    def rename(self, old: str, new: str) -> None:
        self.clock.advance(1)
        self.layer.rename(*self._place(old), *self._place(new))

    def commit(self) -> None:
        self.base = self.layer.seal()
        self.layer.adopt(self.base)

    def reopen(self) -> None:
        """Let the next process of the same epoch go on."""
        self.layer.close()
        self.layer, self.recovered = open_layer(self._spec(self.base), self.blobs, self.clock)

    def take_over(self) -> None:
        """Let a newer epoch open the workspace."""
        self.epoch += 1
        self.reopen()

    def numbers(self, path: str) -> list[int]:
        return [version.iteration for version in self.layer.history(path)]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path / "layers")
    yield made
    made.layer.close()


def test_what_was_rolled_back_before_a_seal_is_known_to_the_next_epoch(workspace: Workspace) -> None:
    workspace.mkdir("a")
    workspace.layer.rollback()
    workspace.mkdir("b")
    workspace.layer.seal()
    workspace.take_over()
    workspace.mkdir("a")
    workspace.mkdir("b")
    assert workspace.numbers("a") == [2]
    assert workspace.numbers("b") == [2]


@pytest.mark.parametrize("reopened", [False, True])
def test_what_was_rolled_back_before_a_seal_is_known_after_the_next_rollback(
    workspace: Workspace, reopened: bool
) -> None:
    workspace.mkdir("a")
    workspace.layer.rollback()
    workspace.mkdir("b")
    workspace.layer.seal()
    if reopened:
        workspace.reopen()
    workspace.layer.rollback()
    workspace.mkdir("a")
    assert workspace.numbers("a") == [2]


@pytest.mark.parametrize("reopened", [False, True])
def test_what_was_below_a_directory_whose_renaming_was_rolled_back_before_a_seal(
    workspace: Workspace, reopened: bool
) -> None:
    workspace.mkdir("a")
    workspace.mkdir("a/f")
    workspace.commit()
    workspace.rename("a", "b")
    assert workspace.numbers("b/f") == [1]
    workspace.layer.rollback()
    workspace.mkdir("c")
    workspace.layer.seal()
    if reopened:
        workspace.reopen()
    workspace.layer.rollback()
    workspace.mkdir("b")
    workspace.mkdir("b/f")
    assert workspace.numbers("b/f")[0] > 1


def test_what_follows_from_a_committed_renaming_keeps_its_number(workspace: Workspace) -> None:
    workspace.mkdir("a")
    workspace.mkdir("a/f")
    workspace.rename("a", "b")
    workspace.commit()
    assert workspace.numbers("b/f") == [1]
    workspace.rename("b", "c")
    assert workspace.numbers("b/f") == [1, 2]
    workspace.layer.rollback()
    assert workspace.numbers("b/f") == [1]
    workspace.rename("b", "c")
    assert workspace.numbers("b/f") == [1, 3]


def test_what_follows_from_a_committed_renaming_keeps_its_number_above_a_floor(workspace: Workspace) -> None:
    workspace.mkdir("a")
    workspace.mkdir("a/f")
    workspace.rename("a", "b")
    workspace.commit()
    workspace.rmdir("b/f")
    assert workspace.numbers("b/f") == [1, 2]
    workspace.layer.rollback()
    assert workspace.numbers("b/f") == [1]
    workspace.mkdir("c")
    workspace.commit()
    assert workspace.numbers("b/f") == [1]
    workspace.rmdir("b/f")
    assert workspace.numbers("b/f") == [1, 3]


def test_versions_that_were_made_and_undone_are_reported(workspace: Workspace) -> None:
    workspace.mkdir("a")
    workspace.rmdir("a")
    workspace.take_over()
    found = workspace.recovered
    assert found is not None
    assert found.tree_id == workspace.base.tree_id
    workspace.mkdir("a")
    assert workspace.numbers("a") == [3]


def test_a_layer_that_only_remembers_numbers_has_nothing_to_report(workspace: Workspace) -> None:
    workspace.mkdir("a")
    workspace.layer.rollback()
    workspace.take_over()
    assert workspace.recovered is None
    workspace.mkdir("a")
    assert workspace.numbers("a") == [2]


def test_who_asks_for_a_number_that_was_rolled_back_is_told_so(workspace: Workspace) -> None:
    workspace.mkdir("a")
    workspace.commit()
    workspace.rmdir("a")
    workspace.mkdir("a")
    workspace.layer.rollback()

    def said(number: int, committed: bool = False) -> str:
        opened = CommittedWorkspace(workspace.blobs, workspace.base) if committed else workspace.layer
        with pytest.raises(NotFound) as error:
            opened.at("a", number)
        return str(error.value)

    assert said(3) == "iteration 3 of 'a' was rolled back; the next ones that are there: 1"
    assert said(4) == "'a' has iteration 1 only; there is no iteration 4"
    assert said(0) == "'a' has iteration 1 only; there is no iteration 0"
    workspace.rmdir("a")
    workspace.mkdir("a")
    workspace.commit()
    assert workspace.numbers("a") == [1, 4, 5]
    for committed in (False, True):
        assert said(2, committed) == "iteration 2 of 'a' was rolled back; the next ones that are there: 1 and 4"
        assert said(4, committed) == (
            "'a' has no content at iteration 4, which is its deletion; what it was before: iteration 1"
        )
        assert said(6, committed) == "'a' has iterations 1 to 5; there is no iteration 6"
