"""A mount is used while it is sealed: who looks is answered, who changes something waits, and is not in the tree."""

from __future__ import annotations

import errno
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from chronicle.blobs.buffer import ScratchBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import ChronicleError
from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.content import content
from chronicle.workspace.port import LayerSpec, TreeRef
from chronicle.workspace.trees import tree
from tests.faulty_proxy import FaultyProxy
from tests.fuse.conftest import DEADLINE_S, served
from tests.fuse.far_mounts import FarMounts, running_far_mounts
from tests.s3_server import BUCKET, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.mountpoints.availability import Transport

ENDED = {errno.ENOTCONN, errno.ECONNABORTED}
STORED = random.Random(5).randbytes(3_000_000)
CHANGES = {
    "append": "fd = os.open('changed/file', os.O_WRONLY | os.O_APPEND); now(); os.write(fd, b'more'); os.close(fd)",
    "replace": "now(); os.close(os.open('changed/other', os.O_WRONLY | os.O_TRUNC))",
    "create": "now(); os.close(os.open('made/file', os.O_WRONLY | os.O_CREAT))",
    "mkdir": "now(); os.mkdir('madedirs/dir')",
    "symlink": "now(); os.symlink('x', 'linked/link')",
    "rename": "now(); os.rename('renamed/old', 'renamed/new')",
    "unlink": "now(); os.unlink('removed/file')",
    "chmod": "now(); os.chmod('changed/mode', 0o600)",
    "setxattr": "now(); os.setxattr('changed/attribute', 'user.a', b'1')",
    "fsync": "fd = os.open('changed/synced', os.O_RDWR); now(); os.fsync(fd); os.close(fd)",
}
"""What programs do, each in a directory that no other one locks."""
CHECKS_PER_DEADLINE = (
    "ls -lR kept",
    "ls -l new",
    "cat kept/file kept/link new/large",
    "stat kept/hard new/large kept",
    "readlink kept/link",
    "find kept new -type f",
    "test ! -e kept/nothing",
    "df kept",
    "cat .chronicle/query/kept/file",
    "ls .chronicle/turn/1/kept",
    "head -c 4 <> kept/file",
)


class Store:
    """An S3 server that waits for the test with each pack it is sent."""

    def __init__(self, url: str, proxy: FaultyProxy) -> None:
        self.url = url
        self.proxy = proxy
        self.reached = threading.Event()
        self._go_on = threading.Event()

    def hold(self) -> None:
        self.reached.clear()
        self._go_on.clear()
        self.proxy.on_put = self._wait

    def _wait(self) -> None:
        self.reached.set()
        self._go_on.wait(DEADLINE_S)

    def let_go(self) -> None:
        self.proxy.on_put = None
        self._go_on.set()


class Machine:
    """Workspaces on one store, and programs that use them."""

    def __init__(self, directory: Path, mounts: FarMounts, store: Store, undo: ExitStack) -> None:
        self.mounts = mounts
        self.store = store
        self._layers = directory / "layers"
        self._test = uuid4().hex
        self._undo = undo
        self._threads = undo.enter_context(ThreadPoolExecutor(1))

    def open(self, name: str, base: TreeRef | None = None) -> FuseWorkspace:
        opened = self.mounts.open(LayerSpec(f"{name}-{self._test}", self._layers, base, 1, 1), self.store.url)
        self._undo.callback(opened.close)
        return opened

    def seal(self, workspace: FuseWorkspace) -> Future[TreeRef]:
        """Seal, as far as the first pack that is sent."""
        self.store.hold()
        sealing = self._threads.submit(workspace.seal)
        assert self.store.reached.wait(DEADLINE_S)
        return sealing

    def change(self, workspace: FuseWorkspace, code: str) -> subprocess.Popen[str]:
        """Start a program, and return when it is about to make its call."""
        code = (
            f"import os, sys\ndef now(): print('now', flush=True)\ntry: {code}\nexcept OSError as e: sys.exit(e.errno)"
        )
        python = [sys.executable, "-I", "-S"]  # which starts in half the time
        program = subprocess.Popen([*python, "-c", code], cwd=workspace.root, stdout=subprocess.PIPE, text=True)
        self._undo.callback(program.wait, DEADLINE_S)
        assert program.stdout is not None
        self._undo.callback(program.stdout.close)
        self._undo.callback(program.kill)
        assert program.stdout.readline() == "now\n"
        return program

    def pid_of(self, name: str) -> int:
        name = f"{name}-{self._test}"
        (pid,) = [mount["pid"] for mount in served(self.mounts.socket) if mount["workspace_id"] == name]
        return int(str(pid))


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory, transport: Transport, s3: S3Server) -> Iterator[FarMounts]:
    with running_far_mounts(tmp_path_factory.mktemp("mounts"), transport, s3) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path, mounts: FarMounts) -> Iterator[Machine]:
    store = Store(f"s3://{BUCKET}/{uuid4().hex}", mounts.proxy)
    with ExitStack() as undo:
        undo.callback(store.let_go)
        yield Machine(tmp_path, mounts, store, undo)


