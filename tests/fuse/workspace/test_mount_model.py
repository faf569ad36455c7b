"""System calls on a real mount against a model of files, versions and turns, with kill -9 of the server in between.

`tests/stateful/test_layer_model.py` does the same in process and faster. Here is what only a mount has: the kernel's
caches, mappings, files that are removed while open, symlinks and attributes by path, and servers that are killed,
rolled back and replaced by those of a newer epoch under handles that are open. Forks are mounted beside what they come
from.
"""

# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH211 - calls

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec
from tests.fuse.caller import Calls
from tests.fuse.mount_lines import KILLS, Line
from tests.stateful.world import Open, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.mountpoints.availability import Transport

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
LINES = 3
"""At most, of one run."""
names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
data = st.one_of(st.binary(max_size=20), st.integers(0, 3).map(lambda n: bytes([n]) * 9_000))
offsets = st.sampled_from([0, 1, 4096, 5000, 9_000, 70_000, 3_000_000])


class MountModel(RuleBasedStateMachine):
    machine: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="layers-", dir=self.machine))
        spec = LayerSpec("w0", self.directory / "layers", None, 1, 0)
        self.lines = [Line(self.machine, spec, f"file://{self.directory}/blobs", [])]
        self.line = self.lines[0]
        """The one that is worked on."""

    def teardown(self) -> None:
        try:
            for line in self.lines:
                line.end()
        finally:
            for line in self.lines:
                line.workspace.close()
            shutil.rmtree(self.directory)

    @property
    def world(self) -> World:
        return self.line.world

    @property
    def open_files(self) -> list[Open[int]]:
        return self.line.open_files

    def at(self, path: str) -> str:
        return self.line.at(path)

    # -- files ----------------------------------------------------------------------------------------------------

    @rule(path=paths, content=data, keep=st.booleans())
    def create(self, path: str, content: bytes, keep: bool) -> None:
        if self.world.is_free(path):
            fd = os.open(self.at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            self.go_on(Open(self.world.create(path), fd, fresh=True), content, 0, keep=keep)

    @rule(path=paths, content=data, offset=offsets, truncate=st.booleans(), keep=st.booleans())
    def open_and_write(self, path: str, content: bytes, offset: int, truncate: bool, keep: bool) -> None:
        file = self.world.regular(path)
        if file is not None:
            fd = os.open(self.at(path), os.O_RDWR | (os.O_TRUNC if truncate else 0))
            if truncate:
                self.world.empty(file)
            self.go_on(Open(file, fd, fresh=truncate), content, offset, keep=keep)

    def go_on(self, opened: Open[int], content: bytes, offset: int, *, keep: bool) -> None:
        self.open_files.append(opened)
        self.write_to(opened, offset, content)
        if not keep:
            self.close_one(opened)

    def write_to(self, opened: Open[int], offset: int, content: bytes) -> None:
        if content:
            assert os.pwrite(opened.handle, content, offset) == len(content)
            self.world.write(opened, offset, content)

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0), content=data, offset=offsets, sync=st.booleans())
    def write_more(self, pick: int, content: bytes, offset: int, sync: bool) -> None:
        opened = self.open_files[pick % len(self.open_files)]
        self.write_to(opened, offset, content)
        if sync:
            os.fsync(opened.handle)

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0), size=st.sampled_from([0, 100, 4096, 80_000]))
    def truncate_open(self, pick: int, size: int) -> None:
        opened = self.open_files[pick % len(self.open_files)]
        os.ftruncate(opened.handle, size)
        if self.world.resize(opened.file, size):
            opened.wrote = True

    @precondition(lambda self: self.open_files)
    @rule(pick=st.integers(0))
    def close_some(self, pick: int) -> None:
        self.close_one(self.open_files[pick % len(self.open_files)])

    def close_one(self, opened: Open[int]) -> None:
        self.open_files.remove(opened)
        assert os.pread(opened.handle, 1 << 23, 0) == opened.file.content
        os.close(opened.handle)
        self.world.closed(opened)

    @rule(path=paths, content=st.binary(min_size=1, max_size=5_000), offset=st.integers(0, 10_000))
    def map_and_write(self, path: str, content: bytes, offset: int) -> None:
        """Only of a file that nothing else has open: through which of its handles the kernel stores is its choice."""
        file = self.world.regular(path)
        if file is None or offset + len(content) > len(file.content):
            return
        if any(opened.file is file for opened in self.open_files):
            return
        fd = os.open(self.at(path), os.O_RDWR)
        with mmap.mmap(fd, 0) as mapped:
            mapped[offset : offset + len(content)] = content
            mapped.flush()
        os.close(fd)
        self.world.write_at_once(file, offset, content)

    @rule(path=paths, size=st.sampled_from([0, 1, 4096, 7_000, 3_000_000]))
    def truncate(self, path: str, size: int) -> None:
        file = self.world.regular(path)
        if file is not None:
            os.truncate(self.at(path), size)
            if self.world.resize(file, size):
                self.world.settle(file)

    # -- names and attributes -------------------------------------------------------------------------------------

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        if self.world.is_free(path):
            os.mkdir(self.at(path))
            self.world.mkdir(path)

    @rule(path=paths, to=paths)
    def symlink(self, path: str, to: str) -> None:
        if self.world.is_free(path):
            os.symlink(to, self.at(path))
            self.world.symlink(path, to)

    @rule(path=paths)
    def remove(self, path: str) -> None:
        """Open files stay, and are written and read on."""
        if self.world.can_remove(path):
            if self.world.kind(path) == "dir":
                os.rmdir(self.at(path))
            else:
                os.unlink(self.at(path))
            self.world.remove(path)

    @rule(old=paths, new=paths, flags=st.sampled_from([0, 0, 1, 2]))
    def rename(self, old: str, new: str, flags: int) -> None:
        if flags == 2:  # of files and symlinks: what happens below directories is for the model in process
            if self.world.can_exchange(old, new):
                Calls().rename(self.at(old), self.at(new), flags)
                self.world.exchange(old, new)
        elif self.world.can_rename(old, new) and not (flags == 1 and self.world.kind(new) is not None):
            Calls().rename(self.at(old), self.at(new), flags)
            self.world.rename(old, new)

    @rule(old=paths, new=paths)
    def link(self, old: str, new: str) -> None:
        if self.world.files.get(old) is not None and self.world.is_free(new):
            os.link(self.at(old), self.at(new), follow_symlinks=False)
            self.world.link(old, new)

    @rule(path=paths, mode=st.sampled_from([0o600, 0o640, 0o755]))
    def chmod(self, path: str, mode: int) -> None:
        file = self.world.regular(path)
        if file is not None:
            os.chmod(self.at(path), mode)
            self.world.chmod(file, mode)

    @rule(path=paths, name=st.sampled_from(["user.a", "user.b"]), value=st.binary(max_size=5))
    def setxattr(self, path: str, name: str, value: bytes) -> None:
        file = self.world.regular(path)
        if file is not None and file.xattrs.get(name) != value:
            os.setxattr(self.at(path), name, value)
            self.world.setxattr(file, name, value)

    # -- turns and ends -------------------------------------------------------------------------------------------

    @rule(commit=st.booleans())
    def seal(self, commit: bool) -> None:
        self.line.seal()
        if commit:
            self.line.adopt()

    @precondition(lambda self: self.line.sealed is not None)
    @rule()
    def adopt(self) -> None:
        self.line.adopt()

    @rule()
    def rollback(self) -> None:
        self.line.rollback()

    @rule(pick=st.integers(0, 5))
    def move_to(self, pick: int) -> None:
        self.line.move_to(pick)

    @precondition(lambda self: self.line.kills < KILLS)
    @rule()
    def kill(self) -> None:
        self.line.kill()

    @rule(kill=st.booleans(), told=st.booleans(), move=st.booleans())
    def take_over(self, kill: bool, told: bool, move: bool) -> None:
        self.line.take_over(kill=kill and self.line.kills < KILLS, told=told, move=move)

    @precondition(lambda self: self.line.commits and len(self.lines) < LINES)
    @rule(back=st.integers(0, 2), elsewhere=st.booleans())
    def fork(self, back: int, elsewhere: bool) -> None:
        """Go on in a fork, on this node or another one; what it comes from is as it was."""
        layers = self.directory / "elsewhere" if elsewhere else self.line.spec.layers
        fork = self.line.fork(f"w{len(self.lines)}", back % len(self.line.commits), layers)
        self.lines.append(fork)
        self.line = fork

    @precondition(lambda self: len(self.lines) > 1)
    @rule(pick=st.integers(0, LINES))
    def turn_to_another_line(self, pick: int) -> None:
        self.line = self.lines[pick % len(self.lines)]

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def what_is_there_is_what_should_be(self) -> None:
        for line in self.lines:
            line.check_tree()

    @rule()
    def read_history(self) -> None:
        self.line.check_history()


