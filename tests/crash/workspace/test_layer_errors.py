"""Each system call of what ends a turn, and of opening a layer, fails once; the layer goes on, and is opened again.

What failed did nothing or all of what it does, in memory and on disk alike: whatever comes next is there when the layer
is opened again, by one who closed it and by one who died.
"""

# ruff: noqa: PTH208 - descriptors are listed

from __future__ import annotations

import errno
import gc
import io
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Corrupt
from chronicle.system import boot as system_boot
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.layer.disk import log
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.crash.workspace.test_layer_deaths import STORY, Life, look
from tests.layers import abandon, copy_of, file_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.workspace.test_layer_deaths import State

FAILURES: Final = {
    "open": errno.EMFILE,
    "write": errno.ENOSPC,
    "pwrite": errno.ENOSPC,
    "pread": errno.EIO,
    "ftruncate": errno.EIO,
    "truncate": errno.EIO,
    "mkdir": errno.ENOSPC,
    "rename": errno.ENOSPC,
    "unlink": errno.EIO,
    "fsync": errno.EIO,
    "fdatasync": errno.EIO,
    "listdir": errno.EMFILE,
    "scandir": errno.EMFILE,
}


class FailingOs:
    """Lets calls of ``os`` fail: one, or it and all of a few kinds after it until `stop`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.failed: str | None = None
        self._fails_at: int | None = None
        self._counts = False
        for name in FAILURES:
            patch.setattr(os, name, self._failing(name, getattr(os, name)))
        patch.setattr(io, "open", self._failing("open", io.open))

    def start(self, fails_at: int | None) -> None:
        self.calls, self.failed = 0, None
        self._fails_at = fails_at
        self._counts = True

    def stop(self) -> None:
        self._counts = False

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if self._counts:
                self.calls += 1
                # What failed to be written cannot be cut off either: the worst that one fault can do.
                if self.calls == self._fails_at or (self.failed == "write" and name == "ftruncate"):
                    self.failed = self.failed or name
                    if name == "write":
                        real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                    raise OSError(FAILURES[name], "made to fail", name)
            return real(*arguments, **keywords)

        return call


class Lived(NamedTuple):
    """A story up to where something is made to fail."""

    life: Life
    before: State


def live(directory: Path, steps: int) -> Lived:
    blobs = MemoryBlobStore()
    opened, _ = open_layer(LayerSpec("w", directory, None, 1, 1), blobs, ManualClock())
    life = Life(opened, blobs, opened.base, {})
    for act in STORY[:steps]:
        act(life)
    return Lived(life, look(opened))


def go_on(life: Life) -> State:
    """Use a layer, whatever it holds."""
    life.handles.clear()
    layer = life.layer
    layer.begin_turn(layer.turn + 1)
    life.create("after")
    life.write("after", 0, b"written after the failure")
    layer.fsync(file_at(layer, "after"))
    life.close("after")
    for path in ("a", "e/b", "d/b", "l"):
        if layer.resolve(path.encode()) is not None:
            life.open(path)
            life.write(path, 1, b"changed after the failure")
            life.close(path)
    life.rename("after", "later")
    return look(layer)


def ends(life: Life, expected: State, *, dies: bool) -> None:
    """End the process, and open the layer again: it has what it had, and goes on."""
    base = life.layer.commits.base
    epoch = life.layer.epoch
    for handle in list(life.layer._handles):
        life.layer.release(handle)
    if dies:
        abandon(life.layer)
    else:
        life.layer.close()
    directory = life.layer.directory.parent.parent
    again, recovered = open_layer(LayerSpec("w", directory, base, epoch, 1), life.blobs, ManualClock())
    try:
        assert recovered is None
        assert look(again) == expected
        ref = again.seal()
        assert files_in(life.blobs, ref.tree_id) == {
            path: value[0] if value is not None else None for path, value in expected[0].items()
        }
        again.adopt(ref)
        assert look(again) == expected
    finally:
        again.close()


def adopt_sealed(life: Life) -> None:
    assert life.ref is not None
    life.layer.adopt(life.ref)


def roll_back(life: Life) -> None:
    life.layer.rollback()


def seal(life: Life) -> None:
    life.ref = life.layer.seal()


def next_turn(life: Life) -> None:
    life.layer.begin_turn(99)


def go_back(life: Life) -> None:
    life.layer.restore(life.first)


def step(index: int) -> int:
    """Return how many steps come before the ``index``-th seal of the story."""
    seals = [at for at, act in enumerate(STORY) if "seal" in act.__code__.co_names]
    return seals[index]


ACTS: Final = {
    "seal": (seal, step(0)),
    "seal-again": (seal, step(1)),
    "adopt": (adopt_sealed, step(1) + 1),
    "adopt-with-changes": (adopt_sealed, step(1) + 3),
    "rollback": (roll_back, step(1) - 1),
    "rollback-of-sealed": (roll_back, step(1) + 3),
    "rollback-removals": (roll_back, step(2)),
    "turn": (next_turn, step(1) - 1),
    "restore": (go_back, step(-1) + 1),
}


@pytest.mark.parametrize("dies", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "tried-again"])
@pytest.mark.parametrize("name", ACTS)
def test_an_error_at_every_call(tmp_path: Path, name: str, again: bool, dies: bool) -> None:
    act, steps = ACTS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_BATCH_FRAMES", 3)
        failing = FailingOs(patch)
        life, before = live(tmp_path / "whole", steps)
        failing.start(None)
        act(life)
        failing.stop()
        after = look(life.layer)
        ends(life, go_on(life), dies=dies)
        for fails_at in range(1, failing_calls(failing) + 1):
            life, _ = live(tmp_path / str(fails_at), steps)
            failing.start(fails_at)
            with suppress(OSError):
                act(life)
            failing.stop()
            where = f"call {fails_at}, {failing.failed}"
            assert failing.failed, where
            assert look(life.layer) in (before, after), where
            if again:
                act(life)
                assert look(life.layer) == after, where
            try:
                ends(life, go_on(life), dies=dies)
            except (AssertionError, Corrupt) as error:
                raise AssertionError(where) from error


def failing_calls(failing: FailingOs) -> int:
    assert failing.calls >= 1
    return failing.calls


class Opening(NamedTuple):
    """What is opened: what a layer's process left after so many steps."""

    steps: int
    epoch: int = 1
    base: str = "own"
    """``own``: the layer's; ``sealed``: what it sealed last."""
    power_lost: bool = False


