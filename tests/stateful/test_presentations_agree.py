"""The same operations on a plain directory and on a layer give the same trees, turn after turn."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import InvalidInput, NotFound
from chronicle.testing.workspace_contract import Model, files_below, files_in
from chronicle.workspace.dir.restore import restore as restore_directory
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.usage import measure

if TYPE_CHECKING:
    from collections.abc import Callable

names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
data = st.one_of(st.binary(max_size=20), st.sampled_from([b"x" * 70_000, b"y" * 70_000]))
modes = st.sampled_from([0o600, 0o644, 0o755])


class Presentations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="presentations-"))
        self.blobs = MemoryBlobStore()
        self.root = self.directory / "root"
        self.epoch = 1
        self.turn = 1
        self.bases: tuple[TreeRef | None, TreeRef | None] = (None, None)
        self.sealed: tuple[TreeRef, TreeRef] | None = None
        self.adopted: list[TreeRef] = []
        self.open_both()

    def open_both(self) -> None:
        specs = [
            LayerSpec(name, self.directory, base, self.epoch, self.turn)
            for name, base in zip("dl", self.bases, strict=True)
        ]
        self.dir = open_dir_workspace(specs[0], self.blobs, self.root, SystemClock()).workspace
        self.layer, _ = open_layer(specs[1], self.blobs, SystemClock())
        self.bases = self.dir.base, self.layer.base
        self.dir.begin_turn(self.turn)
        self.layer.begin_turn(self.turn)

    def teardown(self) -> None:
        self.dir.close()
        self.layer.close()
        shutil.rmtree(self.directory)

    def place(self, path: str) -> tuple[DirNode, bytes] | None:
        directory, _, name = path.rpartition("/")
        node = self.layer.resolve(directory.encode())
        return (node, name.encode()) if isinstance(node, DirNode) else None

    @rule(path=paths, content=data)
    def write(self, path: str, content: bytes) -> None:
        place = self.place(path)
        node = self.layer.resolve(path.encode())
        if place is None or not (node is None or isinstance(node, FileNode)):
            return
        handle = (
            self.layer.create(*place, 0o644, *self.layer.owner)
            if node is None
            else self.layer.open(node, truncate=True)
        )
        self.layer.write(handle, 0, content)
        self.layer.flush(handle)
        self.layer.release(handle)
        (self.root / path).write_bytes(content)
        if node is None:
            (self.root / path).chmod(0o644)

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        place = self.place(path)
        if place is not None and self.layer.resolve(path.encode()) is None:
            self.layer.make(*place, 0o40755, *self.layer.owner)
            (self.root / path).mkdir()
            (self.root / path).chmod(0o755)

    @rule(path=paths, points_to=names)
    def symlink(self, path: str, points_to: str) -> None:
        place = self.place(path)
        if place is not None and self.layer.resolve(path.encode()) is None:
            self.layer.make(*place, 0o120777, *self.layer.owner, points_to.encode())
            (self.root / path).symlink_to(points_to)

    @rule(old=paths, new=paths)
    def link(self, old: str, new: str) -> None:
        node, place = self.layer.resolve(old.encode()), self.place(new)
        if isinstance(node, FileNode) and place is not None and self.layer.resolve(new.encode()) is None:
            self.layer.link(node, *place)
            (self.root / new).hardlink_to(self.root / old)

    @rule(path=paths, mode=modes)
    def chmod(self, path: str, mode: int) -> None:
        node = self.layer.resolve(path.encode())
        if isinstance(node, FileNode):
            self.layer.set_mode(node, mode, *self.layer.owner)
            (self.root / path).chmod(mode)

    @rule(path=paths)
    def remove(self, path: str) -> None:
        node, place = self.layer.resolve(path.encode()), self.place(path)
        if node is None or place is None:
            return
        if isinstance(node, DirNode):
            if not self.layer.entries(node):
                self.layer.rmdir(*place)
                (self.root / path).rmdir()
        else:
            self.layer.unlink(*place)
            (self.root / path).unlink()

    @rule(old=paths, new=paths)
    def rename(self, old: str, new: str) -> None:
        one, other = self.place(old), self.place(new)
        if one is None or other is None or self.layer.resolve(old.encode()) is None:
            return
        acts: list[Callable[[], None]] = [
            lambda: os.rename(self.root / old, self.root / new),  # noqa: PTH104 - refuses as the kernel does
            lambda: self.layer.rename(*one, *other),
        ]
        refusals: list[int | None] = []
        for act in acts:
            try:
                act()
            except OSError as error:
                refusals.append(error.errno)
            else:
                refusals.append(None)
        assert refusals[0] == refusals[1]

    @rule()
    def seal(self) -> None:
        self.sealed = self.dir.seal(), self.layer.seal()
        assert self.sealed[0].tree_id == self.sealed[1].tree_id
        assert files_in(self.blobs, self.sealed[0].tree_id) == files_below(self.root)

    @precondition(lambda self: self.sealed is not None)
    @rule()
    def adopt(self) -> None:
        assert self.sealed is not None
        self.dir.adopt(self.sealed[0])
        self.layer.adopt(self.sealed[1])
        self.bases, self.sealed = self.sealed, None
        self.adopted.append(self.layer.base)
        self.turn += 1
        self.dir.begin_turn(self.turn)
        self.layer.begin_turn(self.turn)

    @rule()
    def rollback(self) -> None:
        self.dir.rollback()
        self.layer.rollback()
        self.sealed = None
        assert self.dir.seal().tree_id == self.layer.seal().tree_id == self.bases[0].tree_id  # type: ignore[union-attr]

    @precondition(lambda self: self.adopted)
    @rule(pick=st.integers(0))
    def restore(self, pick: int) -> None:
        then = self.adopted[pick % len(self.adopted)]
        self.layer.restore(then)
        root = read_root(self.blobs, then.oplog_id)
        restore_directory(os.fsencode(self.root), self.blobs, root.tree_id, root.root, {}, self.layer.owner)
        self.seal()
        assert self.sealed is not None
        assert self.sealed[1].tree_id == then.tree_id

    @precondition(lambda self: self.adopted)
    @rule(pick=st.integers(0), path=paths)
    def restore_one(self, pick: int, path: str) -> None:
        """Only that path changes, and it is then what it was."""
        then = self.adopted[pick % len(self.adopted)]
        before = files_in(self.blobs, self.layer.seal().tree_id)
        self.sealed = None
        was = files_in(self.blobs, then.tree_id)
        try:
            self.layer.restore(then, path.encode())
        except (NotFound, InvalidInput):
            assert files_in(self.blobs, self.layer.seal().tree_id) == before
            assert path not in was or any(before.get(str(above)) is not None for above in Path(path).parents)
            return
        after = files_in(self.blobs, self.layer.seal().tree_id)
        assert below(after, path) == below(was, path)
        parents = {str(parent) for parent in Path(path).parents}
        expected = {other: what for other, what in before.items() if other not in below(before, path)}
        assert {other: what for other, what in after.items() if other not in below(after, path)} == {
            **{parent: None for parent in parents if parent != "."},
            **expected,
        }
        self.layer.rollback()
        self.dir.rollback()

    @invariant()
    def usage_is_known(self) -> None:
        if not self.layer.changed:
            assert self.layer.usage == measure(self.blobs, self.layer.seal().tree_id)

    @rule(newer=st.booleans())
    def reopen(self, newer: bool) -> None:
        self.dir.close()
        self.layer.close()
        self.epoch += newer
        if newer:
            self.sealed = None
        self.open_both()


def below(files: Model, path: str) -> Model:
    """What of a tree is at a path and below it."""
    return {other: what for other, what in files.items() if other == path or other.startswith(path + "/")}


TestPresentations = Presentations.TestCase
TestPresentations.settings = settings(max_examples=20, stateful_step_count=30)
