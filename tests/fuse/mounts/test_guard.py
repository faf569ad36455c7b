"""No write is lost in the directory below a mount: not while a server is replaced, not when a mount was given up."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import guard, mountinfo, stray_files
from chronicle.fuse.server.client import attach_fuse_workspace, list_mounts, unmount_workspace
from chronicle.fuse.server.opening import open_served
from chronicle.fuse.server.request import MountRequest
from chronicle.fuse.watchdog import unwatched_heartbeat
from chronicle.workspace.port import LayerSpec
from tests.fuse.conftest import DEADLINE_S, running_mirror, served, wait_for_end
from tests.leftovers import new_directory
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.served.filesystem import FileSystem
    from chronicle.fuse.server.client import FuseWorkspace
    from tests.fuse.conftest import Node

NOBODY = 65534
_WRITERS = 3
_KILLS = 4
"""Of one mount: after a fifth within half a minute it is given up."""
_ROLLBACKS = 12
_WRITE = """
import os, sys
root, me, log = sys.argv[1], sys.argv[2], open(sys.argv[3], "a", buffering=1)
if os.geteuid() != int(sys.argv[4]):
    os.setgid(int(sys.argv[4]))
    os.setuid(int(sys.argv[4]))
number = 0
while True:
    number += 1
    file, directory = f"{me}-{number}.file", f"{me}-{number}.directory"
    try:
        fd = os.open(f"{root}/{file}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            assert os.write(fd, file.encode()) == len(file)
        finally:
            os.close(fd)
        print("done", file, file=log)
        os.mkdir(f"{root}/{directory}")
        print("done", directory, file=log)
    except OSError as error:
        print("failed", error.errno, file=log)
"""
"""Writes by path for as long as it lives, and notes what was acknowledged and what failed how."""
CLEAR = {errno.ENOTCONN, errno.ECONNABORTED}
"""What a writer is told while no server is there, and one whose server dies."""


class Writers:
    """ServerProcesses that write to a mount by path."""

    def __init__(self, node: Node, root: Path, logs: Path, user: int) -> None:
        self._logs = logs
        logs.mkdir()
        there = ["nsenter", f"--mount=/proc/{node.process.pid}/ns/mnt"] if user != os.geteuid() else []
        self.processes = [
            subprocess.Popen([*there, sys.executable, "-c", _WRITE, str(root), str(me), str(logs / str(me)), str(user)])
            for me in range(_WRITERS)
        ]

    def _noted(self, what: str) -> list[str]:
        lines = [line for log in self._logs.iterdir() for line in log.read_text().splitlines()]
        return [line.split()[1] for line in lines if line.startswith(what + " ")]

    def acknowledged(self) -> list[str]:
        return self._noted("done")

    def failures(self) -> set[int]:
        return {int(number) for number in self._noted("failed")}

    def wait_for_more(self) -> None:
        """Return when each has written something since."""
        sizes = {log: log.stat().st_size for log in self._logs.iterdir()}

        def have_written() -> bool:
            assert all(process.poll() is None for process in self.processes)
            logs = list(self._logs.iterdir())
            return len(logs) == _WRITERS and all(log.stat().st_size > sizes.get(log, 0) for log in logs)

        wait_until(have_written, "a writer does not write")

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(DEADLINE_S)


@contextmanager
def writers(node: Node, root: Path, logs: Path, user: int) -> Iterator[Writers]:
    started = Writers(node, root, logs, user)
    try:
        yield started
    finally:
        started.end()


def kill_server(node: Node, workspace: FuseWorkspace) -> None:
    """Kill the server of a mount."""
    (pid,) = [mount["pid"] for mount in served(node.socket) if mount["mountpoint"] == str(workspace.root)]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)


def end_servers_under_writers(node: Node, name: str, logs: Path, user: int) -> Writers:
    """Roll back and kill servers while processes write; unmount, and return what they noted."""
    workspace = node.workspace(name)
    with writers(node, workspace.root, logs, user) as writing:
        for number in range(_ROLLBACKS):
            writing.wait_for_more()
            workspace.rollback()
            if number < _KILLS:
                writing.wait_for_more()
                kill_server(node, workspace)
                workspace.begin_turn(2)
        writing.wait_for_more()
    workspace.close()
    return writing


def test_every_acknowledged_write_is_in_the_mount(node: Node, tmp_path: Path) -> None:
    for name in ("kept1", "kept2"):
        writing = end_servers_under_writers(node, name, tmp_path / f"{name}.logs", os.geteuid())
        assert list((node.mounts / name).iterdir()) == []
        there = {path.name for path in (node.layers / name).iterdir()}
        assert [path for path in writing.acknowledged() if path not in there] == []
        assert writing.failures() <= (CLEAR if os.geteuid() == 0 else CLEAR | {errno.EACCES})


@pytest.mark.skipif(os.geteuid() != 0, reason="all these tests are run by another user than root")
def test_another_user_than_root_is_told_too(transport: Transport) -> None:
    with new_directory("chronicle-test-") as directory:
        directory.chmod(0o755)
        with running_mirror(directory, transport, user=NOBODY) as node:
            mountpoint = node.mounts / "kept"
            mountpoint.mkdir()
            os.chown(mountpoint, NOBODY, NOBODY)
            mountpoint.chmod(0o751)
            writing = end_servers_under_writers(node, "kept", directory / "logs", NOBODY)
            assert list(mountpoint.iterdir()) == []
            there = {path.name for path in (node.layers / "kept").iterdir()}
            assert [path for path in writing.acknowledged() if path not in there] == []
            assert writing.failures() <= CLEAR | {errno.EACCES}
            assert mountpoint.stat().st_mode & 0o777 == 0o751


def test_a_mountpoint_behind_a_symlink_is_guarded_and_unmounted_too(tmp_path: Path, transport: Transport) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    with running_mirror(tmp_path / "link", transport) as node:
        workspace = node.workspace()
        (workspace.root / "a").write_text("kept")
        kill_server(node, workspace)
        workspace.begin_turn(2)
        assert (workspace.root / "a").read_text() == "kept"
        workspace.close()
        assert not workspace.root.is_mount()
        assert mountinfo.fuse_mounts_under(tmp_path) == []
        assert list(workspace.root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_directory_that_a_kill_of_everything_left_shut_can_be_mounted_on_again(transport: Transport) -> None:
    with new_directory("chronicle-test-") as directory:
        directory.chmod(0o755)
        with running_mirror(directory, transport, user=NOBODY) as first:
            mountpoint = first.workspace().root
            (pid,) = [int(str(mount["pid"])) for mount in served(first.socket)]
            os.killpg(first.process.pid, signal.SIGKILL)
            wait_for_end(pid)
            first.process.wait(DEADLINE_S)
        assert mountpoint.stat().st_mode & 0o700 == 0
        (directory / "fuse").unlink()
        with running_mirror(directory, transport, user=NOBODY) as second:
            second.workspace().close()
        assert mountpoint.stat().st_mode & 0o700 == 0o700


def test_what_was_written_while_it_was_being_mounted_is_carried_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = LayerSpec("w", tmp_path / "layers", None, 1, 1)
    served = open_served(MountRequest(spec, f"file://{tmp_path}/blobs", tmp_path), unwatched_heartbeat(), deadline_s=1)
    kept, handle, _ = served.filesystem.create(1, b"taken", 0o100644, os.geteuid(), os.getegid())
    served.filesystem.write(handle, 0, b"first", kill_privileges=None)
    served.filesystem.release(handle)
    served.filesystem.forget([(kept.ino, 1)])
    mountpoint = tmp_path / "m"
    mountpoint.mkdir(0o750)
    guard.shut(mountpoint)
    assert mountpoint.stat().st_mode & 0o777 == 0o050
    monkeypatch.setattr(stray_files, "_WRITER_DEADLINE_S", DEADLINE_S)  # who writes may be slow
    with guard.opened(mountpoint, partial(stray_files.move_stray_files, filesystem=served.filesystem)):
        (mountpoint / "taken").write_text("second")
        (mountpoint / "deep" / "er").mkdir(parents=True)
        (mountpoint / "deep" / "er" / "file").write_bytes(b"x" * 3_000_000)
        (mountpoint / "link").symlink_to("deep")
        writer = subprocess.Popen(["sh", "-c", 'exec >"$0"; sleep 0.2; echo late', str(mountpoint / "late")])
        while not (mountpoint / "late").exists():
            pass
    assert writer.wait(DEADLINE_S) == 0
    guard.reopen(mountpoint)
    assert mountpoint.stat().st_mode & 0o777 == 0o750
    assert list(mountpoint.iterdir()) == []
    assert content(served.filesystem, b"taken") == b"first"
    assert content(served.filesystem, b"taken.below") == b"second"
    assert content(served.filesystem, b"deep", b"er", b"file") == b"x" * 3_000_000
    assert content(served.filesystem, b"late") == b"late\n"
    link = served.filesystem.lookup(1, b"link")
    assert link is not None
    assert served.filesystem.readlink(link.ino) == b"deep"
    assert "6 names" in caplog.text
    caplog.clear()
    served.engine.close()


def test_what_comes_between_the_clearing_and_the_shutting_is_cleared_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mountpoint = tmp_path / "m"
    mountpoint.mkdir(0o750)
    guard.shut(mountpoint)
    late, cleared = iter(["first", "first", "second"]), []

    def clear(directory: str) -> int:
        assert Path(directory).stat().st_mode & 0o700 == 0o700
        there = [entry for entry in Path(directory).iterdir() if entry.name != "kept"]
        for entry in there:
            entry.rmdir()
            cleared.append(entry.name)
        for name in late:  # by a call that had looked the path up before the mount
            Path(directory, name).mkdir()
            break
        return len(there)

    with guard.opened(mountpoint, clear):
        (mountpoint / "stray").mkdir()
        (mountpoint / "kept").mkdir()  # it cannot be moved
    assert cleared == ["stray", "first", "first", "second"]
    assert mountpoint.stat().st_mode & 0o777 == 0o050
    guard.reopen(mountpoint)
    assert [path.name for path in mountpoint.iterdir()] == ["kept"]
    assert f"left below the mount at {mountpoint}: ['kept']" in caplog.text
    caplog.clear()


def test_clearing_ends_though_names_come_without_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mountpoint = tmp_path / "m"
    mountpoint.mkdir(0o750)
    guard.shut(mountpoint)

    def clear(directory: str) -> int:
        there = list(Path(directory).iterdir())
        for entry in there:
            entry.rmdir()
        Path(directory, "now").mkdir()
        return len(there)

    with guard.opened(mountpoint, clear):
        pass
    assert mountpoint.stat().st_mode & 0o777 == 0o050
    assert f"left below the mount at {mountpoint}: ['now']" in caplog.text
    caplog.clear()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_mount_that_was_given_up_is_shut_again(transport: Transport) -> None:
    """Its last server may have been killed while the directory was open for it."""
    with new_directory("chronicle-test-") as directory:
        directory.chmod(0o755)
        with running_mirror(directory, transport, user=NOBODY) as node:
            workspace = node.workspace()
            for _ in range(5):
                kill_server(node, workspace)
                workspace.begin_turn(2)
            assert workspace.root.stat().st_mode & 0o700 == 0
            workspace.root.chmod(0o755)  # this process has its own view of the mounts: it is the directory below
            kill_server(node, workspace)
            with pytest.raises(Unavailable):
                workspace.begin_turn(2)
            assert workspace.root.stat().st_mode & 0o777 == 0o055
            workspace.close()
            assert workspace.root.stat().st_mode & 0o777 == 0o755


def test_what_cannot_be_carried_stays_whole_below(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a file system that knows no leases, as of some networks, keeps nobody's file from being carried."""
    spec = LayerSpec("w", tmp_path / "layers", None, 1, 1)
    served = open_served(MountRequest(spec, f"file://{tmp_path}/blobs", tmp_path), unwatched_heartbeat(), deadline_s=1)
    mountpoint = tmp_path / "m"
    mountpoint.mkdir()
    (mountpoint / "large").write_bytes(b"x" * 3_000_000)

    def no_leases(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr("chronicle.fuse.mountpoints.stray_files.fcntl.fcntl", no_leases)
        really = served.filesystem.write

        def write(handle: int, offset: int, data: bytes, *, kill_privileges: tuple[int, int, int] | None) -> int:
            if offset:
                raise OSError(errno.ENOSPC, "No space left on device")
            return really(handle, offset, data, kill_privileges=kill_privileges)

        patch.setattr(served.filesystem, "write", write)
        stray_files.move_stray_files(str(mountpoint), served.filesystem)
        assert served.filesystem.lookup(1, b"large") is None
        assert (mountpoint / "large").stat().st_size == 3_000_000
        patch.setattr(served.filesystem, "write", really)
        stray_files.move_stray_files(str(mountpoint), served.filesystem)
    assert content(served.filesystem, b"large") == b"x" * 3_000_000
    assert list(mountpoint.iterdir()) == []
    assert "left below the mount" in caplog.text
    caplog.clear()
    served.engine.close()


def content(filesystem: FileSystem, *names: bytes) -> bytes:
    inode = 1
    for name in names:
        found = filesystem.lookup(inode, name)
        assert found is not None
        inode = found.ino
    handle, _ = filesystem.open(inode, os.O_RDONLY, kill_privileges=None)
    try:
        return filesystem.read(handle, 0, 10_000_000)
    finally:
        filesystem.release(handle)


def test_a_mount_that_was_given_up_takes_no_writes_until_it_is_unmounted(node: Node) -> None:
    workspace = node.workspace()
    (workspace.root / "a").write_text("kept")
    for _ in range(5):
        kill_server(node, workspace)
        workspace.begin_turn(2)
    kill_server(node, workspace)
    with pytest.raises(Unavailable):
        workspace.begin_turn(2)
    (mount,) = list_mounts(node.socket)
    assert mount["state"] == "failed"
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            (workspace.root / "new").write_text("lost?")
        assert caught.value.errno == errno.ENOTCONN
    assert attach_fuse_workspace(node.socket, "w") is None
    again = node.workspace(epoch=2)
    assert (again.root / "a").read_text() == "kept"
    unmount_workspace(node.socket, again.root)
    assert not mountinfo.is_mounted(again.root)
    assert list(again.root.iterdir()) == []