OPENINGS: Final = {
    "first": Opening(0),
    "in-a-turn": Opening(step(1) - 1),
    "sealed": Opening(step(1) + 3),
    "committed": Opening(step(1) + 3, base="sealed"),
    "in-a-turn-without-power": Opening(step(1) - 1, power_lost=True),
    "next-epoch": Opening(step(1) - 1, epoch=2),
    "next-epoch-sealed": Opening(step(1) + 3, epoch=2),
    "next-epoch-committed": Opening(step(1) + 3, epoch=2, base="sealed"),
    "next-epoch-without-power": Opening(step(1) - 1, epoch=2, power_lost=True),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_an_error_at_every_call_of_opening(tmp_path: Path, name: str) -> None:
    opening = OPENINGS[name]
    boot = tmp_path / "boot"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_BATCH_FRAMES", 3)
        patch.setattr(system_boot, "_BOOT_ID", boot)
        failing = FailingOs(patch)

        spec, left_blobs, made = LayerSpec("w", tmp_path, None, 1, 1), MemoryBlobStore(), tmp_path / "made"
        boot.write_text("one")
        if opening.steps:
            life, _ = live(made, opening.steps)
            base = life.layer.base if opening.base == "own" else life.ref
            abandon(life.layer)
            if opening.power_lost:
                boot.write_text("two")
            spec, left_blobs = LayerSpec("w", tmp_path, base, opening.epoch, 9), life.blobs

        def left(directory: Path) -> tuple[LayerSpec, MemoryBlobStore]:
            """Leave a layer behind; return what is to be opened then."""
            if made.exists():
                shutil.copytree(made, directory)
            return replace(spec, layers=directory), copy_of(left_blobs)

        def opened(spec: LayerSpec, blobs: MemoryBlobStore) -> tuple[Life, TreeRef | None]:
            layer, recovered = open_layer(spec, blobs, ManualClock())
            return Life(layer, blobs, layer.base, {}), recovered

        left_over = left(tmp_path / "whole")
        failing.start(None)
        life, recovered = opened(*left_over)
        failing.stop()
        calls = failing_calls(failing)
        expected = look(life.layer)
        ends(life, go_on(life), dies=True)
        for fails_at in range(1, calls + 1):
            left_over = left(tmp_path / str(fails_at))
            gc.collect()
            held = set(os.listdir("/proc/self/fd"))
            failing.start(fails_at)
            try:
                life, found = opened(*left_over)
            except (OSError, Corrupt):
                failing.stop()
                assert set(os.listdir("/proc/self/fd")) == held, f"call {fails_at}, {failing.failed}: kept open"
                life, found = opened(*left_over)
            failing.stop()
            where = f"call {fails_at}, {failing.failed}"
            assert failing.failed, where
            assert found == recovered, where
            assert look(life.layer) == expected, where
            try:
                ends(life, go_on(life), dies=True)
            except (AssertionError, Corrupt) as error:
                raise AssertionError(where) from error
