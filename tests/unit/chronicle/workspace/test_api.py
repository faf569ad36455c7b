"""The api presentation: a workspace used by calls, with the file semantics of a disk."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import InvalidInput, NotFound
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.api.workspace import ApiWorkspace, open_api_workspace
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, Quota, TreeRef
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def blobs() -> MemoryBlobStore:
    return MemoryBlobStore()


@pytest.fixture
def workspace(tmp_path: Path, blobs: MemoryBlobStore) -> Iterator[ApiWorkspace]:
    opened = open_api_workspace(LayerSpec("w", tmp_path / "layers", None, 1, 1), blobs)
    yield opened
    opened.close()


def commit(workspace: ApiWorkspace) -> TreeRef:
    ref = workspace.seal()
    workspace.adopt(ref)
    workspace.begin_turn(2)
    return ref


def refused(code: int, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(OSError, check=lambda error: error.errno == code):
        call(*arguments)


def test_modes_of_open(workspace: ApiWorkspace) -> None:
    with workspace.open("a", "w") as file:
        assert file.write("zwölf\n") == 6
    with workspace.open("a") as file:
        assert file.read() == "zwölf\n".encode()
        with pytest.raises(OSError, match="not open for writing|write"):
            file.write(b"x")
    with workspace.open("a", "ab") as file:
        assert file.tell() == 7
        file.seek(0)
        file.write(b"end")
    with workspace.open("a", "r+b") as file:
        file.seek(1)
        file.write(b"--")
        file.seek(0)
        assert file.read() == b"z--\xb6lf\nend"
        file.truncate(3)
    assert workspace.read("a") == b"z--"
    with workspace.open("a", "wb+") as file:
        file.seek(5)
        file.write(b"x")
        file.seek(0)
        assert file.read() == bytes(5) + b"x"
    refused(errno.EEXIST, workspace.open, "a", "xb")
    with workspace.open("b", "x", encoding="latin-1", newline="\r\n") as file:
        file.write("ä\n")
    assert workspace.read("b") == b"\xe4\r\n"
    for mode in ("", "rw", "rz", "rbt", "r++"):
        with pytest.raises(InvalidInput):
            workspace.open("a", mode)
    assert [item.op for item in workspace.history("b")] == ["write"]


def test_names(workspace: ApiWorkspace) -> None:
    workspace.make_directory("d/e", parents=True)
    workspace.write("d/e/f", b"1")
    refused(errno.EEXIST, workspace.make_directory, "d/e")
    workspace.make_directory("d/e", exist_ok=True)
    workspace.link("d/e/f", "d/g")
    assert workspace.status("d/g").links == 2
    workspace.rename("d/e", "e")
    assert [(path, status.kind.value) for path, status in workspace.walk()] == [
        ("d", "dir"),
        ("d/g", "file"),
        ("e", "dir"),
        ("e/f", "file"),
    ]
    with pytest.raises(FileExistsError):
        workspace.rename("d/g", "e", replace=False)
    workspace.rename("d", "e", exchange=True)
    assert workspace.read("d/f") == workspace.read("e/g") == b"1"
    refused(errno.ENOTEMPTY, workspace.remove_directory, "d")
    refused(errno.EISDIR, workspace.remove, "d")
    refused(errno.ENOTDIR, workspace.remove_directory, "e/g")
    refused(errno.ENOTDIR, workspace.write, "e/g/h", b"")
    refused(errno.ENOENT, workspace.write, "no/h", b"")
    refused(errno.ENOENT, workspace.read, "no")
    refused(errno.EISDIR, workspace.read, "d")
    refused(errno.ENAMETOOLONG, workspace.write, "n" * 256, b"")
    refused(errno.EROFS, workspace.make_directory, ".chronicle")
    for path in ("/a", "a//b", "a/../b", "./a"):
        with pytest.raises(InvalidInput):
            workspace.exists(path)
    workspace.remove_tree("d")
    assert [name for name, _ in workspace.list()] == ["e"]
    assert workspace.status("").kind is Kind.DIR
    refused(errno.EBUSY, workspace.remove_tree, "")


def test_symlinks_lead_within_the_workspace(workspace: ApiWorkspace) -> None:
    workspace.make_directory("d/e", parents=True)
    workspace.write("d/e/f", b"1")
    workspace.symlink("../d/e", "d/up")
    workspace.symlink("d/up/f", "file")
    workspace.symlink("/etc/passwd", "out")
    workspace.symlink("../../x", "above")
    workspace.symlink("loop", "loop")
    workspace.symlink("new", "to-new")
    assert workspace.read("file") == b"1"
    workspace.write("file", b"2")
    assert workspace.read("d/e/f") == b"2"
    assert workspace.status("file").kind is Kind.FILE
    assert workspace.status("file", follow_links=False).target == "d/up/f"
    assert [name for name, _ in workspace.list("d/up")] == ["f"]
    for path in ("out", "above"):
        refused(errno.ENOENT, workspace.read, path)
    refused(errno.ELOOP, workspace.read, "loop")
    workspace.write("to-new", b"3")
    assert workspace.read("new") == b"3"
    workspace.remove("file")
    assert not workspace.exists("file")
    assert workspace.exists("d/e/f")


def test_attributes(workspace: ApiWorkspace) -> None:
    workspace.write("a", b"12345")
    workspace.set_mode("a", 0o100751)
    workspace.set_mtime("a", 1_700_000_000_123_456_789)
    workspace.set_xattr("a", "user.x", b"\0")
    status = workspace.status("a")
    assert (status.mode, status.size, status.mtime_ns) == (0o751, 5, 1_700_000_000_123_456_789)
    assert (status.uid, status.gid, status.target) == (os.geteuid(), os.getegid(), None)
    assert workspace.xattrs("a") == {"user.x": b"\0"}
    workspace.set_xattr("a", "user.x", None)
    refused(errno.ENODATA, workspace.set_xattr, "a", "user.x", None)
    workspace.truncate("a", 2)
    assert workspace.read("a") == b"12"
    refused(errno.EISDIR, workspace.truncate, "", 0)


def test_turns_and_old_versions(workspace: ApiWorkspace, blobs: MemoryBlobStore) -> None:
    workspace.write("a", b"1")
    first = commit(workspace)
    workspace.write("a", b"22")
    with workspace.at("a", 1) as old:
        assert old.read() == b"1"
    file = workspace.open("a", "r+b", encoding=None)
    workspace.rollback()
    refused(errno.ESTALE, file.read)
    file.close()
    assert workspace.base == first
    assert workspace.read("a") == b"1"
    assert files_in(blobs, first.tree_id) == {"a": b"1"}
    assert workspace.usage == (1, 1)


# -- restoring ---------------------------------------------------------------------------------------------------------


def fill(workspace: ApiWorkspace) -> None:
    workspace.make_directory("d/e", parents=True)
    workspace.write("d/e/f", b"1" * 100_000)
    workspace.write("a", b"a")
    workspace.symlink("a", "l")
    workspace.write("one", b"linked")
    workspace.link("one", "two")
    workspace.set_xattr("a", "user.x", b"y")
    workspace.set_mtime("a", 10**18)
    workspace.set_mtime("d", 0)
    workspace.set_mode("", 0o700)


def spoil(workspace: ApiWorkspace) -> None:
    workspace.write("d/e/f", b"2")
    workspace.write("d/new", b"n")
    workspace.remove("a")
    workspace.make_directory("a")
    workspace.write("a/b", b"in the way")
    workspace.remove("l")
    workspace.symlink("b", "l")
    workspace.remove("two")
    workspace.write("two", b"not linked")
    workspace.link("d/new", "three")
    workspace.set_mode("", 0o755)


def test_everything_is_restored_and_can_be_undone(
    workspace: ApiWorkspace, blobs: MemoryBlobStore, tmp_path: Path
) -> None:
    fill(workspace)
    first = commit(workspace)
    spoil(workspace)
    second = commit(workspace)
    stored = len(list(blobs.blob_ids()))
    open_now = workspace.open("d/e/f", "r+b")
    workspace.restore(first)
    assert open_now.read() == b"1" * 100_000  # a process that has it open sees it, too
    open_now.close()
    third = workspace.seal()
    assert third.tree_id == first.tree_id
    assert (workspace.status("a").mtime_ns, workspace.status("d").mtime_ns) == (10**18, 0)
    assert workspace.status("one").ino == workspace.status("two").ino
    assert [item.op for item in workspace.history("d/e/f")] == ["write", "write", "restore"]
    assert [item.op for item in workspace.history("d/new")] == ["write", "delete"]
    workspace.close()
    again = open_api_workspace(LayerSpec("w", tmp_path / "layers", second, 1, 2), blobs)
    try:  # what the log says gives the same
        assert again.seal() == third
        assert again.usage == (100_000 + 1 + 6, 6)
        again.adopt(third)
        again.restore(second)
        fourth = again.seal()
        assert fourth.tree_id == second.tree_id
        again.restore(None)
        assert again.seal().tree_id == open_api_workspace_tree(tmp_path)
        again.restore(fourth)
        assert again.seal().tree_id == second.tree_id
        TreeChecker(blobs).check(again.seal())
    finally:
        again.close()
    assert stored < len(list(blobs.blob_ids()))


def open_api_workspace_tree(tmp_path: Path) -> str:
    empty = open_api_workspace(LayerSpec("empty", tmp_path / "layers", None, 1, 1), MemoryBlobStore())
    try:
        return empty.seal().tree_id
    finally:
        empty.close()


def test_nothing_is_read_and_no_content_stored_again(workspace: ApiWorkspace, blobs: MemoryBlobStore) -> None:
    content = os.urandom(5_000_000)
    workspace.write("big", content)
    first = commit(workspace)
    workspace.remove("big")
    commit(workspace)
    before = set(blobs.blob_ids())
    workspace.restore(first)
    third = workspace.seal()
    assert third.tree_id == first.tree_id
    assert sum(len(blobs.get(key)) for key in set(blobs.blob_ids()) - before) < 10_000
    assert workspace.read("big") == content


def test_one_path_is_restored(workspace: ApiWorkspace) -> None:
    fill(workspace)
    first = commit(workspace)
    spoil(workspace)
    commit(workspace)
    workspace.restore(first, "d/e")
    assert workspace.read("d/e/f") == b"1" * 100_000
    assert workspace.read("d/new") == b"n"
    workspace.restore(first, "a")
    assert workspace.read("a") == b"a"
    workspace.restore(first, "two")  # by itself it is no name of another file
    assert (workspace.read("two"), workspace.status("two").links) == (b"linked", 1)
    with pytest.raises(NotFound, match="was not there"):
        workspace.restore(first, "d/new")
    workspace.remove_tree("d")
    workspace.restore(first, "d/e/f")
    assert workspace.read("d/e/f") == b"1" * 100_000
    workspace.remove_tree("d")
    workspace.write("d", b"in the way")
    with pytest.raises(InvalidInput, match="is no directory now"):
        workspace.restore(first, "d/e/f")


def test_a_restore_that_would_be_over_the_quota_changes_nothing(tmp_path: Path, blobs: MemoryBlobStore) -> None:
    quota = Quota(bytes=100, files=3, file_bytes=80)
    workspace = open_api_workspace(LayerSpec("w", tmp_path / "layers", None, 1, 1, quota), blobs)
    workspace.write("a", b"a" * 60)
    first = commit(workspace)
    workspace.remove("a")
    workspace.write("b", b"b" * 60)
    second = commit(workspace)
    refused(errno.EDQUOT, workspace.restore, first, "a")
    assert (workspace.seal(), workspace.usage) == (second, (60, 1))
    workspace.restore(first)
    assert (workspace.read("a"), workspace.usage) == (b"a" * 60, (60, 1))
    workspace.close()


# -- the same through the others ---------------------------------------------------------------------------------------


def test_trees_are_those_of_a_plain_directory(workspace: ApiWorkspace, blobs: MemoryBlobStore, tmp_path: Path) -> None:
    fill(workspace)
    first = commit(workspace)
    spoil(workspace)
    commit(workspace)
    workspace.restore(first)
    restored = workspace.seal()
    spec = LayerSpec("d", tmp_path / "layers", restored, 1, 1)
    directory = open_dir_workspace(spec, blobs, tmp_path / "files", SystemClock()).workspace
    (tmp_path / "files" / "more").touch()
    directory.seal()
    (tmp_path / "files" / "more").unlink()
    assert directory.seal().tree_id == restored.tree_id == first.tree_id
    directory.close()


def test_equal_content_is_stored_once_for_all(blobs: MemoryBlobStore, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)

    def stored() -> int:
        return sum(len(blobs.get(key)) for key in blobs.blob_ids())

    sizes = []
    for name in ("left", "right", "third"):
        workspace = open_api_workspace(LayerSpec(name, tmp_path / "layers", None, 1, 1), blobs)
        workspace.write("data", content)
        workspace.write("copy", content)
        commit(workspace)
        workspace.close()
        sizes.append(stored())
    assert 3_000_000 < sizes[0] < 3_020_000
    assert sizes[2] - sizes[0] < 4_000
