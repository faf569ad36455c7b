"""The process that has a plain directory open dies before each system call that changes anything.

Not before syncs: what a process leaves that dies there is what it leaves before the next call.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.system import atomic_files
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.dir import manifest, restore, walk
from chronicle.workspace.dir import workspace as dir_module
from chronicle.workspace.layer import opening, workspace_home
from chronicle.workspace.layer.disk import log
from tests.crash.workspace.dir_story import ELSEWHERE, HERE, DirLife, Files, copy
from tests.layers import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from chronicle.workspace.port import TreeRef

CHANGING = {
    "write", "mkdir", "rename", "unlink", "rmdir", "link", "symlink", "mkfifo", "chmod", "fchmod", "chown", "utime",
    "setxattr", "removexattr",
}  # fmt: skip
MODULES = (dir_module, manifest, restore, walk, log, opening, workspace_home, atomic_files)


class Part(NamedTuple):
    """A part of the story, and what of the one before is there: the blobs, and what the journal has."""

    acts: Sequence[Callable[[DirLife], object]]
    blobs: MemoryBlobStore
    base: TreeRef | None


class Death(BaseException):
    """The process is gone."""


class MortalOs:
    """``os``, until a number of changing calls were made. Afterwards nothing changes any more."""

    def __init__(self, dies_at: int | None, *, torn: bool) -> None:
        self.calls: list[str] = []
        self.dies_at = dies_at
        self.torn = torn

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING and name != "open":
            return real

        def call(*arguments: Any, **keywords: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_CREAT | os.O_TRUNC):
                return real(*arguments, **keywords)
            self.calls.append(name)
            if self.dies_at is not None and len(self.calls) >= self.dies_at:
                if self.torn and name == "write" and len(self.calls) == self.dies_at:
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise Death
            return real(*arguments, **keywords)

        return call


def live(directory: Path, part: Part, dies_at: int | None, *, torn: bool) -> tuple[list[str], Part]:
    """Live through a part of the story, die, and look at what is left; return the changing calls, and the next part."""
    mortal = MortalOs(dies_at, torn=torn)
    life = DirLife(directory / "layers", directory / "root")
    life.blobs, life.base = copy_of(part.blobs), part.base
    directory.mkdir()
    before: Files = {}
    step = -1
    died = False
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", mortal)
        try:
            for step, act in enumerate(part.acts):  # noqa: B007 - where it ended
                before = life.there()
                act(life)
        except Death:
            died = True
    assert died == (dies_at is not None)
    life.close()
    if died:
        again(life, before, f"step {step} of {len(part.acts)}, call {dies_at}")
    return mortal.calls, Part(ELSEWHERE, life.blobs, life.base)


def again(life: DirLife, before: Files, where: str) -> None:
    """Open what is left: nothing that was there is lost, and nothing half done is taken for work."""
    life.layers.mkdir(exist_ok=True)
    taken, lost = life.layers.with_name("taken"), life.layers.with_name("lost")
    for layers in (taken, lost):
        copy(life.layers, layers)
    kept = life.root.with_name("kept")
    if life.root.is_dir():
        copy(life.root, kept)
    committed = life.committed()
    opened = life.open_at(life.layers, life.epoch)
    found = life.there()
    assert found in (before, committed, life.taken_over), where
    assert opened.recovered is None or life.epoch == 2, where
    ref = opened.workspace.seal()
    TreeChecker(life.blobs).check(ref)
    opened.workspace.adopt(ref)
    opened.workspace.close()
    for layers, is_lost in ((taken, False), (lost, True)):
        if life.root.is_dir():
            shutil.rmtree(life.root)
        if kept.is_dir():
            copy(kept, life.root)
        if is_lost:
            (layers / "w" / "dir").unlink(missing_ok=True)
        opened = life.open_at(layers, life.epoch + 1)
        assert life.there() == committed, where
        if opened.recovered is not None:
            TreeChecker(life.blobs).check(opened.recovered)
            assert files_in(life.blobs, opened.recovered.tree_id) in (before, life.taken_over), where
        sealed = opened.workspace.seal()
        assert life.base is None or sealed.tree_id == life.base.tree_id, where
        opened.workspace.close()


@pytest.mark.parametrize("torn", [False, True], ids=["before", "torn"])
def test_death_at_every_change(tmp_path: Path, torn: bool) -> None:
    part = Part(HERE, MemoryBlobStore(), None)
    every: list[str] = []
    for name in ("here", "elsewhere"):
        calls, following = live(tmp_path / name, part, None, torn=torn)
        for dies_at, call in enumerate(calls, start=1):
            if not torn or call == "write":
                live(tmp_path / f"{name} {dies_at}", part, dies_at, torn=torn)
        every += calls
        part = following
    assert len(every) > 250
