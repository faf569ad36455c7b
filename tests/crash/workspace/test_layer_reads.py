"""Each read of the blob store that an operation of a layer makes fails once; the operation is tried again, or not.

An operation that failed has logged nothing and changed nothing, in memory and on disk. Tried again it succeeds, the
next seal has what it did, and a layer whose process was killed opens again with it.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any, Final

import pytest

from chronicle.blobs import readers
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.system.fallocate import KEEP_SIZE, PUNCH_HOLE
from chronicle.workspace.layer import file_data
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.apply import RENAME_EXCHANGE
from chronicle.workspace.layer.state.node import FileNode, LinkNode
from chronicle.workspace.port import LayerSpec
from tests.layers import abandon, file_at, place, read, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer
    from chronicle.workspace.port import TreeRef

LARGE: Final = b"".join(b"%06d\n" % number for number in range(30_000))
"""Content of several chunks."""


class FailingReads(MemoryBlobStore):
    """A blob store of which one read fails."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self._fails_at: int | None = None

    def start(self, fails_at: int | None) -> None:
        """Count reads from now on; let one of them fail."""
        self.reads, self._fails_at = 0, fails_at

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, or fail."""
        self.reads += 1
        if self.reads == self._fails_at:
            raise Unavailable("made to fail")
        return super().get(blob_id)


def put(layer: Layer, path: str, data: bytes) -> None:
    handle = layer.create(*place(layer, path), 0o644, *layer.owner)
    layer.write(handle, 0, data)
    layer.release(handle)


def change(layer: Layer, path: str, offset: int, data: bytes) -> None:
    handle = layer.open(file_at(layer, path))
    try:
        layer.write(handle, offset, data)
    finally:
        layer.release(handle)


def truncated_by_opening(layer: Layer, path: str) -> None:
    layer.release(layer.open(file_at(layer, path), truncate=True))


def cut(layer: Layer, path: str, size: int) -> None:
    layer.truncate(file_at(layer, path), size)


def punch(layer: Layer, path: str) -> None:
    handle = layer.open(file_at(layer, path))
    try:
        layer.allocate(handle, KEEP_SIZE | PUNCH_HOLE, 0, 3)
    finally:
        layer.release(handle)


def remove(layer: Layer, path: str) -> None:
    layer.unlink(*place(layer, path))


def move(layer: Layer, old: str, new: str, flags: int = 0) -> None:
    layer.rename(*place(layer, old), *place(layer, new), flags)


def link(layer: Layer, path: str, new: str) -> None:
    node = layer.resolve(path.encode())
    assert node is not None
    layer.link(node, *place(layer, new))


def mode(layer: Layer, path: str) -> None:
    node = layer.resolve(path.encode())
    assert node is not None
    layer.set_mode(node, 0o600, *layer.owner)


def xattr(layer: Layer, path: str) -> None:
    node = layer.resolve(path.encode())
    assert node is not None
    layer.set_xattr(node, b"user.x", b"1")


def times(layer: Layer, path: str) -> None:
    node = layer.resolve(path.encode())
    assert node is not None
    layer.set_times(node, 5, 7)


def make(layer: Layer, path: str) -> None:
    layer.make(*place(layer, path), stat.S_IFDIR | 0o755, *layer.owner)


class Past:
    """A workspace with two commits, on which operations are tried."""

    def __init__(self, home: Path) -> None:
        self.blobs = FailingReads()
        layer, _ = open_layer(LayerSpec("w", home, None, 1, 1), self.blobs, ManualClock())
        owner = layer.owner
        for directory in ("s", "d", "d/sub", "g", "empty", "plain"):
            make(layer, directory)
        put(layer, "a", b"old content")
        link(layer, "a", "s/b")
        put(layer, "d/sub/x", b"x")
        link(layer, "d/sub/x", "y")
        put(layer, "g/w", b"w")
        link(layer, "g/w", "v")
        put(layer, "plain/one", b"one name")
        put(layer, "large", LARGE)
        link(layer, "large", "s/large")
        layer.make(layer.root, b"sym", stat.S_IFLNK | 0o777, *owner, target=b"a")
        link(layer, "sym", "s/sym")
        layer.make(layer.root, b"fifo", stat.S_IFIFO | 0o644, *owner)
        link(layer, "fifo", "s/fifo")
        put(layer, "gone", b"removed before the second commit")
        link(layer, "gone", "plain/gone")
        put(layer, "alone", b"removed, too")
        self.first = layer.seal()
        layer.adopt(self.first)
        layer.begin_turn(2)
        for path in ("gone", "plain/gone", "alone", "y"):
            remove(layer, path)
        link(layer, "d/sub/x", "y")
        change(layer, "plain/one", 0, b"changed")
        put(layer, "new", b"of the second commit")
        link(layer, "new", "s/new")
        self.base = layer.seal()
        layer.adopt(self.base)
        layer.close()

    def open(self, directory: Path, base: TreeRef | None = None) -> Layer:
        """Open the workspace on a node, the same one again if the directory is."""
        layer, _ = open_layer(LayerSpec("w", directory, base or self.base, 1, 3), self.blobs, ManualClock())
        return layer


ACTS: Final[dict[str, Callable[[Layer, Past], object]]] = {
    "write": lambda layer, _: change(layer, "a", 0, b"new"),
    "write-other-name": lambda layer, _: change(layer, "s/b", 3, b"new"),
    "write-part": lambda layer, _: change(layer, "large", 70_000, b"new"),
    "open-truncating": lambda layer, _: truncated_by_opening(layer, "a"),
    "truncate": lambda layer, _: cut(layer, "a", 0),
    "truncate-shorter": lambda layer, _: cut(layer, "a", 3),
    "truncate-longer": lambda layer, _: cut(layer, "s/large", len(LARGE) + 10),
    "truncate-same": lambda layer, _: cut(layer, "a", 11),
    "punch": lambda layer, _: punch(layer, "a"),
    "mode": lambda layer, _: mode(layer, "a"),
    "times-symlink": lambda layer, _: times(layer, "sym"),
    "mode-fifo": lambda layer, _: mode(layer, "s/fifo"),
    "xattr": lambda layer, _: xattr(layer, "a"),
    "times": lambda layer, _: times(layer, "s/b"),
    "unlink": lambda layer, _: remove(layer, "a"),
    "unlink-other-name": lambda layer, _: remove(layer, "s/b"),
    "unlink-symlink": lambda layer, _: remove(layer, "s/sym"),
    "rmdir": lambda layer, _: layer.rmdir(*place(layer, "empty")),
    "link": lambda layer, _: link(layer, "s/b", "c"),
    "link-first": lambda layer, _: link(layer, "plain/one", "c"),
    "create": lambda layer, _: put(layer, "plain/two", b"two"),
    "mkdir": lambda layer, _: make(layer, "plain/below"),
    "rename": lambda layer, _: move(layer, "a", "plain/a"),
    "rename-over": lambda layer, _: move(layer, "plain/one", "s/b"),
    "rename-linked-over-linked": lambda layer, _: move(layer, "s/b", "y"),
    "rename-directory": lambda layer, _: move(layer, "d", "e"),
    "rename-plain-directory": lambda layer, _: move(layer, "plain", "s/plain"),
    "rename-directory-over": lambda layer, _: move(layer, "d", "empty"),
    "exchange": lambda layer, _: move(layer, "a", "y", RENAME_EXCHANGE),
    "exchange-directories": lambda layer, _: move(layer, "d", "g", RENAME_EXCHANGE),
    "exchange-file-and-directory": lambda layer, _: move(layer, "a", "d/sub", RENAME_EXCHANGE),
    "restore": lambda layer, past: layer.restore(past.first),
    "restore-path": lambda layer, past: layer.restore(past.first, b"plain"),
}


def look(layer: Layer) -> dict[str, Any]:
    """Return what is at each path, with the other names of the same file."""
    names: dict[int, set[str]] = {}
    found = list(walk(layer))
    for path, node in found:
        names.setdefault(node.ino, set()).add(path)
    seen: dict[str, Any] = {}
    for path, node in found:
        held = read(layer, node) if isinstance(node, FileNode) else None
        target = node.target if isinstance(node, LinkNode) else None
        seen[path] = (node.mode, dict(node.xattrs), node.nlink, sorted(names[node.ino]), held, target)
    return seen


def state_of(past: Past, directory: Path, ref: TreeRef) -> dict[str, Any]:
    """Return what a tree holds, as another node sees it."""
    layer = past.open(directory, ref)
    try:
        return look(layer)
    finally:
        layer.close()


@pytest.fixture(scope="module", autouse=True)
def _every_read_reaches_the_store() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_LARGEST_CACHED_BYTES", -1)
        patch.setattr(file_data, "_FETCHED_BYTES", 10_000)
        yield


@pytest.mark.parametrize("dies", [False, True], ids=["sealed", "killed"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "tried-again"])
@pytest.mark.parametrize("name", ACTS)
def test_an_error_at_every_read(tmp_path: Path, name: str, again: bool, dies: bool) -> None:
    past = Past(tmp_path / "past")
    act = ACTS[name]
    before = state_of(past, tmp_path / "before", past.base)
    layer = past.open(tmp_path / "whole")
    past.blobs.start(None)
    act(layer, past)
    reads = past.blobs.reads
    after = state_of(past, tmp_path / "after", layer.seal())
    layer.close()
    assert reads
    assert after != before or name in ("times", "truncate-same", "times-symlink")
    for fails_at in range(1, reads + 1):
        node = tmp_path / str(fails_at)
        where = f"read {fails_at} of {reads}"
        layer = past.open(node)
        logged, changed = layer.log_end, layer.changed
        past.blobs.start(fails_at)
        failed = False
        try:
            act(layer, past)
        except Unavailable:
            failed = True
        past.blobs.start(None)
        if failed:
            assert (layer.log_end, layer.changed) == (logged, changed), where
            if again:
                act(layer, past)
        expected = after if again or not failed else before
        if dies:
            abandon(layer)
            layer = past.open(node)
            assert look(layer) == expected, where
        ref = layer.seal()
        if expected is not before:
            assert ref != past.base, where
        layer.adopt(ref)
        assert state_of(past, tmp_path / f"{fails_at}-elsewhere", ref) == expected, where
        assert look(layer) == expected, where
        layer.close()