@pytest.fixture
def machine(tmp_path: Path, transport: Transport) -> Iterator[Path]:
    launcher.start(
        tmp_path / "zygote.sock",
        tmp_path / "mounts",
        tmp_path / "log",
        os.getpid(),
        transport=transport,
        few_mounts=True,
    )
    yield tmp_path
    launcher.shut_down(tmp_path / "zygote.sock")
    log = (tmp_path / "log").read_text()
    print(log)
    assert "Traceback" not in log


def test_each_way_in_which_a_turn_ends(machine: Path) -> None:
    """A short story of what random ones come to seldom: each time there are handles and versions that are given up."""
    model = type("Model", (MountModel,), {"machine": machine})()

    def change(content: bytes) -> None:
        model.open_and_write(path="a", content=content, offset=0, truncate=False, keep=False)
        model.open_and_write(path="a", content=content * 2, offset=3, truncate=False, keep=True)
        model.create(path=f"new {content.decode()}", content=content, keep=True)

    try:
        model.create(path="a", content=b"one", keep=False)
        model.seal(commit=True)
        change(b"rolled back")
        model.seal(commit=False)
        model.rollback()
        change(b"made again")
        model.move_to(pick=0)
        model.what_is_there_is_what_should_be()
        change(b"on top of that")
        model.kill()
        model.move_to(pick=1)
        model.seal(commit=True)
        change(b"sealed, and not committed")
        model.seal(commit=False)
        change(b"written after that")
        model.take_over(kill=False, told=False, move=True)
        change(b"committed, and not told")
        model.seal(commit=False)
        change(b"never sealed")
        model.take_over(kill=True, told=True, move=False)
        for elsewhere in (False, True):
            model.fork(back=1, elsewhere=elsewhere)
            change(b"in a fork")
            model.rollback()
            model.seal(commit=True)
            model.read_history()
            model.what_is_there_is_what_should_be()
        model.turn_to_another_line(pick=0)
        model.read_history()
    finally:
        model.teardown()


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
