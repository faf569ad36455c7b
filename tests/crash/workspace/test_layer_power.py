"""Power is lost at any write of a layer: what is opened afterwards is consistent, and has everything that was synced.

A random story of file operations, syncs, seals, commits and rollbacks is lived through on a recorded disk
(`tests.crash.power`). After every few calls the disk as a loss of power may leave it is made, several times over, and
opened. Blobs are durable when they are put, which `tests/crash/blobs/test_blob_puts.py` shows.

What must hold of the tree that is found:

* Its names are those after some step, none before the last sync, seal or rollback: operations are kept in order.
* Of each file, every byte is one that it had, there, at some moment since it was last synced or committed. What never
  was may hold anything that was ever written to it, or nothing.
* It can be sealed, committed and read; every blob of it is there.
* A newer epoch finds the very same as `recovered`, and starts from the last commit.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.system import atomic_files
from chronicle.system import boot as system_boot
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.layer import durability, entries, file_data, open_files, opening, workspace_home
from chronicle.workspace.layer import layer as layer_module
from chronicle.workspace.layer.disk import files as layer_files
from chronicle.workspace.layer.disk import log, undo_file, version_file
from chronicle.workspace.layer.disk.data_file import DataFile
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.crash.power import Disk, NoSyncOs, RecordingOs, RecordingPath, opened
from tests.layers import abandon, contents

if TYPE_CHECKING:
    from chronicle.workspace.layer.layer import Handle, Layer

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
NAMES = ["a", "b", "c"]
SIZES = [1, 100, 511, 513, 4096, 9000]
BLOCK = 128
"""Bytes that are compared at once: looking at each alone was most of these tests' time."""
ACTS = (
    ["create"] * 4 + ["write"] * 8 + ["fsync"] * 3 + ["close"] * 3
    + ["open", "open", "rename", "rename", "remove", "mkdir", "link", "truncate", "truncate", "mode"]
    + ["seal", "adopt", "adopt", "rollback", "empty", "exchange", "restore"] + ["forget"] * 4
)  # fmt: skip
OVER_STORED_CONTENT = (
    ["create"] + ["write"] * 12 + ["fsync"] * 8 + ["close"] * 6 + ["open"] * 2 + ["truncate"] * 2
    + ["seal", "adopt"] + ["forget"] * 8
)  # fmt: skip
"""What files of which a part is here are for."""


@dataclass(eq=False)
class File:
    """What a file was at each moment since it was last durable."""

    content: bytes = b""
    was: list[bytes] = field(default_factory=lambda: [b""])
    """From the last sync on, that included."""
    synced: bool = False

    def write(self, offset: int, data: bytes) -> None:
        before = self.content.ljust(offset, b"\0")
        self.change(before[:offset] + data + before[offset + len(data) :])

    def change(self, content: bytes) -> None:
        self.content = content
        self.was.append(content)

    def sync(self) -> None:
        self.was = [self.content]
        self.synced = True

    def odd_byte(self, found: bytes) -> str | None:
        """Return what cannot be; None if each byte is one that was there."""
        candidates = self.was if self.synced else [b"", *self.was]
        if not min(map(len, candidates)) <= len(found) <= max(map(len, candidates)):
            return f"{len(found)} bytes, which it never had"
        for start in range(0, len(found), BLOCK):
            block = found[start : start + BLOCK]
            if any(content[start : start + BLOCK] == block for content in candidates):
                continue
            for index, byte in enumerate(block, start):
                if any(index < len(content) and content[index] == byte for content in candidates):
                    continue
                if byte == 0 and (not self.synced or any(len(content) <= index for content in candidates)):
                    continue  # it was beyond the end
                there = [(len(content), content[index : index + 1].hex()) for content in candidates]
                return f"{byte:02x} at {index} of {len(found)}, where it had {there}, synced: {self.synced}"
        return None


Tree = dict[str, File | None]


