"""Directories that are hard to look at: unreadable, very deep, changed while they are looked at."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import Conflict, InvalidInput
from chronicle.testing.workspace_contract import files_below, files_in
from chronicle.workspace.content import content as contents
from chronicle.workspace.dir import restore, scan, walk
from chronicle.workspace.dir.workspace import DirWorkspace, open_dir_workspace
from chronicle.workspace.port import LayerSpec
from tests.leftovers import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USER = 61_001


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory whose parents anybody may go through."""
    made = Path(tempfile.mkdtemp())
    record("made", made)
    made.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(made, USER, USER)
    yield made
    subprocess.run(["chmod", "-R", "u+rwx", made], check=True, timeout=60)
    subprocess.run(["rm", "-r", made], check=True, timeout=60)  # which knows deep trees


@contextmanager
def nobody_special() -> Iterator[None]:
    """Be a user without privileges."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(USER)
    os.seteuid(USER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def opened(home: Path, blobs: MemoryBlobStore) -> DirWorkspace:
    spec = LayerSpec("w", home / "layers", None, 1, 1)
    workspace = open_dir_workspace(spec, blobs, home / "root", SystemClock()).workspace
    assert isinstance(workspace, DirWorkspace)
    return workspace


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_its_owner_may_not_read_is_committed(home: Path) -> None:
    blobs = MemoryBlobStore()
    with nobody_special():
        workspace = opened(home, blobs)
        root = workspace.root
        for name, mode in (("shut", 0o000), ("names only", 0o400), ("no names", 0o300)):
            (root / name / "in").mkdir(parents=True)
            (root / name / "in" / "file").write_text(name)
            (root / name / "in").chmod(0o000)
            (root / name).chmod(mode)
        (root / "secret").write_text("hidden")
        (root / "secret").chmod(0o000)
        ref = workspace.seal()
        found = files_in(blobs, ref.tree_id)
        assert found["secret"] == b"hidden"
        assert [found[f"{name}/in/file"] for name in ("shut", "names only", "no names")] == [
            b"shut",
            b"names only",
            b"no names",
        ]
        assert [mode_of(root / name) for name in ("shut", "names only", "no names", "secret")] == [0, 0o400, 0o300, 0]
        assert workspace.seal() == ref
        workspace.adopt(ref)
        (root / "shut").chmod(0o700)
        (root / "shut" / "in").chmod(0o700)
        (root / "shut" / "in" / "file").write_text("changed")
        (root / "shut" / "in").chmod(0o000)
        (root / "secret").unlink()
        (root / "more" / "below").mkdir(parents=True)
        (root / "more").chmod(0o000)
        workspace.rollback()
        assert workspace.seal() == ref
        assert mode_of(root / "shut") == 0
        assert not (root / "more").exists()
        workspace.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
@pytest.mark.parametrize("is_directory", [False, True])
def test_what_is_somebody_elses_is_named(home: Path, is_directory: bool) -> None:
    with nobody_special():
        workspace = opened(home, MemoryBlobStore())
    theirs = workspace.root / "theirs"
    theirs.mkdir() if is_directory else theirs.write_text("")
    theirs.chmod(0o700 if is_directory else 0o600)
    with nobody_special():
        with pytest.raises(InvalidInput, match=r"^theirs in the workspace cannot be opened"):
            workspace.seal()
        workspace.rollback()  # which needs not read it
        assert not theirs.exists()
        workspace.close()


def test_a_tree_deeper_than_any_path(home: Path) -> None:
    blobs = MemoryBlobStore()
    workspace = opened(home, blobs)
    depth = 1050  # more than Python's calls may nest, and a path of more than 4096 bytes
    deep(workspace.root, depth)
    ref = workspace.seal()
    name = "/".join(["deep"] * depth)
    assert files_in(blobs, ref.tree_id)[f"{name}/file"] == b"at the bottom"
    assert workspace.seal() == ref
    workspace.rollback()
    assert not any(workspace.root.iterdir())
    workspace._manifest.sealed = ref
    workspace.adopt(ref)
    workspace.rollback()
    assert workspace.seal().tree_id == ref.tree_id
    workspace._restore(None)
    workspace.close()


def deep(root: Path, depth: int) -> None:
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=fd)
        below = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    os.write(file, b"at the bottom")
    os.close(file)
    os.close(fd)


class Meddling:
    """``os``, but something happens just after a call for a name."""

    def __init__(self, call: str, name: bytes, act: Callable[[], None]) -> None:
        self._call = call
        self._name = name
        self._act = act
        self.done = False

    def __getattr__(self, attribute: str) -> Any:
        real = getattr(os, attribute)
        if attribute != self._call:
            return real

        def call(*arguments: Any, **keywords: Any) -> Any:
            result = real(*arguments, **keywords)
            if not self.done and arguments[0] in (self._name, os.fsdecode(self._name)):
                self.done = True
                self._act()
            return result

        return call


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_out(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.parent.parent / "outside")


@pytest.mark.parametrize("swap", [fifo, link_out])
def test_a_file_that_is_swapped_after_it_was_looked_at(
    home: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path], None]
) -> None:
    (home / "outside").write_text("not to be read")
    blobs = MemoryBlobStore()
    workspace = opened(home, blobs)
    path = workspace.root / "f"
    path.write_text("text")
    meddling = Meddling("stat", b"f", lambda: swap(path))
    monkeypatch.setattr(scan, "os", meddling)
    waker = threading.Timer(20, lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)))
    waker.start()  # what waits for the pipe is to fail, not to hang
    try:
        found = files_in(blobs, workspace.seal().tree_id)
    finally:
        waker.cancel()
    assert meddling.done
    assert found == {"f": None if swap is fifo else str(home / "outside")}
    workspace.close()


def test_a_directory_that_is_swapped_before_it_is_gone_into(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "outside").mkdir()
    (home / "outside" / "x").write_text("not to be read")
    blobs = MemoryBlobStore()
    workspace = opened(home, blobs)
    path = workspace.root / "d"
    path.mkdir()
    (path / "y").write_text("")
    (workspace.root / "z").mkdir()  # gone into first
    meddling = Meddling("stat", b"z", lambda: link_out(path))
    monkeypatch.setattr(scan, "os", meddling)
    found = files_in(blobs, workspace.seal().tree_id)
    assert meddling.done
    assert found == {"d": str(home / "outside"), "z": None}
    workspace.close()


def test_a_file_that_is_always_something_else_is_left_for_the_next_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = opened(home, MemoryBlobStore())
    (workspace.root / "f").write_text("text")

    def never(name: bytes, parent: int, path: bytes) -> int:
        raise walk.KindChanged

    with monkeypatch.context() as patch:
        patch.setattr(scan, "open_file", never)
        assert workspace.seal() == workspace.base
    assert workspace.seal() != workspace.base
    workspace.close()


@pytest.mark.parametrize("name", [b"f", b"d"])
def test_nothing_is_put_through_a_symlink(home: Path, monkeypatch: pytest.MonkeyPatch, name: bytes) -> None:
    outside = home / "outside"
    if name == b"d":
        outside.mkdir()
        (outside / "in").write_text("mine")
    else:
        outside.write_text("mine")
    outside.chmod(0o750)
    before = outside.stat()
    blobs = MemoryBlobStore()
    workspace = opened(home, blobs)
    path = workspace.root / os.fsdecode(name)
    if name == b"d":
        path.mkdir()
        (path / "in").write_text("of the workspace")
    else:
        path.write_text("of the workspace")
    path.chmod(0o777 if name == b"d" else 0o666)
    workspace.adopt(workspace.seal())
    if name == b"d":
        (path / "in").write_text("changed")
        meddling = Meddling("stat", name, lambda: link_out(path))
    else:
        path.write_text("changed")
        meddling = Meddling("rename", b".chronicle-restoring", lambda: link_out(path))
    with monkeypatch.context() as patch:
        patch.setattr(restore, "os", meddling)
        with pytest.raises(Conflict, match="was replaced while"):
            workspace.rollback()
    assert meddling.done
    after = outside.stat()
    assert (after.st_mode, after.st_ctime_ns, after.st_mtime_ns) == (
        before.st_mode,
        before.st_ctime_ns,
        before.st_mtime_ns,
    )
    if name == b"d":
        assert (outside / "in").read_text() == "mine"
    workspace.rollback()
    assert workspace.seal() == workspace.base
    workspace.close()


def test_a_directory_that_was_removed(home: Path) -> None:
    workspace = opened(home, MemoryBlobStore())
    (workspace.root / "f").write_text("text")
    workspace.adopt(workspace.seal())
    shutil.rmtree(workspace.root)
    with pytest.raises(InvalidInput, match="is gone"):
        workspace.seal()
    workspace.rollback()
    assert (workspace.root / "f").read_text() == "text"
    workspace.close()


def test_contents_are_of_the_file_that_was_opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file may have the name when the first one was read: it is read the next time."""
    blobs = MemoryBlobStore()
    workspace = opened(home, blobs)
    path = workspace.root / "f"
    path.write_text("first")
    real = contents.store_file

    def store(buffer: Any, file: Any) -> Any:
        stored = real(buffer, file)
        other = path.with_name("new")
        other.write_text("other")
        other.rename(path)
        return stored

    with monkeypatch.context() as patch:
        patch.setattr(contents, "store_file", store)
        assert files_in(blobs, workspace.seal().tree_id) == {"f": b"first"}
    assert files_in(blobs, workspace.seal().tree_id) == {"f": b"other"}
    workspace.close()


def test_pipes_and_sockets_are_told_of_and_not_opened(home: Path) -> None:
    blobs = MemoryBlobStore()
    workspace = opened(home, blobs)
    root = workspace.root
    (root / "d").mkdir()
    os.mkfifo(root / "d" / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "socket"))
    (root / "link").symlink_to("d/pipe")
    (root / "empty").touch()
    expected = {"d": None, "d/pipe": None, "socket": None, "link": "d/pipe", "empty": b""}
    assert files_below(root) == expected
    assert files_in(blobs, workspace.seal().tree_id) == expected
    workspace.close()
