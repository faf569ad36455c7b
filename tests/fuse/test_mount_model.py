"""System calls on a real mount against a model of files, versions and turns, with kill -9 of the server in between.

`tests/stateful/test_layer_model.py` does the same in process and faster. Here is what only a mount has: the kernel's
caches, mappings, files that are removed while open, symlinks and attributes by path, and servers that are killed and
replaced under the same mountpoint.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH112, PTH114, PTH115, PTH116, PTH118, PTH123, PTH211 - calls

from __future__ import annotations

import copy
import json
import mmap
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from chronicle.blobs.fsspec_store import FsspecBlobStore
from chronicle.fuse import zygote
from chronicle.fuse.client import FuseWorkspace, list_mounts, open_fuse_workspace
from chronicle.workspace.port import LayerSpec
from chronicle.workspace.verify import TreeChecker
from tests.fuse.caller import Calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.mounts import Transport

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
data = st.one_of(st.binary(max_size=20), st.integers(0, 3).map(lambda n: bytes([n]) * 9_000))
offsets = st.sampled_from([0, 1, 4096, 5000, 9_000, 70_000, 3_000_000])
KILLS = 4
"""Of one mount; a server that dies five times in half a minute is given up."""


@dataclass(eq=False)
class File:
    """A file or symlink of the model: several paths may share one."""

    content: bytes = b""
    target: str | None = None
    mode: int = 0o644
    xattrs: dict[str, bytes] = field(default_factory=dict)
    unversioned: bool = False
    versioned: bool = False


@dataclass
class Open:
    file: File
    fd: int
    fresh: bool
    wrote: bool = False


Version = bytes | str | None
"""Content; ``"dir"`` for a directory, None for a deletion."""


@dataclass
class World:
    files: dict[str, File | None] = field(default_factory=dict)
    history: dict[str, list[Version]] = field(default_factory=dict)


class MountModel(RuleBasedStateMachine):
    machine: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="layers-", dir=self.machine))
        self.turn = 1
        self.kills = 0
        self.spec = LayerSpec("w", self.directory, None, 1, 0)
        self.blobs_url = f"file://{self.directory}/blobs"
        mountpoint = self.machine / "mounts" / self.directory.name
        opened = open_fuse_workspace(self.machine / "zygote.sock", self.spec, self.blobs_url, mountpoint)
        assert isinstance(opened.workspace, FuseWorkspace)
        self.workspace = opened.workspace
        self.workspace.begin_turn(self.turn)
        self.root = str(self.workspace.root)
        self.world = World()
        self.committed = World()
        self.turns: dict[int, dict[str, File | None]] = {0: {}}
        self.open_files: list[Open] = []

    def teardown(self) -> None:
        try:
            for opened in self.open_files:
                os.close(opened.fd)
            self.open_files.clear()
        finally:
            ref = self.workspace.seal()
            self.workspace.close()
            blobs = FsspecBlobStore(self.blobs_url)
            TreeChecker(blobs).check(ref)
            blobs.close()
            shutil.rmtree(self.directory)

    # -- the model ------------------------------------------------------------------------------------------------

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def kind(self, path: str) -> str | None:
        if path == "":
            return "dir"
        if path not in self.world.files:
            return None
        file = self.world.files[path]
        return "dir" if file is None else "link" if file.target is not None else "file"

    def is_free(self, path: str) -> bool:
        return self.kind(path.rpartition("/")[0]) == "dir" and self.kind(path) is None

    def regular(self, path: str) -> File | None:
        return self.world.files[path] if self.kind(path) == "file" else None

    def below(self, path: str) -> list[str]:
        return [other for other in self.world.files if other.startswith(path + "/")]

    def note(self, path: str, what: Version) -> None:
        self.world.history.setdefault(path, []).append(what)

    def alive(self, path: str) -> bool:
        return self.world.history.get(path, [None])[-1] is not None

    def paths_of(self, file: File) -> list[str]:
        return [path for path, other in self.world.files.items() if other is file]

    @staticmethod
    def seen(file: File) -> Version:
        return file.content if file.target is None else file.target.encode()

    def settle(self, file: File) -> None:
        found = self.paths_of(file)
        if file.target is None and found and (file.unversioned or not file.versioned):
            for path in found:
                self.note(path, file.content)
            file.unversioned, file.versioned = False, True

    def changed(self, file: File) -> None:
        """Note a version of all of a file's paths, for a change of its attributes."""
        if file.versioned:
            for path in self.paths_of(file):
                self.note(path, self.seen(file))

    # -- files ----------------------------------------------------------------------------------------------------

    @rule(path=paths, content=data, keep=st.booleans())
    def create(self, path: str, content: bytes, keep: bool) -> None:
        if self.is_free(path):
            fd = os.open(self.at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            opened = Open(File(), fd, fresh=True)
            self.world.files[path] = opened.file
            self.go_on(opened, content, 0, keep=keep)

    @rule(path=paths, content=data, offset=offsets, truncate=st.booleans(), keep=st.booleans())
    def open_and_write(self, path: str, content: bytes, offset: int, truncate: bool, keep: bool) -> None:
        file = self.regular(path)
        if file is not None:
            fd = os.open(self.at(path), os.O_RDWR | (os.O_TRUNC if truncate else 0))
            if truncate and file.content:
                file.content, file.unversioned = b"", True
            self.go_on(Open(file, fd, fresh=truncate), content, offset, keep=keep)

    def go_on(self, opened: Open, content: bytes, offset: int, *, keep: bool) -> None:
        self.open_files.append(opened)
        self.write_to(opened, offset, content)
        if not keep:
            self.close_one(opened)

    def write_to(self, opened: Open, offset: int, content: bytes) -> None:
        if content:
            assert os.pwrite(opened.fd, content, offset) == len(content)
            opened.wrote = True
            self.write_model(opened.file, offset, content)

    @staticmethod
    def write_model(file: File, offset: int, content: bytes) -> None:
        before = file.content.ljust(offset, b"\0")
        file.content = before[:offset] + content + before[offset + len(content) :]
        file.unversioned = True

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0), content=data, offset=offsets, sync=st.booleans())
    def write_more(self, pick: int, content: bytes, offset: int, sync: bool) -> None:
        opened = self.open_files[pick % len(self.open_files)]
        self.write_to(opened, offset, content)
        if sync:
            os.fsync(opened.fd)

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0), size=st.sampled_from([0, 100, 4096, 80_000]))
    def truncate_open(self, pick: int, size: int) -> None:
        opened = self.open_files[pick % len(self.open_files)]
        os.ftruncate(opened.fd, size)
        if size != len(opened.file.content):
            opened.file.content = opened.file.content[:size].ljust(size, b"\0")
            opened.file.unversioned = opened.wrote = True

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0))
    def close_some(self, pick: int) -> None:
        self.close_one(self.open_files[pick % len(self.open_files)])

    def close_one(self, opened: Open) -> None:
        self.open_files.remove(opened)
        assert os.pread(opened.fd, 1 << 23, 0) == opened.file.content
        os.close(opened.fd)
        if opened.wrote or opened.fresh:
            self.settle(opened.file)

    @rule(path=paths, content=st.binary(min_size=1, max_size=5_000), offset=st.integers(0, 10_000))
    def map_and_write(self, path: str, content: bytes, offset: int) -> None:
        """Only of a file that nothing else has open: through which of its handles the kernel stores is its choice."""
        file = self.regular(path)
        if file is None or offset + len(content) > len(file.content):
            return
        if any(opened.file is file for opened in self.open_files):
            return
        fd = os.open(self.at(path), os.O_RDWR)
        with mmap.mmap(fd, 0) as mapped:
            mapped[offset : offset + len(content)] = content
            mapped.flush()
        os.close(fd)
        self.write_model(file, offset, content)
        self.settle(file)

    @rule(path=paths, size=st.sampled_from([0, 1, 4096, 7_000, 3_000_000]))
    def truncate(self, path: str, size: int) -> None:
        file = self.regular(path)
        if file is not None:
            os.truncate(self.at(path), size)
            if size != len(file.content):
                file.content = file.content[:size].ljust(size, b"\0")
                file.unversioned = True
                self.settle(file)

    # -- names and attributes -------------------------------------------------------------------------------------

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        if self.is_free(path):
            os.mkdir(self.at(path))
            self.world.files[path] = None
            self.note(path, "dir")

    @rule(path=paths, to=paths)
    def symlink(self, path: str, to: str) -> None:
        if self.is_free(path):
            os.symlink(to, self.at(path))
            self.world.files[path] = File(target=to, versioned=True)
            self.note(path, to.encode())

    @rule(path=paths)
    def remove(self, path: str) -> None:
        """Open files stay, and are written and read on."""
        if self.kind(path) is None or self.below(path):
            return
        file = self.world.files.pop(path)
        if file is None:
            os.rmdir(self.at(path))
            self.note(path, None)
        else:
            os.unlink(self.at(path))
            if file.versioned:
                self.note(path, None)

    @rule(old=paths, new=paths, flags=st.sampled_from([0, 0, 1, 2]))
    def rename(self, old: str, new: str, flags: int) -> None:
        if self.kind(old) is None or self.kind(new.rpartition("/")[0]) != "dir" or old == new:
            return
        if new.startswith(old + "/") or old.startswith(new + "/"):
            return
        moving, target = self.world.files[old], self.kind(new)
        if flags == 2:
            self.exchange(old, new)
            return
        if target is not None:
            if flags == 1 or (moving is None) != (target == "dir") or self.below(new):
                return
            if moving is not None and self.world.files[new] is moving:
                os.rename(self.at(old), self.at(new))
                return
        if moving is not None:
            self.settle(moving)
        Calls().rename(self.at(old), self.at(new), flags)
        tree = [old, *self.below(old)]
        carried = {path: self.world.files.pop(path) for path in tree}
        self.world.files.update({new + path[len(old) :]: file for path, file in carried.items()})
        moved = [path for path in tree if path == old or self.alive(path)]
        for path in moved:
            self.note(new + path[len(old) :], self.world.history[path][-1])
        for path in moved:
            self.note(path, None)

    def exchange(self, old: str, new: str) -> None:
        """Of files and symlinks: what happens below directories is for the model in process."""
        one, other = self.world.files.get(old), self.world.files.get(new)
        if one is None or other is None or one is other:
            return
        self.settle(one)
        self.settle(other)
        Calls().rename(self.at(old), self.at(new), 2)
        self.world.files[old], self.world.files[new] = other, one
        self.note(old, self.seen(other))
        self.note(new, self.seen(one))

    @rule(old=paths, new=paths)
    def link(self, old: str, new: str) -> None:
        file = self.world.files.get(old)
        if file is not None and self.is_free(new):
            self.settle(file)
            os.link(self.at(old), self.at(new), follow_symlinks=False)
            self.world.files[new] = file
            self.note(new, self.seen(file))

    @rule(path=paths, mode=st.sampled_from([0o600, 0o640, 0o755]))
    def chmod(self, path: str, mode: int) -> None:
        file = self.regular(path)
        if file is not None:
            changes = file.mode != mode
            if changes and file.versioned:
                self.settle(file)
            os.chmod(self.at(path), mode)
            file.mode = mode
            if changes:
                self.changed(file)

    @rule(path=paths, name=st.sampled_from(["user.a", "user.b"]), value=st.binary(max_size=5))
    def setxattr(self, path: str, name: str, value: bytes) -> None:
        file = self.regular(path)
        if file is not None and file.xattrs.get(name) != value:
            if file.versioned:
                self.settle(file)
            os.setxattr(self.at(path), name, value)
            file.xattrs[name] = value
            self.changed(file)

    # -- turns and ends -------------------------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        for file in dict.fromkeys(file for file in self.world.files.values() if file is not None):
            self.settle(file)
        self.workspace.adopt(self.workspace.seal())
        self.committed = copy.deepcopy(self.world)
        self.turns[self.turn] = self.committed.files
        self.turn += 1
        self.workspace.begin_turn(self.turn)

    @precondition(lambda self: self.kills < KILLS)
    @rule()
    def kill(self) -> None:
        """The server is killed; another one serves what was acknowledged. What was open is not any more."""
        for file in self.world.files.values():
            if file is not None and not file.versioned and file.content:
                file.unversioned = True
        (mount,) = [item for item in list_mounts(self.machine / "zygote.sock") if item["mountpoint"] == self.root]
        pid = mount["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        self.kills += 1
        for opened in self.open_files:
            with suppress(OSError):  # closing tells the server, which is not there
                os.close(opened.fd)
        self.open_files.clear()
        self.workspace.begin_turn(self.turn)  # answered when there is another server

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def what_is_there_is_what_should_be(self) -> None:
        found: dict[str, Any] = {}
        for directory, directories, files in os.walk(self.root):
            for name in (*directories, *files):
                path = os.path.join(directory, name)[len(self.root) + 1 :]
                found[path] = self.look_at(path)
        expected = {path: self.expected(file) for path, file in self.world.files.items()}
        assert found == expected

    def look_at(self, path: str) -> Any:
        full = self.at(path)
        if os.path.islink(full):
            return ("link", os.readlink(full), os.lstat(full).st_nlink)
        if os.path.isdir(full):
            return "dir"
        with open(full, "rb") as file:
            content = file.read()
        status = os.stat(full)
        assert status.st_size == len(content)
        xattrs = {name: os.getxattr(full, name) for name in os.listxattr(full)}
        return (content, status.st_mode & 0o777, status.st_nlink, xattrs)

    def expected(self, file: File | None) -> Any:
        if file is None:
            return "dir"
        links = len(self.paths_of(file))
        if file.target is not None:
            return ("link", file.target, links)
        return (file.content, file.mode, links, file.xattrs)

    def was_directory(self, path: str) -> bool:
        """Whether history shows a directory: it is one, or what is not a file now was one last, or has any below."""
        if self.kind(path) is not None:
            return self.kind(path) == "dir"
        last = [what for what in self.world.history[path] if what is not None][-1:]
        return last == ["dir"] or any(other.startswith(path + "/") for other in self.world.history)

    @rule()
    def read_history(self) -> None:
        """Each path's versions, by ``query`` and ``at``, and each turn's tree are those of the model."""
        for path, expected in self.world.history.items():
            if self.was_directory(path):
                continue
            rows = json.loads(Path(self.at(f".chronicle/query/{path}")).read_text())
            assert len(rows) == len(expected), (path, rows, expected)
            for row, what in zip(rows, expected, strict=True):
                at = Path(self.at(f".chronicle/at/{row['iteration']}/{path}"))
                if isinstance(what, bytes):
                    assert row["size"] == len(what)
                    if at.is_symlink():
                        assert os.readlink(at).encode() == what
                    else:
                        assert at.read_bytes() == what
                else:
                    assert (row["op"] == "delete") == (what is None)
        for turn, files in self.turns.items():
            root = Path(self.at(f".chronicle/turn/{turn}"))
            assert {str(path.relative_to(root)) for path in root.rglob("*")} == set(files)
            for path, file in files.items():
                if file is not None and file.target is None:
                    assert (root / path).read_bytes() == file.content


@pytest.fixture
def machine(tmp_path: Path, transport: Transport) -> Iterator[Path]:
    zygote.start(tmp_path / "zygote.sock", tmp_path / "mounts", tmp_path / "log", os.getpid(), transport=transport)
    yield tmp_path
    zygote.shut_down(tmp_path / "zygote.sock")
    log = (tmp_path / "log").read_text()
    print(log)
    assert "Traceback" not in log


@pytest.mark.timeout(7200 if NIGHTLY else 180)
def test_a_mount_agrees_with_the_model(machine: Path) -> None:
    model = type("Model", (MountModel,), {"machine": machine})
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=300 if NIGHTLY else 12,
            stateful_step_count=60 if NIGHTLY else 30,
            suppress_health_check=list(HealthCheck),
        ),
    )