class Life:
    """A workspace in which a random story happens."""

    def __init__(self, directory: Path, seed: int, acts: list[str]) -> None:
        self.random = random.Random(seed)
        self.acts = acts
        self.blobs = MemoryBlobStore()
        self.directory = directory
        self.layer, _ = open_layer(self.spec(directory, None, 1), self.blobs, ManualClock())
        self.base: TreeRef = self.layer.base
        self.committed: dict[str, bytes | None] = {}
        self.linked: Tree = {}
        """Which names of the last commit are one file."""
        self.sealed: tuple[TreeRef, dict[str, bytes | None], Tree] | None = None
        self.turn = 1
        self.tree: Tree = {}
        self.handles: list[tuple[File, Handle]] = []
        self.steps: list[Tree] = [{}]
        """The names after each operation since the last that made them durable, that included."""
        self.doing = ""

    @staticmethod
    def spec(directory: Path, base: TreeRef | None, epoch: int, turn: int = 1) -> LayerSpec:
        return LayerSpec("w", directory, base, epoch, turn)

    def place(self, path: str) -> tuple[DirNode, bytes]:
        parent, _, name = path.rpartition("/")
        node = self.layer.resolve(parent.encode())
        assert isinstance(node, DirNode)
        return node, name.encode()

    def node(self, path: str) -> FileNode:
        node = self.layer.resolve(path.encode())
        assert isinstance(node, FileNode)
        return node

    def step(self) -> None:
        """Do something. What it does is noted before it does it, for it may be half done when power goes."""
        random_ = self.random
        files = [path for path, file in self.tree.items() if file is not None]
        directories = ["", *(path + "/" for path, file in self.tree.items() if file is None)]
        path = random_.choice(directories) + random_.choice(NAMES)
        act = random_.choice(self.acts)
        self.doing = f"{act} {path}"
        match act:
            case "create" if path not in self.tree and path.count("/") < 3:
                file = File()
                self.will({**self.tree, path: file})
                self.handles.append((file, self.layer.create(*self.place(path), 0o644, *self.layer.owner)))
            case "mkdir" if path not in self.tree and path.count("/") < 3:
                self.will({**self.tree, path: None})
                self.layer.make(*self.place(path), 0o40755, *self.layer.owner)
            case "open" if files:
                path = random_.choice(files)
                self.handles.append((self.file(path), self.layer.open(self.node(path))))
            case "empty" if files:
                path = random_.choice(files)
                file = self.file(path)
                file.change(b"")
                self.handles.append((file, self.layer.open(self.node(path), truncate=True)))
            case "write" if self.handles:
                file, handle = random_.choice(self.handles)
                offset = random_.choice([0, 0, len(file.content), random_.choice(SIZES)])
                data = bytes([random_.randrange(1, 256)]) * random_.choice(SIZES)
                file.write(offset, data)
                self.layer.write(handle, offset, data)
            case "truncate" if files:
                path = random_.choice(files)
                file = self.file(path)
                size = random_.choice([0, *SIZES])
                file.change(file.content[:size].ljust(size, b"\0"))
                self.layer.truncate(self.node(path), size)
            case "fsync" if self.handles:
                file, handle = random_.choice(self.handles)
                self.layer.fsync(handle.node)
                file.sync()
                self.steps = [self.tree]
            case "close" if self.handles:
                file, handle = self.handles.pop(random_.randrange(len(self.handles)))
                self.layer.release(handle)
            case "rename" if files:
                old = random_.choice(files)
                if path != old and self.tree.get(path, ...) is not None and self.tree.get(path) is not self.tree[old]:
                    tree = dict(self.tree)
                    tree[path] = tree.pop(old)
                    self.will(tree)
                    self.layer.rename(*self.place(old), *self.place(path))
            case "exchange" if len(files) > 1:
                old, new = random_.sample(files, 2)
                if self.tree[old] is not self.tree[new]:
                    self.will({**self.tree, old: self.tree[new], new: self.tree[old]})
                    self.layer.rename(*self.place(old), *self.place(new), 2)
            case "link" if files and path not in self.tree:
                old = random_.choice(files)
                self.will({**self.tree, path: self.tree[old]})
                self.layer.link(self.node(old), *self.place(path))
            case "remove" if path in self.tree and not any(other.startswith(path + "/") for other in self.tree):
                is_file = self.tree[path] is not None
                self.will({other: file for other, file in self.tree.items() if other != path})
                (self.layer.unlink if is_file else self.layer.rmdir)(*self.place(path))
            case "mode" if files:
                self.layer.set_mode(self.node(random_.choice(files)), random_.choice([0o600, 0o755]), 0, 0)
            case "seal":
                self.seal()
            case "restore":
                self.seal()  # restoring does that first
                self.will(self.committed_tree())
                self.layer.restore(self.base)
                for index, (_, handle) in enumerate(self.handles):
                    at = self.layer.names.path_of(handle.node)
                    if at is not None:  # the same file, and what it holds now
                        self.handles[index] = self.file(at.decode()), handle
            case "forget":
                self.forget_contents()
            case "adopt" if self.sealed is not None:
                self.base, self.committed, self.linked = self.sealed  # the journal has it
                self.sealed = None
                self.layer.adopt(self.base)
                self.turn += 1
                self.layer.begin_turn(self.turn)
            case "rollback" if random_.random() < 0.3:
                self.sealed = None
                self.will(self.committed_tree())
                self.layer.rollback()
                for _, handle in self.handles:
                    self.layer.release(handle)
                self.handles.clear()
                self.steps = [self.tree]

    def seal(self) -> None:
        ref = self.layer.seal()
        for file in filter(None, self.tree.values()):
            file.sync()
        self.steps = [self.tree]
        self.sealed = ref, self.contents(self.tree), self.tree

    def committed_tree(self) -> Tree:
        """Return what was committed, as files of which nothing else was seen."""
        fresh: dict[int, File] = {}
        for name, linked in self.linked.items():
            content = self.committed[name]
            if linked is not None and content is not None:
                fresh.setdefault(id(linked), File(content, [content], synced=True))
        return {name: None if one is None else fresh[id(one)] for name, one in self.linked.items()}

    def forget_contents(self) -> None:
        """Have the contents of closed files in the blob store only, as on a node that did not write them."""
        files = self.layer._files
        for ino, (number, _) in list(files.warm.items()):
            node = self.layer.names.by_ino.get(ino)
            if isinstance(node, FileNode) and not node.dirty and not node.opens:
                node.data = None
                files.unindex(ino)
                files.drop_data(DataFile(number))

    def file(self, path: str) -> File:
        file = self.tree[path]
        assert file is not None
        return file

    def will(self, tree: Tree) -> None:
        self.tree = tree
        self.steps.append(tree)

    @staticmethod
    def contents(tree: Tree) -> dict[str, bytes | None]:
        return {path: None if file is None else file.content for path, file in tree.items()}


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the system says of which boot this is."""
    path = tmp_path / "boot_id"
    path.write_text("before the loss of power\n")
    monkeypatch.setattr(system_boot, "_BOOT_ID", path)
    return path


def look(layer: Layer) -> dict[str, bytes | None]:
    """Return the tree, and read all versions."""
    found = contents(layer)
    for path in found:
        for record in layer.history_view().records(path.encode()):
            if record.content is not None or record.held is not None:
                with layer.histories.open_version(record) as file:
                    file.read()
    return found


def judge(life: Life, found: dict[str, bytes | None]) -> str | None:
    """Return what is wrong with a tree; None if it may be."""
    wrong = []
    for tree in life.steps:
        if tree.keys() != found.keys() or any((tree[path] is None) != (found[path] is None) for path in tree):
            continue
        judged = [(path, file.odd_byte(found[path] or b"")) for path, file in tree.items() if file is not None]
        odd = [(path, what) for path, what in judged if what is not None]
        if not odd:
            return None
        wrong.append(f"contents: {odd}")
    shown = {path: None if content is None else len(content) for path, content in found.items()}
    return f"{wrong or 'names'}: {shown}; wanted one of {[sorted(tree) for tree in life.steps]}"


def after_power_loss(life: Life, disk: Disk, target: Path, generator: random.Random) -> str | None:
    """Make a disk that lost power, open it, and return what is wrong."""
    disk.lose_power(generator, target / "layers")
    shutil.copytree(target / "layers", target / "taken")
    layer, recovered = open_layer(Life.spec(target / "layers", life.base, 1), life.blobs, ManualClock())
    try:
        if recovered is not None:
            return "a layer of the same epoch was given up"
        found = look(layer)
        wrong = judge(life, found)
        if wrong is not None:
            return wrong
        abandon(layer)
        layer, recovered = open_layer(Life.spec(target / "layers", life.base, 1), life.blobs, ManualClock())
        if recovered is not None or look(layer) != found:
            return "another opening finds something else"
        ref = layer.seal()
        layer.adopt(ref)
        if files_in(life.blobs, ref.tree_id) != found or look(layer) != found:
            return "what is sealed is not what was there"
        TreeChecker(life.blobs).check(ref)
    finally:
        layer.close()
    taken, recovered = open_layer(Life.spec(target / "taken", life.base, 2, 9), life.blobs, ManualClock())
    try:
        if look(taken) != life.committed:
            return "a newer epoch does not begin with the last commit"
        if found != life.committed and (recovered is None or files_in(life.blobs, recovered.tree_id) != found):
            return "a newer epoch did not recover what was there"
    finally:
        taken.close()
    return None


class Outage:
    """Lives a story on a recorded disk, and looks again and again at what a loss of power would leave of it."""

    def __init__(
        self, directory: Path, boot: Path, seed: int, patch: pytest.MonkeyPatch, acts: list[str] = ACTS
    ) -> None:
        self.cases = 0
        self._target = directory / "lost"
        self._boot = boot
        self._seed = seed
        self._random = random.Random(seed)
        self._looking = True
        root = directory / "disk"
        root.mkdir()
        self.disk = Disk(root)
        self.recorder = RecordingOs(self.disk)
        for module in MODULES:
            patch.setattr(module, "os", self.recorder)
        patch.setattr(layer_files, "open", opened(self.recorder), raising=False)
        patch.setattr(log, "_BATCH_FRAMES", 2)  # what counts together is in several writes
        if seed % 2:  # most files are large, then
            patch.setattr(file_data, "_COPY_SYNC_BYTES", 600)
        if (
            seed % 4 in (1, 2) or acts is OVER_STORED_CONTENT
        ):  # a part of most files is here, of those that are not here at all
            patch.setattr(file_data, "_FETCHED_BYTES", 400)
        patch.setattr(RecordingPath, "disk", self.disk)
        self.life = Life(RecordingPath(root), seed, acts)
        self.recorder.before_call = self._sometimes
        self._looking = False

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.life.step()
            self.look()
        self.disk.check()
        self.recorder.before_call = lambda: None
        abandon(self.life.layer)

    def _sometimes(self) -> None:
        """In the middle of a step."""
        if self._random.random() < 0.2:
            self.look()

    def look(self) -> None:
        """Lose power now, and open what is left."""
        if self._looking:
            return
        self._looking = True
        self._boot.write_text("after the loss of power\n")
        quiet = NoSyncOs()
        with pytest.MonkeyPatch.context() as patch:
            for module in MODULES:
                patch.setattr(module, "os", quiet)
            patch.delattr(layer_files, "open")
            patch.setattr(RecordingPath, "disk", None)
            wrong = after_power_loss(self.life, self.disk, self._target, self._random)
        assert wrong is None, f"seed {self._seed}, case {self.cases}, {self.life.doing}: {wrong}"
        shutil.rmtree(self._target)
        self._boot.write_text("before the loss of power\n")
        self.cases += 1
        self._looking = False


@pytest.mark.parametrize("seed", range(4))
def test_power_lost_at_any_moment(tmp_path: Path, boot: Path, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setenv("CHRONICLE_WARM_BYTES", "0")
        outage = Outage(tmp_path, boot, seed, patch)
        outage.live(steps=80)
    assert outage.cases > 80


@pytest.mark.parametrize("seed", range(4))
def test_power_lost_while_a_part_of_a_large_file_is_here(tmp_path: Path, boot: Path, seed: int) -> None:
    random_ = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        outage = Outage(tmp_path, boot, seed, patch, ["adopt"])
        patch.setattr(file_data, "_FETCHED_BYTES", 400)
        life, file = outage.life, File()
        life.will({"a": file})
        handle = life.layer.create(*life.place("a"), 0o644, *life.layer.owner)
        file.write(0, b"s" * 20_000)
        life.layer.write(handle, 0, b"s" * 20_000)
        for _ in range(4):
            life.layer.release(handle)
            life.seal()
            life.step()
            life.forget_contents()
            handle = life.layer.open(life.node("a"))
            assert handle.node.data is None
            for _ in range(12):
                act = random_.choice(["write"] * 5 + ["fsync"] * 2 + ["flush", "truncate"])
                life.doing = f"{act} a part"
                if act == "write":
                    offset, data = random_.randrange(20_000), bytes([random_.randrange(1, 256)]) * 600
                    file.write(offset, data)
                    life.layer.write(handle, offset, data)
                elif act == "truncate":
                    size = len(file.content) + random_.choice([-700, 700])
                    file.change(file.content[:size].ljust(size, b"\0"))
                    life.layer.truncate(handle.node, size, handle)
                elif act == "flush":
                    life.layer.flush(handle)
                else:
                    life.layer.fsync(handle.node)
                    file.sync()
                for _ in range(3):
                    outage.look()
        life.handles.append((file, handle))
        outage.live(0)
    assert outage.cases > 140


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("acts", [ACTS, OVER_STORED_CONTENT], ids=["any", "over stored content"])
@pytest.mark.parametrize("seed", range(100, 140))
def test_power_lost_thousands_of_times(tmp_path: Path, boot: Path, seed: int, acts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        outage = Outage(tmp_path, boot, seed, patch, acts)
        outage.live(steps=420)
    assert outage.cases > 440
