"""File operations against a model of files, versions and their numbers, with deaths of the process in between."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace import layer_content, layer_log
from chronicle.workspace.layer import Handle
from chronicle.workspace.layer_node import DirNode, FileNode
from chronicle.workspace.layer_open import open_layer
from chronicle.workspace.oplog import read_root
from chronicle.workspace.port import LayerSpec, TreeRef
from chronicle.workspace.quota import measure

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


@dataclass(eq=False)
class File:
    """A file of the model: several paths may share one."""

    content: bytes = b""
    mode: int = 0o644
    unversioned: bool = False
    versioned: bool = False


@dataclass
class Open:
    file: File
    handle: Handle
    fresh: bool
    wrote: bool = False


@dataclass
class World:
    """Everything that a commit keeps."""

    files: dict[str, File | None] = field(default_factory=dict)
    """Path → file, or None for a directory."""
    history: dict[str, list[bytes | str | None]] = field(default_factory=dict)
    """Path → its versions: content, None for a deletion, "dir" for a directory."""


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
        self.patch.setattr(layer_content, "_FETCHED_BYTES", FETCHED_BYTES)
        self.blobs = MemoryBlobStore()
        self.clock = ManualClock()
        self.epoch = 1
        self.turn = 1
        self.world = World()
        self.committed = World()
        self.sealed: tuple[TreeRef, World] | None = None
        self.recovered: TreeRef | None = None
        """What the last newer epoch found."""
        self.given: dict[str, dict[int, tuple[bytes | str | None, int]]] = {}
        """Path → every number that was ever seen, and what it stood for and since when."""
        self.commits: list[tuple[TreeRef, World]] = []
        """What can be gone back to."""
        self.open_files: list[Open] = []
        self.layer, _ = open_layer(self.spec(None), self.blobs, self.clock)
        self.base = self.layer.base
        self.commits.append((self.base, World()))
        self.layer.begin_turn(self.turn)

    def teardown(self) -> None:
        self.abandon()
        self.patch.undo()
        shutil.rmtree(self.directory)

    def spec(self, base: TreeRef | None) -> LayerSpec:
        return LayerSpec(workspace_id="w", layers=self.directory, base=base, epoch=self.epoch, turn=self.turn)

    def abandon(self) -> None:
        """Let go of the layer as kill -9 does: nothing more is written."""
        layer = self.layer
        for handle in layer._handles:
            if handle.node.fd >= 0:
                os.close(handle.node.fd)
                handle.node.fd = -1
        layer._log.close()
        layer._files.close()
        os.close(layer._lock_fd)
        self.open_files.clear()

    # -- the model ------------------------------------------------------------------------------------------------

    def kind(self, path: str) -> str | None:
        if path == "":
            return "dir"
        if path not in self.world.files:
            return None
        return "dir" if self.world.files[path] is None else "file"

    def parent_is_dir(self, path: str) -> bool:
        return self.kind(path.rpartition("/")[0]) == "dir"

    def below(self, path: str) -> list[str]:
        return [other for other in self.world.files if other.startswith(path + "/")]

    def note(self, path: str, what: bytes | str | None) -> None:
        self.world.history.setdefault(path, []).append(what)

    def alive(self, path: str) -> bool:
        return self.world.history.get(path, [None])[-1] is not None

    def paths_of(self, file: File) -> list[str]:
        return [path for path, other in self.world.files.items() if other is file]

    def settle(self, file: File) -> None:
        paths = self.paths_of(file)
        if paths and (file.unversioned or not file.versioned):
            for path in paths:
                self.note(path, file.content)
            file.unversioned, file.versioned = False, True

    def node(self, path: str) -> FileNode:
        node = self.layer.resolve(path.encode())
        assert isinstance(node, FileNode)
        return node

    def place(self, path: str) -> tuple[DirNode, bytes]:
        directory, _, name = path.rpartition("/")
        node = self.layer.resolve(directory.encode())
        assert isinstance(node, DirNode)
        return node, name.encode()

    # -- operations -----------------------------------------------------------------------------------------------

    @rule(path=paths, content=data, keep=st.booleans())
    def create(self, path: str, content: bytes, keep: bool) -> None:
        if not self.parent_is_dir(path) or self.kind(path) is not None:
            return
        parent, name = self.place(path)
        opened = Open(File(), self.layer.create(parent, name, 0o644, *self.layer._owner), fresh=True)
        self.world.files[path] = opened.file
        self.open_files.append(opened)
        self.write_to(opened, 0, content)
        if not keep:
            self.close_one(opened)

    @rule(path=paths, content=data, offset=offsets, truncate=st.booleans(), keep=st.booleans())
    def open_and_write(self, path: str, content: bytes, offset: int, truncate: bool, keep: bool) -> None:
        file = self.world.files.get(path)
        if file is None:
            return
        opened = Open(file, self.layer.open(self.node(path), truncate=truncate), fresh=truncate)
        if truncate and file.content:
            file.content, file.unversioned = b"", True
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
                opened.wrote = opened.fresh = False
                self.settle(opened.file)

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0))
    def close_some(self, pick: int) -> None:
        self.close_one(self.open_files[pick % len(self.open_files)])

    def write_to(self, opened: Open, offset: int, content: bytes) -> None:
        if not content:
            return
        assert self.layer.write(opened.handle, offset, content) == len(content)
        file = opened.file
        before = file.content.ljust(offset, b"\0")
        file.content = before[:offset] + content + before[offset + len(content) :]
        file.unversioned = opened.wrote = True

    def close_one(self, opened: Open) -> None:
        self.open_files.remove(opened)
        assert self.layer.read(opened.handle, 0, 1 << 20) == opened.file.content
        self.layer.release(opened.handle)
        if opened.wrote or opened.fresh:
            self.settle(opened.file)

    @rule(path=paths, size=st.sampled_from([0, 1, 4096, 7000, 30_000, 90_000]))
    def truncate(self, path: str, size: int) -> None:
        file = self.world.files.get(path)
        if file is None:
            return
        self.layer.truncate(self.node(path), size)
        if size != len(file.content):
            file.content = file.content[:size].ljust(size, b"\0")
            file.unversioned = True
            self.settle(file)

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        if not self.parent_is_dir(path) or self.kind(path) is not None:
            return
        self.layer.make(*self.place(path), 0o40755, *self.layer._owner)
        self.world.files[path] = None
        self.note(path, "dir")

    @rule(path=paths)
    def remove(self, path: str) -> None:
        kind = self.kind(path)
        if kind is None or self.below(path):
            return
        file = self.world.files.pop(path)
        if file is None:
            self.layer.rmdir(*self.place(path))
            self.note(path, None)
        else:
            self.layer.unlink(*self.place(path))
            if file.versioned:
                self.note(path, None)

    @rule(old=paths, new=paths)
    def rename(self, old: str, new: str) -> None:
        if self.kind(old) is None or not self.parent_is_dir(new) or new == old or new.startswith(old + "/"):
            return
        moving, target = self.world.files[old], self.kind(new)
        if target is not None and ((moving is None) != (target == "dir") or self.below(new)):
            return
        if moving is not None and self.world.files.get(new) is moving:
            self.layer.rename(*self.place(old), *self.place(new))
            return
        if moving is not None:
            self.settle(moving)
        self.layer.rename(*self.place(old), *self.place(new))
        tree = [old, *self.below(old)]
        carried = {path: self.world.files.pop(path) for path in tree}
        self.world.files.update({new + path[len(old) :]: file for path, file in carried.items()})
        for path in tree:
            if path == old or self.alive(path):
                last = self.world.history[path][-1]
                self.note(new + path[len(old) :], last)
        for path in tree:
            if path == old or self.alive(path):
                self.note(path, None)

    @rule(old=paths, new=paths)
    def exchange(self, old: str, new: str) -> None:
        one, other = self.world.files.get(old), self.world.files.get(new)
        if one is None or other is None or one is other:
            return
        self.settle(one)
        self.settle(other)
        self.layer.rename(*self.place(old), *self.place(new), 2)
        self.world.files[old], self.world.files[new] = other, one
        self.note(old, other.content)
        self.note(new, one.content)

    @rule(old=paths, new=paths)
    def link(self, old: str, new: str) -> None:
        file = self.world.files.get(old)
        if file is None or not self.parent_is_dir(new) or self.kind(new) is not None:
            return
        self.settle(file)
        self.layer.link(self.node(old), *self.place(new))
        self.world.files[new] = file
        self.note(new, file.content)

    @rule(path=paths, mode=st.sampled_from([0o600, 0o640, 0o755]))
    def chmod(self, path: str, mode: int) -> None:
        file = self.world.files.get(path)
        if file is None:
            return
        changes = file.mode != mode
        if changes and file.versioned:
            self.settle(file)
        self.layer.set_mode(self.node(path), mode, *self.layer._owner)
        file.mode = mode
        if changes and file.versioned:
            for other in self.paths_of(file):
                self.note(other, file.content)

    @rule()
    def forget_nodes(self) -> None:
        for inode in list(self.layer.names.by_ino):
            if inode != 1:
                self.layer.forget(inode)

    # -- turns and ends -------------------------------------------------------------------------------------------

    @rule()
    def seal(self) -> None:
        for file in dict.fromkeys(file for file in self.world.files.values() if file is not None):
            self.settle(file)
        ref = self.layer.seal()
        assert self.layer.seal() == ref
        assert files_in(self.blobs, ref.tree_id) == self.contents(self.world)
        assert read_root(self.blobs, ref.oplog_id).usage == self.layer.usage == measure(self.blobs, ref.tree_id)
        self.sealed = ref, copy.deepcopy(self.world)
        self.commits.append(self.sealed)

    @precondition(lambda self: self.sealed is not None)
    @rule()
    def adopt(self) -> None:
        assert self.sealed is not None
        self.base, self.committed = self.sealed
        self.layer.adopt(self.base)
        self.sealed = None
        self.turn += 1
        self.layer.begin_turn(self.turn)

    @rule()
    def rollback(self) -> None:
        self.look()
        self.layer.rollback()
        for opened in self.open_files:
            self.layer.release(opened.handle)
        self.open_files.clear()
        self.world = copy.deepcopy(self.committed)
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
        if any(self.kind(one) == "file" for one in above):
            return
        self.seal()  # restoring does that first
        before = self.contents(self.world)
        after = self.contents(then)
        if path:
            wanted = {one: what for one, what in after.items() if one == path or one.startswith(path + "/")}
            kept = {one: what for one, what in before.items() if one != path and not one.startswith(path + "/")}
            after = {**kept, **dict.fromkeys(above), **wanted}
        if writes is not None:
            with pytest.MonkeyPatch.context() as patch, suppress(Death):
                patch.setattr(layer_log, "os", MortalOs(writes))
                patch.setattr(layer_log, "_BATCH_FRAMES", 2)
                self.layer.restore(ref, path.encode())
            self.abandon()
            self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
            assert recovered is None
        else:
            self.layer.restore(ref, path.encode())
        found = self.seen()
        if writes is not None and found != after:
            assert found == before, "all of it or nothing"
            return
        assert found == after
        self.take(found)

    def contents(self, world: World) -> dict[str, bytes | None]:
        return {path: file.content if file is not None else None for path, file in world.files.items()}

    def seen(self) -> dict[str, bytes | None]:
        """Return what the layer holds by path; None for directories."""
        found: dict[str, bytes | None] = {}
        stack = [("", self.layer.root)]
        while stack:
            prefix, directory = stack.pop()
            for name, node in self.layer.entries(directory):
                path = prefix + name.decode()
                if isinstance(node, DirNode):
                    found[path] = None
                    stack.append((path + "/", node))
                else:
                    assert isinstance(node, FileNode)
                    handle = self.layer.open(node)
                    found[path] = self.layer.read(handle, 0, 1 << 20)
                    self.layer.release(handle)
        return found

    def take(self, found: dict[str, bytes | None]) -> None:
        """Let the model have what was restored: the files as the layer has them, and what went on top of histories."""
        files: dict[int, File] = {}
        self.world.files = {}
        for path, what in found.items():
            self.world.files[path] = None
            if what is not None:
                node = self.node(path)
                file = files.setdefault(node.ino, File(what, node.mode & 0o7777, versioned=True))
                self.world.files[path] = file
        for opened in self.open_files:
            opened.file = files.get(opened.handle.node.ino, opened.file)
        for path in {*self.world.history, *found}:
            expected = self.world.history.setdefault(path, [])
            records = self.layer._view().records(path.encode())
            assert len(records) >= len(expected)
            for record in records[len(expected) :]:
                assert record.op in {"restore", "delete", "link"}
                if record.deleted:
                    expected.append(None)
                elif path in found and found[path] is None:
                    expected.append("dir")
                else:
                    with self.layer.open_version(record) as version:
                        expected.append(version.read())
            assert not expected or expected[-1] == ("dir" if path in found and found[path] is None else found.get(path))

    @rule(told=st.booleans())
    def kill(self, told: bool) -> None:
        """The process dies; perhaps after the journal committed what it had sealed."""
        for file in self.world.files.values():
            if file is not None and not file.versioned and file.content:
                file.unversioned = True
        self.abandon()
        if told and self.sealed is not None:
            self.base, self.committed = self.sealed
            self.sealed = None
        self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
        assert recovered is None

    @rule()
    def take_over(self) -> None:
        """The process dies, and a newer epoch opens the workspace."""
        self.look()
        self.abandon()
        self.epoch += 1
        self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
        expected, before = self.contents(self.world), self.contents(self.committed)
        if recovered is not None:
            assert files_in(self.blobs, recovered.tree_id) == expected
        else:
            assert expected == before
        self.recovered = recovered
        self.world = copy.deepcopy(self.committed)
        self.sealed = None
        self.layer.begin_turn(self.turn)

    @rule()
    def go_elsewhere(self) -> None:
        """Everything is committed, and the workspace opened on a node that has nothing of it."""
        self.seal()
        self.adopt()
        self.given.clear()  # numbers of what was rolled back are known where that happened
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
        found = self.seen()
        assert found == self.contents(self.world)
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
                assert node.nlink == len(self.paths_of(file))
        files = {id(file): len(file.content) for file in self.world.files.values() if file is not None}
        directories = list(self.world.files.values()).count(None)
        assert self.layer.usage == (sum(files.values()), len(files) + directories)

    @rule()
    def look(self) -> None:
        """Read all histories: each version is what the model has, under a number that never meant anything else."""
        for path in {*self.world.history, *self.given}:
            expected = self.world.history.get(path, [])
            try:
                history = self.layer.history(path)
            except NotFound:
                history = []
            assert len(history) == len(expected), (path, history, expected)
            given = self.given.setdefault(path, {})
            last = 0
            for item, what in zip(history, expected, strict=True):
                assert item.iteration > last
                last = item.iteration
                if isinstance(what, bytes):
                    with self.layer.at(path, item.iteration) as file:
                        assert file.read() == what
                    assert item.size == len(what)
                else:
                    assert (item.op == "delete") == (what is None)
                assert given.setdefault(item.iteration, (what, item.timestamp)) == (what, item.timestamp)


TestLayerModel = LayerModel.TestCase
TestLayerModel.settings = settings(max_examples=60, stateful_step_count=40)
