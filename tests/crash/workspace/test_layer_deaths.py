"""A layer's process dies before each system call that changes anything, and in the middle of each write to the log.

A story is lived through once. What a death would leave at each of the calls, the files as they are then, is copied and
opened.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.system import atomic_files
from chronicle.system.fallocate import KEEP_SIZE, PUNCH_HOLE, fallocate
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.layer import durability, entries, file_data, open_files, opening, workspace_home
from chronicle.workspace.layer import layer as layer_module
from chronicle.workspace.layer.disk import files as layer_files
from chronicle.workspace.layer.disk import log, undo_file, version_file
from chronicle.workspace.layer.disk.data_file import DataFile
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import FileNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.layers import abandon, copy_of, file_at, place, read, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.workspace.layer.layer import Handle, Layer

CHANGING = {"pwrite", "unlink", "ftruncate", "truncate", "mkdir", "rename"}
MODULES = (
    layer_module,
    open_files,
    file_data,
    durability,
    entries,
    layer_files,
    log,
    opening,
    undo_file,
    version_file,
    workspace_home,
    atomic_files,
)


class WatchedOs:
    """``os``, whose changing calls are told of before they are made, and in the middle of each ``write``."""

    def __init__(self, about_to_call: Callable[[], None]) -> None:
        self._about_to_call = about_to_call

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._watched(real) if name in CHANGING else real

    @property
    def fallocate(self) -> Callable[..., None]:
        """The system call that ``os`` has only a part of."""
        call: Callable[..., None] = self._watched(fallocate)
        return call

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self._about_to_call()
            return real(*arguments, **keywords)

        return call

    def open(self, path: Any, flags: int, *more: Any, **keywords: Any) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            self._about_to_call()
        return os.open(path, flags, *more, **keywords)

    def write(self, fd: int, data: Any) -> int:
        self._about_to_call()
        half = os.write(fd, bytes(data)[: len(data) // 2])
        self._about_to_call()
        return half + os.write(fd, bytes(data)[half:])


@dataclass
class Life:
    """A workspace that somebody works in, and dies."""

    layer: Layer
    blobs: MemoryBlobStore
    base: TreeRef
    handles: dict[str, Handle]
    ref: TreeRef | None = None
    first: TreeRef | None = None
    marked: TreeRef | None = None
    steps: list[TreeRef] = field(default_factory=list)

    def mark(self) -> None:
        self.marked = self.ref

    def step(self) -> None:
        """Seal in the middle of a turn."""
        self.seal()
        assert self.ref is not None
        self.steps.append(self.ref)

    def create(self, path: str) -> None:
        self.handles[path] = self.layer.create(*place(self.layer, path), 0o644, *self.layer.owner)

    def open(self, path: str, *, truncate: bool = False) -> None:
        self.handles[path] = self.layer.open(file_at(self.layer, path), truncate=truncate)

    def write(self, path: str, offset: int, data: bytes) -> None:
        self.layer.write(self.handles[path], offset, data)

    def close(self, path: str) -> None:
        self.layer.flush(self.handles[path])
        self.layer.release(self.handles.pop(path))

    def mkdir(self, path: str) -> None:
        self.layer.make(*place(self.layer, path), 0o40755, *self.layer.owner)

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        self.layer.rename(*place(self.layer, old), *place(self.layer, new), flags)

    def seal(self) -> None:
        self.ref = self.layer.seal()

    def forget_contents(self) -> None:
        """Have the contents of closed files in the blob store only, as on a node that did not write them."""
        files = self.layer._files
        for ino, (number, _) in list(files.warm.items()):
            node = self.layer.names.by_ino.get(ino)
            if isinstance(node, FileNode) and not node.dirty and not node.opens:
                node.data = None
                files.unindex(ino)
                files.drop_data(DataFile(number))

    def adopt(self) -> None:
        assert self.ref is not None
        self.base = self.ref
        self.first = self.first or self.base
        self.layer.adopt(self.base)
        self.layer.begin_turn(self.layer.turn + 1)


LARGE = b"".join(b"%05d\n" % number for number in range(30_000))
"""Several chunks."""
FETCHED_BYTES = 100_000
"""Of larger contents only what is written is on a node that did not have them."""
STORY: list[Callable[[Life], object]] = [
    lambda life: life.create("a"),
    lambda life: life.write("a", 0, b"one" * 3000),
    lambda life: life.close("a"),
    lambda life: life.mkdir("d"),
    lambda life: life.create("d/b"),
    lambda life: life.write("d/b", 0, b"two"),
    lambda life: life.close("d/b"),
    lambda life: life.open("a"),
    lambda life: life.write("a", 4000, b"in the middle"),
    lambda life: life.close("a"),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: life.open("a"),
    lambda life: life.write("a", 0, b"changed"),
    lambda life: life.close("a"),
    lambda life: life.open("a"),
    lambda life: life.write("a", 8998, b"at the end"),
    lambda life: life.close("a"),
    lambda life: life.layer.truncate(file_at(life.layer, "a"), 100),
    lambda life: life.open("d/b", truncate=True),
    lambda life: life.write("d/b", 0, b"three"),
    lambda life: life.close("d/b"),
    lambda life: life.rename("d", "e"),
    lambda life: life.rename("a", "e/b"),
    lambda life: life.layer.link(file_at(life.layer, "e/b"), *place(life.layer, "l")),
    lambda life: life.seal(),
    lambda life: life.create("between"),
    lambda life: life.close("between"),
    lambda life: life.adopt(),
    lambda life: life.layer.set_mode(file_at(life.layer, "l"), 0o600, *life.layer.owner),
    lambda life: life.layer.set_xattr(file_at(life.layer, "l"), b"user.x", b"1"),
    lambda life: life.layer.unlink(*place(life.layer, "e/b")),
    lambda life: life.layer.unlink(*place(life.layer, "l")),
    lambda life: life.layer.rmdir(*place(life.layer, "e")),
    lambda life: life.seal(),
    lambda life: life.layer.rollback(),
    lambda life: life.open("e/b"),
    lambda life: life.write("e/b", 2, b"given up"),
    lambda life: life.close("e/b"),
    lambda life: life.layer.unlink(*place(life.layer, "l")),
    lambda life: life.create("new"),
    lambda life: life.write("new", 0, b"given up"),
    lambda life: life.close("new"),
    lambda life: life.open("new", truncate=True),
    lambda life: life.close("new"),
    lambda life: life.layer.rollback(),
    lambda life: life.rename("l", "e/b", 2),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: life.layer.restore(life.first, b"a"),  # which is not there
    lambda life: life.open("a"),
    lambda life: life.write("a", 100, b"over what was restored"),
    lambda life: life.close("a"),
    lambda life: life.open("a"),
    lambda life: life.write("a", 10, b"not closed yet"),
    lambda life: life.seal(),  # restoring seals first, which makes the version of what is open
    lambda life: life.layer.restore(life.first, b"a"),  # which is open
    lambda life: life.write("a", 20, b"by the same handle"),
    lambda life: life.close("a"),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: life.layer.unlink(*place(life.layer, "l")),  # one of two names
    lambda life: life.layer.link(file_at(life.layer, "a"), *place(life.layer, "l")),
    lambda life: life.layer.unlink(*place(life.layer, "e/b")),
    lambda life: life.layer.rmdir(*place(life.layer, "e")),
    lambda life: life.create("e"),  # a file where a directory was
    lambda life: life.write("e", 0, b"a file now" * 1000),
    lambda life: life.close("e"),
    lambda life: life.mkdir("d"),
    lambda life: life.create("d/b"),
    lambda life: life.close("d/b"),
    lambda life: life.seal(),
    lambda life: life.mark(),
    lambda life: life.open("e"),
    lambda life: life.layer.restore(life.base),  # a directory comes, files of one and of two names go
    lambda life: life.write("e", 3, b"into what is gone"),
    lambda life: life.close("e"),
    lambda life: life.layer.restore(life.marked),
    lambda life: life.layer.restore(life.first),
    lambda life: life.layer.restore(None),
    lambda life: life.layer.restore(life.marked),
    lambda life: life.open("l"),
    lambda life: life.write("l", 0, b"through the other name"),
    lambda life: life.close("l"),
    lambda life: life.layer.unlink(*place(life.layer, "l")),
    lambda life: life.seal(),  # restoring seals first: what is in the data file now is named once
    lambda life: life.layer.restore(life.marked),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: life.create("large"),
    lambda life: life.write("large", 0, LARGE),
    lambda life: life.close("large"),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: life.forget_contents(),
    lambda life: life.open("large"),
    lambda life: life.write("large", 70_000, b"over what is not here"),
    lambda life: life.layer.flush(life.handles["large"]),
    lambda life: life.write("large", 70_010, b"again"),
    lambda life: life.write("large", 100, b"where a version has it"),
    lambda life: life.layer.fsync(file_at(life.layer, "large")),
    lambda life: life.layer.allocate(life.handles["large"], KEEP_SIZE | PUNCH_HOLE, 120_000, 8192),
    lambda life: life.close("large"),
    lambda life: life.layer.truncate(file_at(life.layer, "large"), 140_000),
    lambda life: life.open("large"),
    lambda life: life.write("large", 150_000, b"behind the end"),
    lambda life: life.seal(),
    lambda life: life.write("large", 60_000, b"by the same handle"),
    lambda life: life.adopt(),
    lambda life: life.layer.truncate(file_at(life.layer, "large"), 100_000),
    lambda life: life.layer.truncate(file_at(life.layer, "large"), 160_000),
    lambda life: life.close("large"),
    lambda life: life.layer.restore(life.base, b"large"),
    lambda life: life.open("large"),
    lambda life: life.write("large", 90_000, b"removed"),
    lambda life: life.close("large"),
    lambda life: life.open("large", truncate=True),
    lambda life: life.close("large"),
    lambda life: life.layer.rollback(),
    lambda life: life.open("large"),
    lambda life: life.write("large", 3, b"at last"),
    lambda life: life.close("large"),
    lambda life: life.layer.unlink(*place(life.layer, "large")),
    lambda life: life.seal(),
    lambda life: life.adopt(),
    lambda life: life.create("s"),
    lambda life: life.write("s", 0, b"first step"),
    lambda life: life.close("s"),
    lambda life: life.open("e"),
    lambda life: life.write("e", 2, b"changed"),
    lambda life: life.close("e"),
    lambda life: life.step(),
    lambda life: life.rename("d", "between"),
    lambda life: life.open("e", truncate=True),
    lambda life: life.write("e", 0, b"second step"),
    lambda life: life.close("e"),
    lambda life: life.layer.link(file_at(life.layer, "s"), *place(life.layer, "t")),
    lambda life: life.step(),
    lambda life: life.layer.unlink(*place(life.layer, "e")),
    lambda life: life.layer.rollback(),
    lambda life: life.create("new"),
    lambda life: life.write("new", 0, b"of this attempt"),
    lambda life: life.create("s"),
    lambda life: life.write("s", 0, b"made again"),
    lambda life: life.layer.flush(life.handles["s"]),
    lambda life: life.open("e"),
    lambda life: life.layer.move_to(life.steps[0]),
    lambda life: life.write("s", 6, b"by the same handle"),
    lambda life: life.write("new", 6, b"into what is gone"),
    lambda life: life.close("new"),
    lambda life: life.write("e", 5, b"given up"),
    lambda life: life.layer.move_to(life.steps[1]),
    lambda life: life.write("e", 5, b"by the same handle"),
    lambda life: life.close("e"),
    lambda life: life.close("s"),
    lambda life: life.layer.move_to(life.base),
    lambda life: life.layer.move_to(life.steps[1]),
    lambda life: life.rename("between", "d"),
    lambda life: life.seal(),
    lambda life: life.adopt(),
]
State = tuple[dict[str, Any], dict[str, list[bytes | None]]]


def look(layer: Layer) -> State:
    """Return all that can be seen: files with their contents, and each path's versions with theirs."""
    files: dict[str, Any] = {}
    for path, node in walk(layer):
        files[path] = None
        if isinstance(node, FileNode):
            stored = layer.names.renumbered.stored(node.ino)
            files[path] = (read(layer, node), node.mode, dict(node.xattrs), node.nlink, stored)
    histories: dict[str, list[bytes | None]] = {}
    for path in ("a", "d", "d/b", "e", "e/b", "l", "between", "between/b", "new", "large", "s", "t"):
        found = layer.history_view().records(path.encode())
        histories[path] = []
        for record in found:
            if record.content is None and record.held is None:
                histories[path].append(None)
            else:
                with layer.histories.open_version(record) as file:
                    histories[path].append(file.read())
    return files, histories


