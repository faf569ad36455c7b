"""File operations against a model of files, versions and their numbers, with deaths of the process in between."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.system import atomic_files
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.layer import file_data
from chronicle.workspace.layer.disk import log
from chronicle.workspace.layer.layer import Handle, Layer
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.names import Names
from chronicle.workspace.layer.state.node import DirNode, FileNode, Node, loaded_names
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.layers import abandon, contents, file_at, place
from tests.stateful.world import File, Numbers, Open, World
from tests.usage import measure

NAMES = ["a", "b", "c", "d"]
names = st.sampled_from(NAMES)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
LARGE = b"".join(b"%05d\n" % number for number in range(17_000))
"""More than one chunk."""
data = st.one_of(
    st.binary(max_size=30),
    st.integers(0, 3).map(lambda n: bytes([n]) * 10_000),
    st.integers(0, 3).map(lambda n: LARGE[n:]),
)
offsets = st.sampled_from([0, 1, 100, 4096, 5000, 9_999, 20_000, 80_000])
FETCHED_BYTES = 4096
"""Of larger contents only what is written is on a node that did not have them."""


class Death(BaseException):
    """The process is gone."""


class MortalOs:
    """``os``, in which a number of writes is made and no more; of the one after them the first half is."""

    def __init__(self, writes: int) -> None:
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: Any) -> int:
        self._writes -= 1
        if self._writes < 0:
            os.write(fd, bytes(data)[: len(data) // 2])
            raise Death
        return os.write(fd, data)


class LayerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="layer-model-"))
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(file_data, "_FETCHED_BYTES", FETCHED_BYTES)
        self.blobs = MemoryBlobStore()
        self.clock = ManualClock()
        self.epoch = 1
        self.turn = 1
        self.world = World()
        self.committed = World()
        self.sealed: tuple[TreeRef, World] | None = None
        self.recovered: TreeRef | None = None
        """What the last newer epoch found."""
        self.numbers = Numbers()
        self.commits: list[tuple[TreeRef, World]] = []
        """What can be gone back to."""
        self.on_base: list[tuple[TreeRef, World]] = []
        """What was sealed on top of the base, by lost attempts too."""
        self.knows_numbers = True
        """Whether this node has seen all attempts on the base."""
        self.open_files: list[Open[Handle]] = []
        self.layer, _ = open_layer(self.spec(None), self.blobs, self.clock)
        self.base = self.layer.base
        self.commits.append((self.base, World()))
        self.layer.begin_turn(self.turn)

    @initialize(warm_bytes=st.sampled_from([None, 0, 50_000]))
    def keep(self, warm_bytes: int | None) -> None:
        """Keep so much of committed files beside the store."""
        if warm_bytes is not None:
            self.patch.setenv("CHRONICLE_WARM_BYTES", str(warm_bytes))
            self.layer.warm_bytes = warm_bytes

    def teardown(self) -> None:
        self.abandon()
        self.patch.undo()
        shutil.rmtree(self.directory)

    def spec(self, base: TreeRef | None) -> LayerSpec:
        return LayerSpec(workspace_id="w", layers=self.directory, base=base, epoch=self.epoch, turn=self.turn)

    def abandon(self) -> None:
        abandon(self.layer)
        self.open_files.clear()

    # -- operations -----------------------------------------------------------------------------------------------

    @rule(path=paths, content=data, keep=st.booleans())
    def create(self, path: str, content: bytes, keep: bool) -> None:
        if self.world.is_free(path):
            handle = self.layer.create(*place(self.layer, path), 0o644, *self.layer.owner)
            self.go_on(Open(self.world.create(path), handle, fresh=True), 0, content, keep=keep)

    @rule(path=paths, content=data, offset=offsets, truncate=st.booleans(), keep=st.booleans())
    def open_and_write(self, path: str, content: bytes, offset: int, truncate: bool, keep: bool) -> None:
        file = self.world.regular(path)
        if file is not None:
            handle = self.layer.open(file_at(self.layer, path), truncate=truncate)
            if truncate:
                self.world.empty(file)
            self.go_on(Open(file, handle, fresh=truncate), offset, content, keep=keep)

    def go_on(self, opened: Open[Handle], offset: int, content: bytes, *, keep: bool) -> None:
        self.open_files.append(opened)
        self.write_to(opened, offset, content)
        if not keep:
            self.close_one(opened)

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0), content=data, offset=offsets, flush=st.booleans())
    def write_more(self, pick: int, content: bytes, offset: int, flush: bool) -> None:
        opened = self.open_files[pick % len(self.open_files)]
        self.write_to(opened, offset, content)
        if flush:
            self.layer.flush(opened.handle)
            if opened.wrote:
                self.world.closed(opened)
                opened.wrote = opened.fresh = False

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0))
    def close_some(self, pick: int) -> None:
        self.close_one(self.open_files[pick % len(self.open_files)])

    def write_to(self, opened: Open[Handle], offset: int, content: bytes) -> None:
        if content:
            assert self.layer.write(opened.handle, offset, content) == len(content)
            self.world.write(opened, offset, content)

    def close_one(self, opened: Open[Handle]) -> None:
        self.open_files.remove(opened)
        assert self.layer.read(opened.handle, 0, 1 << 20) == opened.file.content
        self.layer.release(opened.handle)
        self.world.closed(opened)

    @rule(path=paths, size=st.sampled_from([0, 1, 4096, 7000, 30_000, 90_000]))
    def truncate(self, path: str, size: int) -> None:
        file = self.world.regular(path)
        if file is not None:
            self.layer.truncate(file_at(self.layer, path), size)
            if self.world.resize(file, size):
                self.world.settle(file)

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        if self.world.is_free(path):
            self.layer.make(*place(self.layer, path), 0o40755, *self.layer.owner)
            self.world.mkdir(path)

    @rule(path=paths)
    def remove(self, path: str) -> None:
        if self.world.can_remove(path):
            if self.world.kind(path) == "dir":
                self.layer.rmdir(*place(self.layer, path))
            else:
                self.layer.unlink(*place(self.layer, path))
            self.world.remove(path)

    @rule(old=paths, new=paths)
    def rename(self, old: str, new: str) -> None:
        if self.world.can_rename(old, new):
            self.layer.rename(*place(self.layer, old), *place(self.layer, new))
            self.world.rename(old, new)

    @rule(old=paths, new=paths)
    def exchange(self, old: str, new: str) -> None:
        if self.world.can_exchange(old, new):
            self.layer.rename(*place(self.layer, old), *place(self.layer, new), 2)
            self.world.exchange(old, new)

    @rule(old=paths, new=paths)
    def link(self, old: str, new: str) -> None:
        if self.world.regular(old) is not None and self.world.is_free(new):
            self.layer.link(file_at(self.layer, old), *place(self.layer, new))
            self.world.link(old, new)

    @rule(path=paths, mode=st.sampled_from([0o600, 0o640, 0o755]))
    def chmod(self, path: str, mode: int) -> None:
        file = self.world.regular(path)
        if file is not None:
            self.layer.set_mode(file_at(self.layer, path), mode, *self.layer.owner)
            self.world.chmod(file, mode)

    @rule()
    def forget_nodes(self) -> None:
        for inode in list(self.layer.names.by_ino):
            if inode != 1:
                self.layer.forget(inode)

    # -- turns and ends -------------------------------------------------------------------------------------------

    @rule()
    def seal(self) -> None:
        self.world.settle_all()
        ref = self.layer.seal()
        assert self.layer.seal() == ref
        assert files_in(self.blobs, ref.tree_id) == self.world.contents()
        assert read_root(self.blobs, ref.oplog_id).usage == self.layer.usage == measure(self.blobs, ref.tree_id)
        self.sealed = ref, self.world.copy()
        self.commits.append(self.sealed)
        self.on_base.append(self.sealed)

    @precondition(lambda self: self.sealed is not None)
    @rule()
    def adopt(self) -> None:
        assert self.sealed is not None
        self.base, self.committed = self.sealed
        self.layer.adopt(self.base)
        self.begin_turn()

    def begin_turn(self) -> None:
        self.sealed = None
        self.on_base.clear()
        self.knows_numbers = True
        self.turn += 1
        self.layer.begin_turn(self.turn)

    @rule()
    def rollback(self) -> None:
        self.look()
        self.layer.rollback()
        for opened in self.open_files:
            self.layer.release(opened.handle)
        self.open_files.clear()
        self.world = self.committed.copy()
        self.sealed = None

    @rule(back=st.integers(0, 3), pick=st.none() | st.integers(0, 9), writes=st.none() | st.integers(0, 4))
    def restore(self, back: int, pick: int | None, writes: int | None) -> None:
        """Go back to a commit, with all or with one path, or die on the way there."""
        ref, then = self.commits[-1 - back % len(self.commits)]
        there = ["nowhere", *then.files]
        path = there[pick % len(there)] if pick is not None else ""
        if path and path not in then.files:
            with pytest.raises(NotFound, match="was not there"):
                self.layer.restore(ref, path.encode())
            self.seal()
            return
        above = [path[:at] for at, character in enumerate(path) if character == "/"]
        if any(self.world.kind(one) == "file" for one in above):
            return
        self.seal()  # restoring does that first
        before = self.world.contents()
        after = then.contents()
        if path:
            wanted = {one: what for one, what in after.items() if one == path or one.startswith(path + "/")}
            kept = {one: what for one, what in before.items() if one != path and not one.startswith(path + "/")}
            after = {**kept, **dict.fromkeys(above), **wanted}
        if writes is not None:
            with pytest.MonkeyPatch.context() as patch, suppress(Death):
                patch.setattr(log, "os", MortalOs(writes))
                patch.setattr(log, "_BATCH_FRAMES", 2)
                self.layer.restore(ref, path.encode())
            self.abandon()
            self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
            assert recovered is None
        else:
            self.layer.restore(ref, path.encode())
        found = contents(self.layer)
        if writes is not None and found != after:
            assert found == before, "all of it or nothing"
            return
        assert found == after
        self.take(found)

    def take(self, found: dict[str, bytes | None]) -> None:
        """Let the model have what was restored: the files as the layer has them, and what went on top of histories."""
        files: dict[int, File] = {}
        self.world.files = {}
        for path, what in found.items():
            self.world.files[path] = None
            if isinstance(what, bytes):
                node = file_at(self.layer, path)
                file = files.setdefault(node.ino, File(what, mode=node.mode & 0o7777, versioned=True))
                self.world.files[path] = file
        for opened in self.open_files:
            opened.file = files.get(opened.handle.node.ino, opened.file)
        for path in {*self.world.history, *found}:
            expected = self.world.history.setdefault(path, [])
            records = self.layer.history_view().records(path.encode())
            assert len(records) >= len(expected)
            for record in records[len(expected) :]:
                assert record.op in {"restore", "delete", "link"}
                if record.deleted:
                    expected.append(None)
                elif path in found and found[path] is None:
                    expected.append("dir")
                else:
                    with self.layer.histories.open_version(record) as version:
                        expected.append(version.read())
            assert not expected or expected[-1] == ("dir" if path in found and found[path] is None else found.get(path))

    @rule(pick=st.integers(0), writes=st.none() | st.integers(0, 3))
    def move_to(self, pick: int, writes: int | None) -> None:
        """Take over what an attempt sealed on top of the base, or die on the way there."""
        self.look()
        sealed = [*self.on_base, (self.base, self.committed)]
        ref, then = sealed[pick % len(sealed)]
        if writes is None:
            self.layer.move_to(ref)
        else:
            before = self.world.contents()
            with pytest.MonkeyPatch.context() as patch, suppress(Death):
                mortal = MortalOs(writes)
                patch.setattr(log, "os", mortal)
                patch.setattr(atomic_files, "os", mortal)
                self.layer.move_to(ref)
            self.abandon()
            self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
            assert recovered is None
            if self.layer.sealed != ref or self.layer.changed:
                assert contents(self.layer) == before
                self.world.died()
                return
        if not self.knows_numbers:
            self.numbers.forget()
        self.world = then.copy()
        self.sealed = (ref, then) if ref != self.base else None
        check_names(self.layer, self.blobs)
        for opened in self.open_files:
            path = self.layer.names.path_of(opened.handle.node)
            if path is not None:
                file = self.world.regular(path.decode())
                assert file is not None
                opened.file = file
            assert self.layer.read(opened.handle, 0, 1 << 20) == opened.file.content
        assert contents(self.layer) == then.contents()
        assert self.layer.seal() == ref or ref == self.base
        self.look()

    @rule()
    def lose_node(self) -> None:
        """Another node goes on from the base, and knows of what was sealed there only."""
        self.abandon()
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self.epoch += 1
        self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
        assert recovered is None
        self.world = self.committed.copy()
        self.sealed = None
        self.numbers.forget()
        self.knows_numbers = False
        self.layer.begin_turn(self.turn)

    @rule(told=st.booleans())
    def kill(self, told: bool) -> None:
        """The process dies; perhaps after the journal committed what it had sealed."""
        self.world.died()
        self.abandon()
        if told and self.sealed is not None:
            self.base, self.committed = self.sealed
            self.sealed = None
            self.on_base.clear()
            self.knows_numbers = True
        self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
        assert recovered is None

    @rule()
    def take_over(self) -> None:
        """The process dies, and a newer epoch opens the workspace."""
        self.look()
        self.abandon()
        self.epoch += 1
        self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
        expected, before = self.world.contents(), self.committed.contents()
        if recovered is not None:
            assert files_in(self.blobs, recovered.tree_id) == expected
        else:
            assert expected == before
        self.recovered = recovered
        self.world = self.committed.copy()
        self.sealed = None
        self.layer.begin_turn(self.turn)

    @rule()
    def go_elsewhere(self) -> None:
        """Everything is committed, and the workspace opened on a node that has nothing of it."""
        self.seal()
        self.adopt()
        self.numbers.forget()  # numbers of what was rolled back are known where that happened
        self.look()
        for opened in list(self.open_files):
            self.close_one(opened)
        self.layer.close()
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
        assert recovered is None
        self.layer.begin_turn(self.turn)

    @rule(pick=st.integers(0))
    def sync_some(self, pick: int) -> None:
        if self.open_files:
            self.layer.fsync(self.open_files[pick % len(self.open_files)].handle.node)

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def names_and_contents_agree(self) -> None:
        self.clock.advance(1)
        found = contents(self.layer)
        assert found == self.world.contents()
        for path in ["", *found]:
            node = self.layer.resolve(path.encode())
            if isinstance(node, DirNode):
                entries = self.layer.entries(node)
                assert len(entries) == len(dict(entries))
                assert node.nlink == 2 + sum(isinstance(child, DirNode) for _, child in entries)
            else:
                file = self.world.files[path]
                assert isinstance(node, FileNode)
                assert file is not None
                assert node.size == len(file.content)
                assert node.nlink == len(self.world.paths_of(file))
        sizes = [len(file.content) for file in self.world.all_files()]
        directories = list(self.world.files.values()).count(None)
        assert self.layer.usage == (sum(sizes), len(sizes) + directories)

    @rule()
    def look(self) -> None:
        """Read all histories: each version is what the model has, under a number that never meant anything else."""
        for path in {*self.world.history, *self.numbers.paths()}:
            expected = self.world.history.get(path, [])
            try:
                history = self.layer.history(path)
            except NotFound:
                history = []
            self.numbers.see(path, [(item.iteration, item.timestamp) for item in history], expected)
            for item, what in zip(history, expected, strict=True):
                if isinstance(what, bytes):
                    with self.layer.at(path, item.iteration) as file:
                        assert file.read() == what
                    assert item.size == len(what)
                else:
                    assert (item.op == "delete") == (what is None)


def check_names(layer: Layer, blobs: MemoryBlobStore) -> None:
    """Check that each node in memory is what it would be if it were loaded now."""
    sealed = layer.sealed
    assert sealed is not None
    assert not layer.changed
    fresh = Names(blobs, read_root(blobs, sealed.oplog_id), layer.owner)
    stack: list[tuple[bytes, Node]] = [(b"", layer.root)]
    seen = set()
    while stack:
        path, node = stack.pop()
        seen.add(node.ino)
        stored = fresh.resolve(path)
        assert stored is not None, path
        for field in ("mode", "uid", "gid", "nlink", "size", "mtime_ns", "ctime_ns", "versioned", "device"):
            assert getattr(node, field) == getattr(stored, field), (path, field)
        assert dict(node.xattrs) == dict(stored.xattrs)
        assert layer.names.renumbered.stored(node.ino) == stored.ino
        if isinstance(node, DirNode):
            assert isinstance(stored, DirNode)
            assert (node.tree, node.attrs, node.changed) == (stored.tree, stored.attrs, set())
            for name, child in node.children.items():
                assert child is not None
                assert (node, name) in loaded_names(child)
                stack.append((path + b"/" + name if path else name, child))
        elif isinstance(node, FileNode):
            assert isinstance(stored, FileNode)
            assert (node.content, node.dirty, node.unversioned) == (stored.content, False, False)
    assert {ino for ino, node in layer.names.by_ino.items() if node.nlink} == seen


TestLayerModel = LayerModel.TestCase
TestLayerModel.settings = settings(max_examples=60, stateful_step_count=40)
