"""Edits of workspaces that nobody has open: files put and removed, their directories, names and versions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import InvalidInput
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.committed.files import CommittedFiles
from chronicle.workspace.content.content import store_bytes
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.history.edit import put_file, remove_file
from chronicle.workspace.history.oplog import operations, read_root
from chronicle.workspace.history.rewind import rewound
from chronicle.workspace.port import LayerSpec
from tests.usage import measure

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.workspace.port import TreeRef

NOW_MS = 1_700_000_000_000


class Store:
    """A workspace without anybody in it."""

    def __init__(self) -> None:
        self.blobs = MemoryBlobStore()
        self.ref: TreeRef | None = None
        self.turn = 0

    def put(self, path: str, data: bytes) -> int:
        self.turn += 1
        buffer = BlobBuffer(self.blobs)
        content = store_bytes(buffer, data)
        edited = put_file(buffer, self.ref, os.fsencode(path), content, self.turn, NOW_MS + self.turn)
        return self._done(buffer, edited.ref, edited.iteration)

    def remove(self, path: str) -> int:
        self.turn += 1
        buffer = BlobBuffer(self.blobs)
        edited = remove_file(buffer, self.ref, os.fsencode(path), self.turn, NOW_MS + self.turn)
        return self._done(buffer, edited.ref, edited.iteration)

    def _done(self, buffer: BlobBuffer, ref: TreeRef | None, iteration: int) -> int:
        buffer.flush()
        self.ref = ref
        assert ref is not None
        TreeChecker(self.blobs).check(ref)
        root = read_root(self.blobs, ref.oplog_id)
        assert root.usage == measure(self.blobs, ref.tree_id)
        return iteration

    @property
    def files(self) -> CommittedFiles:
        return CommittedFiles(self.blobs, self.ref)

    @property
    def kept_bytes(self) -> int:
        assert self.ref is not None
        return read_root(self.blobs, self.ref.oplog_id).kept_bytes

    def opened(self, tmp_path: Path) -> Path:
        """Change the workspace as an agent does, and return its root."""
        spec = LayerSpec("w", tmp_path / "layers", self.ref, epoch=1, turn=self.turn + 1)
        self.workspace = open_dir_workspace(spec, self.blobs, tmp_path / "files", ManualClock(NOW_MS)).workspace
        return self.workspace.root

    def seal(self) -> None:
        self.turn += 1
        self.ref = self.workspace.seal()


def test_the_first_file_of_a_workspace_and_its_directories() -> None:
    store = Store()
    assert store.put("a/b/c.txt", b"one") == 1
    assert store.ref is not None
    assert files_in(store.blobs, store.ref.tree_id) == {"a": None, "a/b": None, "a/b/c.txt": b"one"}
    assert [version.op for version in store.files.history("a")] == ["mkdir"]
    assert [(op.op, op.path) for op in operations(store.blobs, store.ref.oplog_id)] == [
        ("mkdir", b"a"),
        ("mkdir", b"a/b"),
        ("write", b"a/b/c.txt"),
    ]
    assert [store.files.status(path).links for path in ("a", "a/b", "a/b/c.txt")] == [3, 2, 1]


def test_each_put_is_a_version_and_an_equal_one_is_none() -> None:
    store = Store()
    assert [store.put("f", data) for data in (b"one", b"two", b"two", b"")] == [1, 2, 2, 3]
    assert store.remove("f") == 4
    assert store.put("f", b"") == 5
    found = [(version.iteration, version.op, version.turn) for version in store.files.history("f")]
    assert found == [(1, "write", 1), (2, "write", 2), (3, "write", 4), (4, "delete", 5), (5, "create", 6)]


def test_the_versions_of_all_puts_are_counted() -> None:
    store = Store()
    counted = []
    for data in (b"one", b"three", b"three", b"one"):
        store.put("f", data)
        counted.append(store.kept_bytes)
    store.remove("f")
    assert [*counted, store.kept_bytes] == [3, 8, 8, 11, 11]


def test_a_rewind_keeps_no_further_bytes() -> None:
    store = Store()
    store.put("f", b"one")
    then = store.ref
    store.put("f", b"three")
    buffer = BlobBuffer(store.blobs)
    assert store.ref is not None
    store.ref = rewound(buffer, store.ref, then, 3, NOW_MS)
    buffer.flush()
    assert (store.files.read("f"), store.kept_bytes) == (b"one", 8)


def test_a_put_keeps_mode_and_inode_number(tmp_path: Path) -> None:
    store = Store()
    root = store.opened(tmp_path)
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o755)
    store.seal()
    before = store.files.status("run.sh")
    store.put("run.sh", b"new")
    after = store.files.status("run.sh")
    assert (after.mode, after.ino, after.size) == (0o755, before.ino, 3)


def test_other_names_of_a_hard_linked_file_keep_the_old_content(tmp_path: Path) -> None:
    store = Store()
    root = store.opened(tmp_path)
    (root / "a").write_text("old")
    (root / "b").hardlink_to(root / "a")
    (root / "c").hardlink_to(root / "a")
    store.seal()
    store.put("a", b"new")
    assert [store.files.read(name) for name in "abc"] == [b"new", b"old", b"old"]
    assert [store.files.status(name).links for name in "abc"] == [1, 2, 2]
    assert store.files.status("a").ino != store.files.status("b").ino == store.files.status("c").ino
    store.remove("b")
    assert store.files.status("c").links == 1
    store.put("c", b"newer")
    reopened = Store()
    reopened.blobs, reopened.ref, reopened.turn = store.blobs, store.ref, store.turn
    root = reopened.opened(tmp_path / "again")
    assert sorted(path.name for path in root.iterdir() if path.name != ".chronicle") == ["a", "c"]
    assert (root / "c").read_text() == "newer"


def test_symlinks_are_removed_and_never_followed(tmp_path: Path) -> None:
    store = Store()
    root = store.opened(tmp_path)
    (root / "dir").mkdir()
    (root / "dir" / "file").write_text("inside")
    (root / "link").symlink_to("dir")
    (root / "out").symlink_to("/etc/passwd")
    store.seal()
    with pytest.raises(NotADirectoryError):
        store.put("link/file", b"x")
    with pytest.raises(OSError, match="symlink is there"):
        store.put("out", b"x")
    store.remove("out")
    store.remove("link")
    assert store.files.read("dir/file") == b"inside"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("dir", IsADirectoryError),
        ("dir/file/below", NotADirectoryError),
        ("..", InvalidInput),
        ("dir/../x", InvalidInput),
        ("/etc/passwd", InvalidInput),
        ("dir//x", InvalidInput),
        ("x\0y", InvalidInput),
        ("n" * 256, InvalidInput),
        (".chronicle/query", InvalidInput),
        ("", InvalidInput),
    ],
)
def test_paths_that_no_file_can_have(path: str, error: type[Exception]) -> None:
    store = Store()
    store.put("dir/file", b"x")
    ref = store.ref
    with pytest.raises(error):
        store.put(path, b"y")
    with pytest.raises(error):
        store.remove(path)
    assert store.ref == ref


def test_what_is_not_there_cannot_be_removed() -> None:
    store = Store()
    for path in ("nothing", "nothing/below"):
        with pytest.raises(FileNotFoundError):
            store.remove(path)


def test_a_large_content_and_the_same_tree_as_an_agent_makes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4_000
    store = Store()
    store.put("sub/large", data)
    other = Store()
    root = other.opened(tmp_path)
    (root / "sub").mkdir()
    (root / "sub" / "large").write_bytes(data)
    other.seal()
    assert store.ref is not None
    assert other.ref is not None
    assert store.ref.tree_id == other.ref.tree_id
