"""What the kernel and a server agree on: the same through both transports, but for what only one can say."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import mountinfo, mounts
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.transport import device, wire
from chronicle.fuse.transport.raw_session import RawSession
from chronicle.fuse.watchdog import unwatched_heartbeat
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec
from tests.fuse.posix.plain import PlainDirectory

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 0x10
XATTR_CREATE, XATTR_REPLACE = 1, 2
NOBODY = 65534
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, transport: Transport) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("machine")
    launcher.start(
        directory / "zygote.sock", directory, directory / "log", os.getpid(), transport=transport, few_mounts=True
    )
    yield directory
    launcher.shut_down(directory / "zygote.sock")
    log = (directory / "log").read_text()
    print(log)
    assert "Traceback" not in log


@pytest.fixture
def workspace(machine: Path, tmp_path: Path) -> Iterator[FuseWorkspace]:
    spec = LayerSpec("w", tmp_path / "layers", None, 1, 1)
    mountpoint = machine / "m" / tmp_path.name
    opened = open_fuse_workspace(machine / "zygote.sock", spec, f"file://{tmp_path}/blobs", mountpoint).workspace
    assert isinstance(opened, FuseWorkspace)
    yield opened
    opened.close()


@pytest.fixture
def root(workspace: FuseWorkspace) -> Path:
    return workspace.root


def as_nobody(code: str, path: Path) -> None:
    """Run code as a user who may not keep set-user-id bits of what they write; its argument is a descriptor."""
    fd = os.open(path, os.O_RDWR)
    try:
        command = [sys.executable, "-c", f"import os\nfd = {fd}\nos.setgid({NOBODY})\nos.setuid({NOBODY})\n{code}"]
        subprocess.run(command, pass_fds=[fd], check=True, timeout=60)
    finally:
        os.close(fd)


def fallocate(path: Path, mode: int, offset: int, length: int) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        if libc.fallocate(fd, mode, offset, length) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("code", ["os.pwrite(fd, b'x', 0)", "os.ftruncate(fd, 1)"])
def test_set_user_id_goes_when_another_user_changes_a_file(root: Path, code: str) -> None:
    path = root / "program"
    path.write_text("text")
    path.chmod(0o6755)
    os.pwrite(fd := os.open(path, os.O_RDWR), b"y", 0)
    os.close(fd)
    assert path.stat().st_mode & 0o7777 == 0o6755, "root keeps them"
    as_nobody(code, path)
    assert path.stat().st_mode & 0o7777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_set_group_id_without_execution_is_as_the_kernel_has_it(
    root: Path, tmp_path: Path, transport: Transport
) -> None:
    modes = []
    for directory in (root, tmp_path):
        path = directory / "program"
        path.write_text("text")
        path.chmod(0o2644)
        as_nobody("os.pwrite(fd, b'x', 0)", path)
        modes.append(path.stat().st_mode)
    if transport == "raw":
        assert modes[0] == modes[1]
    else:  # done by the kernel, which is shy of doing it for a file system
        assert modes[0] & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_new_owner_gets_no_privileges(root: Path) -> None:
    path = root / "program"
    path.write_text("text")
    path.chmod(0o6755)
    os.chown(path, NOBODY, NOBODY)
    assert path.stat().st_mode & 0o7777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_capabilities_go_when_a_file_is_written(root: Path) -> None:
    path = root / "program"
    path.write_text("text")
    # struct vfs_cap_data, revision 2: CAP_NET_RAW permitted.
    capability = bytes.fromhex("0000000200200000000000000000000000000000")
    os.setxattr(path, "security.capability", capability)
    os.setxattr(path, "user.kept", b"1")
    path.write_text("other")
    assert os.listxattr(path) == ["user.kept"]


def test_extended_attributes_are_made_and_replaced_as_asked(root: Path) -> None:
    path = root / "file"
    path.touch()
    with pytest.raises(OSError) as caught:
        os.setxattr(path, "user.a", b"1", XATTR_REPLACE)
    assert caught.value.errno == errno.ENODATA
    os.setxattr(path, "user.a", b"1", XATTR_CREATE)
    with pytest.raises(FileExistsError):
        os.setxattr(path, "user.a", b"2", XATTR_CREATE)
    os.setxattr(path, "user.a", b"3", XATTR_REPLACE)
    assert os.getxattr(path, "user.a") == b"3"


def test_ranges_are_reserved_zeroed_and_given_back(workspace: FuseWorkspace, root: Path, transport: Transport) -> None:
    path = root / "file"
    path.write_bytes(b"x" * 10_000)
    if transport == "pyfuse3":
        with pytest.raises(OSError) as caught:
            fallocate(path, PUNCH_HOLE | KEEP_SIZE, 0, 4096)
        assert caught.value.errno == errno.EOPNOTSUPP
        return
    before = len(workspace.history("file"))
    fallocate(path, KEEP_SIZE, 0, 100_000)
    assert path.stat().st_size == 10_000
    assert len(workspace.history("file")) == before, "nothing that can be read was changed"
    fallocate(path, PUNCH_HOLE | KEEP_SIZE, 1000, 2000)
    fallocate(path, 0, 9_000, 5_000)
    expected = b"x" * 1000 + bytes(2000) + b"x" * 7000 + bytes(4000)
    assert path.read_bytes() == expected
    assert path.stat().st_size == 14_000
    assert [item.size for item in workspace.history("file")][before:] == [10_000, 14_000]
    assert (root / ".chronicle" / "at" / str(before) / "file").read_bytes() == b"x" * 10_000
    workspace.adopt(workspace.seal())
    fallocate(path, ZERO_RANGE, 0, 14_000)
    assert path.read_bytes() == bytes(14_000)
    with workspace.at("file", before + 2) as old:
        assert old.read() == expected


def test_what_is_not_served_fails_cleanly(root: Path) -> None:
    path = root / "file"
    path.write_bytes(b"data")
    fd = os.open(path, os.O_RDWR)
    try:
        assert os.lseek(fd, 0, os.SEEK_HOLE) == 4, "a file is all data"
        assert os.lseek(fd, 2, os.SEEK_DATA) == 2
        with (root / "copy").open("wb") as copy:
            assert os.copy_file_range(fd, copy.fileno(), 4, 0, 0) == 4
        assert (root / "copy").read_bytes() == b"data"
        with pytest.raises(OSError) as caught:
            os.open(root, os.O_TMPFILE | os.O_RDWR, 0o600)
        assert caught.value.errno == errno.EOPNOTSUPP
    finally:
        os.close(fd)


def test_large_directories_are_listed_whole_and_their_inodes_are_those_of_stat(
    workspace: FuseWorkspace, root: Path
) -> None:
    names = {f"{'long' * 20}{number}" for number in range(1500)}
    for name in names:
        (root / name).touch()
    (root / "directory").mkdir()
    (root / "link").symlink_to("directory")
    workspace.adopt(workspace.seal())
    workspace.rollback()  # mounted again: nothing is loaded
    with os.scandir(root) as entries:
        found = {
            entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries
        }
    assert found.keys() == names | {"directory", "link"}
    assert found["directory"][1:] == (True, False)
    assert found["link"][1:] == (False, True)
    for name in [*sorted(names)[::100], "directory", "link"]:
        assert found[name][0] == (root / name).lstat().st_ino


def test_fusermount_mounts_for_those_who_may_not(tmp_path: Path) -> None:
    """What users other than root do, and root in a container that may not mount."""
    source, mountpoint = tmp_path / "source", tmp_path / "mount"
    for directory in (source, mountpoint):
        directory.mkdir()
    session = RawSession(PlainDirectory(source), mountpoint, unwatched_heartbeat(), source="a,b", allow_other=False)
    session._device = device._run_fusermount(mountpoint, "a,b", allow_other=False)
    try:
        assert mountinfo.source_of(mountpoint) == "a,b"
        assert mountinfo.fuse_mounts_under(tmp_path) == [mountpoint]
        assert not os.get_inheritable(session._device)
        # In another process: it waits for this one.
        with subprocess.Popen(["sh", "-c", 'echo text > "$0/a"; umount "$0"', mountpoint]) as writer:
            session.run()
            assert writer.wait(60) == 0
        assert (source / "a").read_text() == "text\n"
    finally:
        mounts.unmount(mountpoint)
        session.close()


def test_an_unmount_before_the_first_answer_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount is up before it has answered the kernel: a failure would have it mounted again."""
    source, mountpoint = tmp_path / "source", tmp_path / "mount"
    for directory in (source, mountpoint):
        directory.mkdir()
    session = RawSession(PlainDirectory(source), mountpoint, unwatched_heartbeat(), source="x", allow_other=False)
    negotiate = session._negotiate

    def unmounted() -> bytes:
        mounts.unmount(mountpoint)
        return negotiate()

    monkeypatch.setattr(session, "_negotiate", unmounted)
    session.mount()
    try:
        session.run()
        assert not mountinfo.is_mounted(mountpoint)
    finally:
        mounts.unmount(mountpoint)
        session.close()


def test_why_mounting_failed_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"could not mount at .*No such file"):
        device.mount(tmp_path / "missing", "chronicle", allow_other=False)
    (tmp_path / "missing").mkdir()
    with pytest.raises(Unavailable, match="could not mount at"):
        device._run_fusermount(tmp_path / "missing" / "deeper", "chronicle", allow_other=False)


def test_structures_have_the_kernel_s_sizes() -> None:
    """As in linux/fuse.h."""
    assert wire.IN_HEADER.size == 40
    assert wire.OUT_HEADER.size == 16
    assert wire.ENTRY_BYTES == 128
    assert wire.INIT_OUT.size == 64
    assert wire.NOTIFY_INODE.size == 24
    assert len(wire.dirent(1, 0o040755, b"123456789", 2)) == 24 + 16
