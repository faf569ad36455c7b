"""A workspace that is opened when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import Unavailable
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.history.first_tree import put_first_tree
from chronicle.workspace.port import LayerSpec
from coordinator.host.lazy_workspace import LazyWorkspace

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.workspace.port import TreeRef, Workspace


class Opener:
    """Opens a workspace of plain files, and counts how often."""

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.blobs = MemoryBlobStore()
        self.first = put_first_tree(self.blobs, 1)
        self.opened: list[tuple[TreeRef, int]] = []

    def __call__(self, base: TreeRef, turn: int) -> Workspace:
        self.opened.append((base, turn))
        spec = LayerSpec("w", self._tmp_path / "layers", base, len(self.opened), turn)
        return open_dir_workspace(spec, self.blobs, self._tmp_path / "files", SystemClock()).workspace


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    return Opener(tmp_path)


def test_turns_without_files_do_not_open_it(opener: Opener) -> None:
    lazy = LazyWorkspace(opener.first, 1, opener)
    for turn in (2, 3):
        sealed = lazy.seal()
        assert sealed == lazy.base
        lazy.rollback()
        lazy.begin_turn(turn)
    lazy.close()
    assert (opener.opened, lazy.is_open) == ([], False)


def test_it_is_opened_once_in_the_turn_that_uses_it(opener: Opener) -> None:
    lazy = LazyWorkspace(opener.first, 1, opener)
    lazy.begin_turn(4)
    (lazy.root / "a").write_text("1")
    assert (lazy.root / "a").read_text() == "1"
    assert opener.opened == [(opener.first, 4)]
    tree = lazy.seal()
    assert tree != lazy.base
    lazy.adopt(tree)
    lazy.begin_turn(5)
    assert [version.turn for version in lazy.history("a")] == [4]
    (lazy.root / "a").write_text("2")
    lazy.rollback()
    assert (lazy.root / "a").read_text() == "1"
    lazy.close()

    again = LazyWorkspace(tree, 5, opener)
    assert again.seal() == tree
    again.move_to(tree)
    assert not again.is_open
    assert again.at("a", 1).read() == b"1"
    assert opener.opened[1:] == [(tree, 5)]
    again.close()


def test_it_is_not_opened_after_its_end(opener: Opener) -> None:
    lazy = LazyWorkspace(opener.first, 1, opener)
    lazy.close()
    with pytest.raises(Unavailable, match="its activation is over"):
        _ = lazy.root
    assert opener.opened == []
