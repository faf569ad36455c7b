"""Power is lost while a workspace is a plain directory: it opens, and a newer epoch begins with the last commit.

What is beside the directory is on a recorded disk (`tests.crash.power`). Of the directory itself nothing is synced, so
anything may be left of it: each file whole, empty, of zeros or gone, or the directory not there at all.
"""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from chronicle.system import atomic_files
from chronicle.system import boot as system_boot
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.dir import manifest
from chronicle.workspace.dir.workspace import DirWorkspace
from chronicle.workspace.layer import opening, workspace_home
from chronicle.workspace.layer.disk import log
from tests.crash.power import Disk, NoSyncOs, RecordingOs, RecordingPath
from tests.crash.workspace.dir_story import STORY, DirLife, copy

if TYPE_CHECKING:
    from pathlib import Path

MODULES = (manifest, log, opening, workspace_home, atomic_files)


def damage(root: Path, generator: random.Random) -> None:
    """Make of a directory what a loss of power may leave of it."""
    kind = generator.choice(["whole", "gone", "some", "some"])
    if kind == "gone" and root.is_dir():
        shutil.rmtree(root)
    if kind != "some":
        return
    for path in sorted(root.rglob("*"), reverse=True):
        match generator.choice(["whole", "whole", "empty", "zeros", "gone"]):
            case "empty" if path.is_file() and not path.is_symlink():
                path.write_bytes(b"")
            case "zeros" if path.is_file() and not path.is_symlink():
                path.write_bytes(bytes(path.stat().st_size))
            case "gone" if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            case "gone":
                path.unlink()
            case _:
                pass


class Outage:
    """Lives the story, and looks again and again at what a loss of power would leave."""

    def __init__(self, directory: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.cases = 0
        self._random = random.Random(seed)
        self._lost = directory / "lost"
        self._boot = directory / "boot_id"
        self._boot.write_text("before\n")
        patch.setattr(system_boot, "_BOOT_ID", self._boot)
        disk = directory / "disk"
        disk.mkdir()
        self.disk = Disk(disk)
        self.recorder = RecordingOs(self.disk)
        for module in MODULES:
            patch.setattr(module, "os", self.recorder)
        patch.setattr(RecordingPath, "disk", self.disk)
        self.life = DirLife(RecordingPath(disk) / "layers", directory / "root")
        self._looking = False
        self.recorder.before_call = self._sometimes

    def live(self) -> None:
        for step, act in enumerate(STORY):
            act(self.life)
            self.look(f"after step {step}")
        self.disk.check()
        self.recorder.before_call = lambda: None
        self.life.close()

    def _sometimes(self) -> None:
        if not self._looking and self._random.random() < 0.5:
            self.look("in the middle")

    def look(self, where: str) -> None:
        """Lose power now, and open what is left."""
        self._looking = True
        self._boot.write_text("after\n")
        life = self.life
        kept = life.root.with_name("kept")
        if life.root.is_dir():
            life.root.rename(kept)
        where = f"case {self.cases}, {where}"
        with pytest.MonkeyPatch.context() as patch:
            for module in MODULES:
                patch.setattr(module, "os", NoSyncOs())
            patch.setattr(RecordingPath, "disk", None)
            for newer in (False, True):
                self.disk.lose_power(self._random, self._lost)
                if kept.is_dir():
                    copy(kept, life.root)
                    damage(life.root, self._random)
                self.open_lost(life.epoch + newer, where)
                shutil.rmtree(self._lost)
                shutil.rmtree(life.root)
        if kept.is_dir():
            kept.rename(life.root)
        self._boot.write_text("before\n")
        self.cases += 1
        self._looking = False

    def open_lost(self, epoch: int, where: str) -> None:
        life = self.life
        committed = life.committed()
        opened = life.open_at(self._lost / life.layers.name, epoch)
        workspace = opened.workspace
        assert isinstance(workspace, DirWorkspace)
        if opened.recovered is not None:
            TreeChecker(life.blobs).check(opened.recovered)
        if epoch > life.epoch:
            assert life.there() == committed, where
            sealed = workspace.seal()
            assert life.base is None or sealed.tree_id == life.base.tree_id, where
        TreeChecker(life.blobs).check(workspace.seal())
        workspace.rollback()
        assert life.there() == committed, where
        workspace.close()


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_at_any_moment(tmp_path: Path, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        outage = Outage(tmp_path, seed, patch)
        outage.live()
    assert outage.cases > 40
