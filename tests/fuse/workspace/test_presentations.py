"""Going back and forking through a mount, by calls and in a plain directory: equal trees, and nothing stored twice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import SystemClock
from chronicle.repository import Repository
from chronicle.workspace.dir.restore import restore as restore_directory
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.port import LayerSpec
from tests.fuse.command import Command, running_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


def fill(root: Path) -> None:
    (root / "dir" / "below").mkdir(parents=True)
    (root / "dir" / "large").write_bytes(os.urandom(2_000_000))
    (root / "dir" / "below" / "small").write_text("small\n")
    (root / "dir").chmod(0o700)
    os.link(root / "dir" / "large", root / "linked")
    (root / "symlink").symlink_to("dir/large")
    os.mkfifo(root / "fifo", 0o640)
    os.setxattr(root / "linked", "user.note", b"\0\1")


def spoil(root: Path) -> None:
    (root / "linked").unlink()
    (root / "linked").mkdir()
    (root / "dir" / "large").write_text("other\n")
    (root / "dir" / "below").rename(root / "moved")
    (root / "fifo").unlink()
    (root / "symlink").unlink()


def test_restore_and_fork_give_the_same_trees_everywhere(chronicle: Command, tmp_path: Path) -> None:
    root = chronicle.mount()
    fill(root)
    first = chronicle.json("commit", "-m", "first")["tree_id"]
    spoil(root)
    chronicle.on_store("commit", "-m", "second")
    for name in ("by-calls", "plain", "mounted"):
        chronicle.on_store("fork", name, "@2")
    stored = chronicle.json("stats")["unique_bytes"]

    chronicle.on_store("restore", "@1")
    assert chronicle.json("commit", "-m", "third")["tree_id"] == first
    chronicle("mount", chronicle.store, tmp_path / "mounted", "-w", "mounted")
    chronicle.on_store("restore", "@1", "-w", "mounted")
    assert chronicle.json("commit", "-m", "third", "-w", "mounted")["tree_id"] == first

    repository = Repository(chronicle.store)
    then = repository.commit_of("main", "1")
    assert then is not None
    with repository.used("by-calls") as workspace:
        workspace.restore(then)
        assert workspace.seal().tree_id == first

    with repository.blobs() as blobs:
        spec = LayerSpec("plain", repository.layers, repository.commit_of("plain", "last"), 1, 3)
        directory = open_dir_workspace(spec, blobs, tmp_path / "plain", SystemClock()).workspace
        commit = read_root(blobs, then.oplog_id)
        owner = os.geteuid(), os.getegid()
        restore_directory(os.fsencode(tmp_path / "plain"), blobs, commit.tree_id, commit.root, {}, owner)
        assert directory.seal().tree_id == first
        directory.close()

    assert chronicle.json("stats")["unique_bytes"] - stored < 30_000  # of 2 MB, four times over
