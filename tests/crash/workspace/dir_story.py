"""What a workspace in a plain directory goes through, for the tests that end it in the middle."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.dir.workspace import DirWorkspace, open_dir_workspace
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.workspace.port import Opened, TreeRef

__all__ = ["ELSEWHERE", "HERE", "STORY", "DirLife", "Files", "copy"]

Files = dict[str, "bytes | str | None"]


class DirLife:
    """A workspace, the journal that has its commits, and what may be in it."""

    def __init__(self, layers: Path, root: Path) -> None:
        self.layers = layers
        self.root = root
        self.blobs = MemoryBlobStore()
        self.base: TreeRef | None = None
        """What the journal has."""
        self.ref: TreeRef | None = None
        self.taken_over: Files | None = None
        """What is being moved to."""
        self.epoch = 1
        self.workspace: DirWorkspace | None = None

    def spec(self, layers: Path, epoch: int) -> LayerSpec:
        return LayerSpec("w", layers, self.base, epoch, 1)

    def open_at(self, layers: Path, epoch: int) -> Opened:
        return open_dir_workspace(self.spec(layers, epoch), self.blobs, self.root, ManualClock())

    def open(self) -> None:
        opened = self.open_at(self.layers, self.epoch)
        assert isinstance(opened.workspace, DirWorkspace)
        self.workspace = opened.workspace
        self.workspace.begin_turn(1)  # what was recovered was heard of

    def reopen(self, epoch: int) -> None:
        self.close()
        self.epoch = epoch
        self.open()

    def move(self, epoch: int) -> None:
        """Go on on another machine, which has nothing yet."""
        self.close()
        self.epoch = epoch
        self.layers = self.layers.with_name("elsewhere")
        self.root = self.root.with_name("root elsewhere")
        self.open()

    def close(self) -> None:
        if self.workspace is not None:
            self.workspace.close()
            self.workspace = None

    def opened(self) -> DirWorkspace:
        assert self.workspace is not None
        return self.workspace

    def seal(self) -> None:
        self.ref = self.opened().seal()

    def adopt(self) -> None:
        assert self.ref is not None
        self.base = self.ref
        self.opened().adopt(self.ref)

    def rollback(self) -> None:
        self.opened().rollback()

    def move_to_seal(self) -> None:
        """Take over what an attempt on the base sealed."""
        assert self.ref is not None
        self.taken_over = files_in(self.blobs, self.ref.tree_id)
        self.opened().move_to(self.ref)
        self.taken_over = None

    def committed(self) -> Files:
        """Return what the journal has."""
        return files_in(self.blobs, self.base.tree_id) if self.base is not None else {}

    def there(self) -> Files:
        """Return what is in the directory."""
        found: Files = {}
        for path in self.root.rglob("*"):
            if path.is_symlink():
                found[str(path.relative_to(self.root))] = str(path.readlink())
            else:
                found[str(path.relative_to(self.root))] = path.read_bytes() if path.is_file() else None
        return found


def copy(source: Path, target: Path) -> None:
    """Copy a directory with pipes, links, times and attributes, as ``cp -a`` does in ten times the time."""
    copies: dict[int, str] = {}

    def copy_file(old: str, new: str) -> None:
        status = os.lstat(old)
        copied = copies.setdefault(status.st_ino, new)
        if copied != new:
            os.link(copied, new)
        elif stat.S_ISFIFO(status.st_mode):
            os.mkfifo(new)
            shutil.copystat(old, new)
        else:
            shutil.copy2(old, new)

    shutil.copytree(source, target, symlinks=True, copy_function=copy_file)


def _first(life: DirLife) -> None:
    (life.root / "d" / "e").mkdir(parents=True)
    (life.root / "d" / "e" / "f").write_text("deep")
    (life.root / "a").write_text("one" * 3000)
    (life.root / "b").hardlink_to(life.root / "a")
    (life.root / "l").symlink_to("a")
    os.setxattr(life.root / "a", "user.x", b"1")


def _second(life: DirLife) -> None:
    shutil.rmtree(life.root / "d")
    (life.root / "d").write_text("a file now")
    (life.root / "a").write_text("two")
    (life.root / "l").unlink()
    (life.root / "l").mkdir()
    (life.root / "l" / "new").write_text("new")
    os.removexattr(life.root / "a", "user.x")
    os.mkfifo(life.root / "pipe")


def _third(life: DirLife) -> None:
    (life.root / "moved").write_text("and changed")


HERE: list[Callable[[DirLife], object]] = [
    lambda life: life.open(),
    _first,
    lambda life: life.seal(),
    lambda life: life.adopt(),
    _second,
    lambda life: life.rollback(),
    _second,
    lambda life: life.seal(),
    lambda life: life.rollback(),  # of what was sealed
    lambda life: (life.root / "a").write_text("given up"),
    lambda life: life.move_to_seal(),
    lambda life: (life.root / "a").write_text("given up"),
    lambda life: life.rollback(),
    _second,
    lambda life: life.reopen(1),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: (life.root / "a").write_text("given up"),
    lambda life: life.reopen(2),
    lambda life: (life.root / "a").rename(life.root / "moved"),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: shutil.rmtree(life.root),
    lambda life: life.rollback(),
]
ELSEWHERE: list[Callable[[DirLife], object]] = [
    lambda life: life.move(3),
    _third,
    lambda life: life.seal(),
    lambda life: life.adopt(),
]
STORY = HERE + ELSEWHERE