def fill(root: Path) -> None:
    for name in ("kept", "changed", "made", "madedirs", "linked", "renamed", "removed"):
        (root / name).mkdir()
    (root / "kept" / "file").write_text("kept")
    (root / "kept" / "link").symlink_to("file")
    os.link(root / "kept" / "file", root / "kept" / "hard")
    for name in ("file", "other", "mode", "attribute", "synced"):
        (root / "changed" / name).write_text(name)
    (root / "renamed" / "old").write_text("old")
    (root / "removed" / "file").write_text("gone")


def change_more(root: Path) -> None:
    (root / "new").mkdir()
    (root / "new" / "large").write_bytes(random.Random(1).randbytes(500_000))
    (root / "changed" / "file").write_text("changed")


def prepared(machine: Machine, name: str) -> FuseWorkspace:
    workspace = machine.open(name)
    fill(workspace.root)
    workspace.adopt(workspace.seal())
    workspace.begin_turn(2)
    change_more(workspace.root)
    return workspace


def look_around(root: Path) -> None:
    script = "\n".join(("set -ex", *CHECKS_PER_DEADLINE))
    done = subprocess.run(["sh", "-c", script], cwd=root, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_who_looks_is_answered_and_who_changes_something_waits(machine: Machine) -> None:
    workspace, twin = prepared(machine, "w"), prepared(machine, "twin")
    expected = twin.seal()
    sealing = machine.seal(workspace)
    look_around(workspace.root)
    programs = {name: machine.change(workspace, code) for name, code in CHANGES.items()}
    for _ in range(3):
        look_around(workspace.root)
    assert not sealing.done()
    assert {name: program.poll() for name, program in programs.items()} == dict.fromkeys(CHANGES)
    machine.store.let_go()
    sealed = sealing.result(DEADLINE_S)
    assert {name: program.wait(DEADLINE_S) for name, program in programs.items()} == dict.fromkeys(CHANGES, 0)
    assert sealed.tree_id == expected.tree_id, "nothing of what waited is in it"
    workspace.adopt(sealed)
    twin.adopt(expected)
    assert machine.change(twin, "; ".join(CHANGES.values())).wait(DEADLINE_S) == 0
    after = workspace.seal()
    assert after.tree_id == twin.seal().tree_id != sealed.tree_id, "all of it comes after"
    assert (workspace.root / "changed" / "file").read_text() == "changedmore"
    assert [path.name for path in (workspace.root / "renamed").iterdir()] == ["new"]
    assert not list((workspace.root / "removed").iterdir())


def test_what_is_in_the_store_only_can_be_read_while_it_is_sealed(machine: Machine) -> None:
    first = machine.open("first")
    fill(first.root)
    (first.root / "kept" / "far").write_bytes(STORED)
    base = first.seal()
    second = machine.open("second", base)
    (second.root / "made" / "file").write_text("to seal")
    sealing = machine.seal(second)
    for path in machine.mounts.cache.rglob("*"):
        if path.is_file():
            path.unlink()
    read = subprocess.run(["cat", second.root / "kept" / "far"], capture_output=True, timeout=DEADLINE_S, check=True)
    assert read.stdout == STORED
    listed = subprocess.run(["ls", "-lR", second.root], capture_output=True, timeout=DEADLINE_S, check=True)
    assert b"attribute" in listed.stdout
    assert not sealing.done()
    machine.store.let_go()
    sealing.result(DEADLINE_S)


def test_the_server_is_killed_while_some_wait(machine: Machine) -> None:
    workspace, twin = prepared(machine, "w"), prepared(machine, "twin")
    expected = twin.seal()
    sealing = machine.seal(workspace)
    programs = [machine.change(workspace, code) for code in CHANGES.values()]
    look_around(workspace.root)
    os.kill(machine.pid_of("w"), signal.SIGKILL)
    assert {program.wait(DEADLINE_S) for program in programs} <= ENDED
    machine.store.let_go()
    assert sealing.result(DEADLINE_S).tree_id == expected.tree_id, "the call was made again, to another server"
    look_around(workspace.root)
    assert machine.change(workspace, CHANGES["create"]).wait(DEADLINE_S) == 0


def test_a_store_that_fails_lets_those_go_on_who_wait(machine: Machine) -> None:
    workspace, twin = prepared(machine, "w"), prepared(machine, "twin")
    sealing = machine.seal(workspace)
    programs = [machine.change(workspace, code) for code in CHANGES.values()]
    look_around(workspace.root)
    assert not sealing.done()
    machine.store.proxy.fail("error")
    upstream, machine.store.proxy.upstream = machine.store.proxy.upstream, 1
    machine.store.let_go()
    with pytest.raises(ChronicleError):
        sealing.result(DEADLINE_S)
    machine.store.proxy.upstream = upstream
    machine.store.proxy.fail("none")
    assert [program.wait(DEADLINE_S) for program in programs] == [0] * len(programs)
    look_around(workspace.root)
    assert machine.change(twin, "; ".join(CHANGES.values())).wait(DEADLINE_S) == 0
    assert workspace.seal().tree_id == twin.seal().tree_id


def test_who_waits_and_is_killed_ends(machine: Machine, transport: Transport) -> None:
    workspace = prepared(machine, "w")
    handled = "import signal as s; s.signal(s.SIGALRM, lambda *_: None); s.setitimer(s.ITIMER_REAL, .01, .01)"
    sealing = machine.seal(workspace)
    killed = [machine.change(workspace, CHANGES[name]) for name in ("append", "create")]
    goes_on = machine.change(workspace, f"{handled}; now(); os.mkdir('madedirs/dir'); s.setitimer(s.ITIMER_REAL, 0)")
    look_around(workspace.root)
    killed[0].kill()
    killed[1].terminate()
    if transport == "raw":
        assert [program.wait(DEADLINE_S) for program in killed] == [-signal.SIGKILL, -signal.SIGTERM]
    look_around(workspace.root)
    assert not sealing.done()
    assert goes_on.poll() is None
    machine.store.let_go()
    sealing.result(DEADLINE_S)
    assert goes_on.wait(DEADLINE_S) == 0, "no call on a disk fails for a signal that is handled"
    assert [program.wait(DEADLINE_S) for program in killed] == [-signal.SIGKILL, -signal.SIGTERM]
    if transport == "raw":
        assert (workspace.root / "changed" / "file").read_text() == "changed"
        assert not list((workspace.root / "made").iterdir())


READER = """
import mmap, os, sys
root, counter = sys.argv[1:]
with open(counter, "r+b") as file:
    count = mmap.mmap(file.fileno(), 8)
number = 0
while True:
    for name in os.listdir(root):
        path = root + "/" + name
        assert os.stat(path).st_size == 3000
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert len(file.read()) == 3000
        number += 1
        count[:] = number.to_bytes(8, "little")
"""
"""Counts the files that it has seen in a list, asked for, and read."""


def test_a_large_commit_keeps_nobody_waiting(tmp_path: Path, transport: Transport) -> None:
    socket = tmp_path / "zygote.sock"
    launcher.start(socket, tmp_path / "m", tmp_path / "log", os.getpid(), transport=transport, few_mounts=True)
    with ExitStack() as undo:
        undo.callback(lambda: print((tmp_path / "log").read_text()))
        undo.callback(launcher.shut_down, socket)
        spec = LayerSpec("w", tmp_path / "layers", None, 1, 1)
        workspace = open_fuse_workspace(socket, spec, f"file://{tmp_path}/blobs", tmp_path / "m" / "w").workspace
        undo.callback(workspace.close)
        (workspace.root / "files").mkdir()
        for number in range(50):
            (workspace.root / "files" / str(number)).write_bytes(bytes(3_000))
        expected = ScratchBuffer(MemoryBlobStore())
        large = random.Random(2).randbytes(64 * 1024 * 1024)
        (workspace.root / "large").write_bytes(large)
        (tmp_path / "counter").write_bytes(bytes(8))
        with (tmp_path / "counter").open("r+b") as file, mmap.mmap(file.fileno(), 8) as counter:
            command = [
                sys.executable,
                "-c",
                READER,
                os.fspath(workspace.root / "files"),
                os.fspath(tmp_path / "counter"),
            ]
            reader = subprocess.Popen(command, stderr=subprocess.PIPE)
            undo.callback(reader.communicate)
            undo.callback(reader.kill)

            def seen() -> int:
                number: int = struct.unpack("<Q", counter[:])[0]
                return number

            while seen() < 100:
                assert reader.poll() is None
            before = seen()
            ref = workspace.seal()
            during = seen() - before
            assert reader.poll() is None
        entry = tree.entry_at(PackBlobStore(f"file://{tmp_path}/blobs"), ref.tree_id, b"large")
        assert entry is not None
        assert entry.content == content.store_bytes(expected, large)
        # One at most, where no request is answered: the one that was on its way.
        assert during > 20