def live(directory: Path, about_to_call: Callable[[Life, int], None], after_step: Callable[[Life], None]) -> None:
    """Live through the story.

    Args:
        about_to_call: called with the number of a step before each call in it that changes anything.
        after_step: called after each step. What is called may look, which counts as no call.
    """
    step, looks = 0, True

    def watch() -> None:
        nonlocal looks
        if not looks:
            looks = True
            about_to_call(life, step)
            looks = False

    blobs = MemoryBlobStore()
    opened, _ = open_layer(LayerSpec("w", directory, None, 1, 1), blobs, ManualClock())
    life = Life(opened, blobs, opened.base, {})
    watched = WatchedOs(watch)
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", watched)
        patch.setattr(log, "_BATCH_FRAMES", 3)  # what counts together is in several writes
        patch.setattr(open_files, "fallocate", watched.fallocate)
        patch.setattr(file_data, "_FETCHED_BYTES", FETCHED_BYTES)
        for step, act in enumerate(STORY):  # noqa: B007 - `watch` reads it
            looks = False
            act(life)
            looks = True
            after_step(life)
    abandon(life.layer)


def open_left(left: Path, life: Life, step: int, expected: list[State]) -> None:
    """Open what is left: it is as before the step or as after it, and it goes on."""
    blobs = copy_of(life.blobs)
    layer, recovered = open_layer(LayerSpec("w", left, life.base, 1, 1), blobs, ManualClock())
    try:
        assert recovered is None
        found = look(layer)
        before = expected[step - 1] if step else ({}, {path: [] for path in found[1]})
        # A truncation by path is two things: the bytes go, then the version is made.
        for now, then, later in zip(found, before, expected[step], strict=True):
            assert now in (then, later), f"step {step}"
        ref = layer.seal()
        seen = {path: value[0] if value is not None else None for path, value in found[0].items()}
        assert files_in(blobs, ref.tree_id) == seen
        layer.adopt(ref)
        assert look(layer)[0].keys() == found[0].keys()
    finally:
        layer.close()


@pytest.mark.parametrize("warm_bytes", [None, 0], ids=["", "with nothing kept beside the store"])
def test_death_at_every_change(tmp_path: Path, warm_bytes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if warm_bytes is not None:
        monkeypatch.setenv("CHRONICLE_WARM_BYTES", str(warm_bytes))
    expected: list[State] = []
    live(tmp_path / "whole", lambda *_: None, lambda life: expected.append(look(life.layer)))
    mortal, deaths = tmp_path / "mortal", 0

    def die(life: Life, step: int) -> None:
        nonlocal deaths
        deaths += 1
        left = tmp_path / str(deaths)
        shutil.copytree(mortal, left)
        open_left(left, life, step, expected)

    live(mortal, die, lambda _: None)
    assert deaths > 200
