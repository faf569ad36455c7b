"""The process that has a plain directory open dies before each system call that changes anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.system import atomic_files
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.dir import manifest, restore, walk
from chronicle.workspace.dir import workspace as dir_module
from chronicle.workspace.layer import opening, workspace_home
from chronicle.workspace.layer.disk import log
from tests.crash.workspace.dir_story import STORY, DirLife, Files

if TYPE_CHECKING:
    from pathlib import Path

CHANGING = {
    "write", "mkdir", "rename", "unlink", "rmdir", "link", "symlink", "mkfifo", "chmod", "fchmod", "chown", "utime",
    "setxattr", "removexattr", "fsync",
}  # fmt: skip
MODULES = (dir_module, manifest, restore, walk, log, opening, workspace_home, atomic_files)


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


def live(directory: Path, dies_at: int | None, *, torn: bool) -> list[str]:
    """Live through the story, die, and look at what is left; return the changing calls there were."""
    mortal = MortalOs(dies_at, torn=torn)
    life = DirLife(directory / "layers", directory / "root")
    directory.mkdir()
    before: Files = {}
    step = -1
    died = False
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", mortal)
        try:
            for step, act in enumerate(STORY):  # noqa: B007 - where it ended
                before = life.there()
                act(life)
        except Death:
            died = True
    assert died == (dies_at is not None)
    life.close()
    if died:
        again(life, before, f"step {step}, call {dies_at}")
    return mortal.calls


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


def copy(source: Path, target: Path) -> None:
    """Copy a directory with pipes, links and attributes."""
    subprocess.run(["cp", "-a", source, target], check=True, timeout=60)


@pytest.mark.parametrize("torn", [False, True], ids=["before", "torn"])
def test_death_at_every_change(tmp_path: Path, torn: bool) -> None:
    calls = live(tmp_path / "whole", None, torn=torn)
    assert len(calls) > 100
    for dies_at, call in enumerate(calls, start=1):
        if not torn or call == "write":
            live(tmp_path / str(dies_at), dies_at, torn=torn)
