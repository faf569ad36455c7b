"""Mount servers and their clients, over mounts that mirror plain directories; for the zygote see test_zygote.py."""

from __future__ import annotations

import ctypes
import errno
import io
import mmap
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Conflict, Corrupt, InvalidInput, NotFound, StaleEpoch, Unavailable
from chronicle.fuse import available
from chronicle.fuse.mountpoints import availability, mountinfo, mounts
from chronicle.fuse.server.client import (
    attach_fuse_workspace,
    list_mounts,
    open_fuse_workspace,
    unmount_workspace,
)
from chronicle.ids import BlobId
from chronicle.workspace.port import Iteration, TreeRef
from tests.fuse.conftest import (
    DEADLINE_S,
    Node,
    in_a_namespace_of_its_own,
    served,
    wait_for_end,
)
from tests.fuse.mirror import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator


def pid_of(node: Node, name: str = "w") -> int:
    (pid,) = [mount["pid"] for mount in served(node.socket) if mount["workspace_id"] == name]
    assert isinstance(pid, int)
    return pid


def base_of(node: Node, name: str = "w") -> TreeRef:
    """What a workspace's server, the one that is there now, stands on."""
    attached = attach_fuse_workspace(node.socket, name)
    assert attached is not None
    attached.detach()
    return attached.base


@contextmanager
def old_handle(path: Path) -> Iterator[int]:
    """Hold a file open while its mount goes away: then closing it fails too, which is no part of the test."""
    fd = os.open(path, os.O_RDWR)
    try:
        yield fd
    finally:
        with suppress(OSError):
            os.close(fd)


def test_fuse_is_available_where_these_tests_run() -> None:
    for transport in availability.TRANSPORTS:
        assert available(transport) is None


def test_files_of_a_mount_are_there_at_once_and_go_with_it(node: Node) -> None:
    workspace = node.workspace()
    assert mountinfo.is_mounted(workspace.root)
    (workspace.root / "a").write_text("text")
    assert (workspace.root / "a").read_text() == "text"
    assert (node.layers / "w" / "a").read_text() == "text"
    workspace.close()
    workspace.close()
    assert not mountinfo.is_mounted(workspace.root)
    assert list(workspace.root.iterdir()) == []
    assert (node.layers / "w.closed").exists(), "the layer was closed in order"
    assert list_mounts(node.socket) == []


@pytest.mark.one_transport
def test_the_port_is_spoken_over_the_socket(node: Node) -> None:
    workspace = node.workspace()
    workspace.begin_turn(7)
    sealed = workspace.seal()
    assert sealed == TreeRef(BlobId(f"{7:064x}"), BlobId("1" * 64))
    assert workspace.base != sealed
    workspace.adopt(sealed)
    assert workspace.base == sealed
    assert workspace.history("x") == [Iteration(1, 2, 3, "h", "write", 7)]
    with workspace.at("x", 1) as version:
        assert version.read() == VERSION
        assert version.seek(-10, io.SEEK_END) == len(VERSION) - 10
        assert version.read() == VERSION[-10:]
    with pytest.raises(NotFound, match="no iteration 2"):
        workspace.at("x", 2)
    with pytest.raises(NotFound, match="never there"):
        workspace.history("missing")


@pytest.mark.one_transport
def test_names_that_are_not_utf8_cross_the_socket(node: Node) -> None:
    assert node.workspace().history(os.fsdecode(b"\xff\xfe"))


@pytest.mark.one_transport
def test_a_bug_in_a_command_is_an_error_there_and_the_mount_goes_on(node: Node) -> None:
    workspace = node.workspace()
    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        workspace.history("bug")
    (workspace.root / "a").write_text("still here")


@pytest.mark.one_transport
def test_calls_from_several_threads_wait_for_each_other(node: Node) -> None:
    workspace = node.workspace()
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(50):
                assert workspace.history("x")
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not failures


def test_a_killed_server_is_replaced_and_calls_go_on(node: Node) -> None:
    workspace = node.workspace()
    workspace.begin_turn(4)
    workspace.adopt(workspace.seal())
    (workspace.root / "a").write_text("kept")
    with old_handle(workspace.root / "a") as old:
        first = pid_of(node)
        os.kill(first, signal.SIGKILL)
        assert workspace.history("x")[0].turn == 4, "the new server knows the turn"
        assert pid_of(node) != first
        assert (workspace.root / "a").read_text() == "kept"
        with pytest.raises(OSError, match="not connected"):
            os.pwrite(old, b"lost?", 0)


@pytest.mark.one_transport
def test_a_server_that_is_killed_while_it_adopts_is_replaced_by_one_on_the_adopted_tree(node: Node) -> None:
    workspace = node.workspace()
    sealed = workspace.seal()
    (node.layers / "w.dies").touch()
    workspace.adopt(sealed)
    assert base_of(node) == sealed


@pytest.mark.one_transport
def test_a_server_that_is_killed_while_it_refuses_a_tree_is_replaced_by_one_on_the_same_base(node: Node) -> None:
    workspace = node.workspace()
    workspace.seal()
    (node.layers / "w.dies").touch()
    with pytest.raises(InvalidInput, match="sealed last"):
        workspace.adopt(TreeRef(BlobId("a" * 64), BlobId("b" * 64)))
    assert not (node.layers / "w.dies").exists()
    assert base_of(node) == workspace.base


@pytest.mark.one_transport
def test_a_server_that_dies_at_once_again_and_again_is_given_up(node: Node) -> None:
    with pytest.raises(Unavailable, match="ended before it was up"):
        node.open("broken")
    assert (node.layers / "broken" / "tries").stat().st_size == 6
    assert list_mounts(node.socket) == []
    assert not mountinfo.is_mounted(node.mounts / "broken")


@pytest.mark.one_transport
def test_a_layer_that_cannot_be_opened_says_why(node: Node) -> None:
    with pytest.raises(Corrupt, match="its log is damaged"):
        node.open("refused")
    assert list_mounts(node.socket) == []


def test_rollback_cuts_off_handles_mappings_and_cached_pages(node: Node) -> None:
    workspace = node.workspace()
    path = workspace.root / "a"
    path.write_bytes(b"x" * 8192)
    with old_handle(path) as old:
        assert os.pread(old, 10_000, 0) == b"x" * 8192  # in the page cache from now on
        workspace.rollback()
        for attempt in (lambda: os.pread(old, 10, 0), lambda: os.pwrite(old, b"y", 0), lambda: os.fsync(old)):
            with pytest.raises(OSError, match=r"not connected|Input/output|[Ss]tale|aborted") as caught:
                attempt()
            assert caught.value.errno in {errno.ENOTCONN, errno.EIO, errno.ESTALE, errno.ECONNABORTED}
    assert list(workspace.root.iterdir()) == []
    workspace.begin_turn(2)


def test_a_mapping_of_a_rolled_back_mount_faults(node: Node) -> None:
    """In a child of its own: the fault is a SIGBUS."""
    workspace = node.workspace()
    (workspace.root / "a").write_bytes(b"x" * mmap.PAGESIZE)
    code = (
        "import mmap, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "mapping = mmap.mmap(file.fileno(), 0)\n"
        "assert mapping[0] == ord('x')\n"
        "print('mapped', flush=True)\n"
        "sys.stdin.read(1)\n"
        "mapping[0]\n"
    )
    command = [sys.executable, "-c", code, str(workspace.root / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"mapped\n"
        workspace.rollback()
        child.stdin.write(b"\n")
        child.stdin.close()
        assert child.wait(DEADLINE_S) == -signal.SIGBUS


def test_an_operation_that_raises_fails_its_caller_and_is_logged(node: Node) -> None:
    workspace = node.workspace()
    (node.layers / "w" / "raise").write_text("x")  # not by way of the mount, whose pages would answer
    first = pid_of(node)
    with old_handle(workspace.root / "raise") as handle, pytest.raises(OSError, match="Input/output") as caught:
        os.pread(handle, 1, 0)
    assert caught.value.errno == errno.EIO
    assert "ZeroDivisionError" in (node.directory / "log").read_text()
    (workspace.root / "a").write_text("goes on")
    assert pid_of(node) == first


def test_a_server_that_dies_of_an_operation_fails_its_caller_and_the_mount_comes_back(node: Node) -> None:
    workspace = node.workspace()
    (workspace.root / "a").write_text("kept")
    (node.layers / "w" / "abort").write_text("x")
    first = pid_of(node)
    with old_handle(workspace.root / "abort") as handle, pytest.raises(OSError):
        os.pread(handle, 1, 0)
    workspace.begin_turn(2)
    assert pid_of(node) != first
    assert (workspace.root / "a").read_text() == "kept"


@pytest.mark.one_transport
def test_a_hanging_server_is_killed_when_it_is_to_go(node: Node) -> None:
    workspace = node.workspace()
    (node.layers / "w" / "hang").write_text("x")
    with subprocess.Popen(["cat", str(workspace.root / "hang")], stderr=subprocess.DEVNULL) as reader:
        other = node.workspace("other")
        (other.root / "a").write_text("not hindered")
        unmount_workspace(node.socket, workspace.root)
        assert reader.wait(DEADLINE_S) != 0
    assert not mountinfo.is_mounted(workspace.root)


@pytest.mark.one_transport
def test_a_newer_epoch_takes_over_and_an_older_one_is_refused(node: Node) -> None:
    old = node.workspace(epoch=1)
    (old.root / "a").write_text("x")
    with old_handle(old.root / "a") as handle:
        new = node.workspace(epoch=2, at="elsewhere")
        with pytest.raises(OSError, match=r"not connected|aborted"):
            os.pread(handle, 1, 0)
    assert not mountinfo.is_mounted(old.root)
    with pytest.raises(Unavailable):
        old.begin_turn(2)
    with pytest.raises(StaleEpoch) as caught:
        node.open(epoch=1)
    assert (caught.value.epoch, caught.value.current) == (1, 2)
    assert (new.root / "a").read_text() == "x"


@pytest.mark.one_transport
def test_two_takeovers_at_once_leave_one_mount(node: Node) -> None:
    node.open(epoch=1)
    outcomes: list[object] = []

    def take_over(epoch: int) -> None:
        try:
            outcomes.append(node.open(epoch=epoch))
        except (StaleEpoch, Unavailable) as error:
            outcomes.append(error)

    threads = [threading.Thread(target=take_over, args=(epoch,)) for epoch in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(outcomes) == 6
    (mount,) = list_mounts(node.socket)
    assert mount["epoch"] == 7
    assert mountinfo.is_mounted(node.mounts / "w")


@pytest.mark.one_transport
def test_a_mount_is_not_taken_away_by_another_workspace(node: Node) -> None:
    used = node.workspace()
    with (used.root / "a").open("w") as file:
        with pytest.raises(Conflict, match=f"workspace 'w' is mounted at {used.root} already"):
            node.open("other", at="w")
        file.write("still here")
    assert (node.layers / "w" / "a").read_text() == "still here"
    assert [mount["workspace_id"] for mount in list_mounts(node.socket)] == ["w"]


@pytest.mark.one_transport
def test_another_workspace_waits_for_a_mount_that_is_ending(node: Node) -> None:
    used = node.workspace()
    os.kill(pid_of(node), signal.SIGSTOP)  # it is killed after some seconds
    leaves = threading.Thread(target=used.close)
    leaves.start()
    while any(mount["state"] != "ending" for mount in list_mounts(node.socket)):
        pass
    other = node.workspace("other", at="w")
    leaves.join(DEADLINE_S)
    (other.root / "a").write_text("there")
    assert (node.layers / "other" / "a").read_text() == "there"


def test_what_cannot_be_a_mountpoint_is_refused(node: Node) -> None:
    taken = node.mounts / "taken"
    taken.mkdir()
    (taken / "file").touch()
    with pytest.raises(InvalidInput, match="not empty"):
        node.open(at="taken")
    with pytest.raises(InvalidInput, match="cannot be a mountpoint"):
        node.open(at="taken/file")
    with pytest.raises(InvalidInput, match="mounted at /proc already"):
        open_fuse_workspace(node.socket, node.spec(), "memory://", Path("/proc"))
    with pytest.raises(NotFound, match="nothing mounted"):
        unmount_workspace(node.socket, taken)


def test_unmounted_from_outside_is_gone_everywhere(node: Node) -> None:
    workspace = node.workspace()
    pid = pid_of(node)
    mounts.unmount(workspace.root)
    wait_for_end(pid)
    with pytest.raises(Unavailable):
        workspace.begin_turn(2)
    assert list_mounts(node.socket) == []


def test_an_aborted_connection_is_mounted_again(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can abort without unmounting where the control file system is not mounted")
    workspace = node.workspace()
    (workspace.root / "a").write_text("kept")
    pid = pid_of(node)
    with old_handle(workspace.root / "a") as handle:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.umount2(os.fsencode(workspace.root), 1) == -1  # MNT_FORCE
        assert ctypes.get_errno() == errno.EBUSY
        wait_for_end(pid)
        with pytest.raises(OSError, match=r"not connected|aborted"):
            os.pwrite(handle, b"x", 0)
    workspace.begin_turn(2)
    assert (workspace.root / "a").read_text() == "kept"


def test_a_copy_of_a_mount_in_another_namespace_holds_nothing_up(node: Node) -> None:
    workspace = node.workspace()
    (workspace.root / "a").write_text("x")
    pid = pid_of(node)
    command = [*in_a_namespace_of_its_own(), "sh", "-c", 'echo; read _; cat "$0"', str(workspace.root / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as inside:
        assert inside.stdout is not None
        assert inside.stdout.readline() == b"\n"
        workspace.close()
        wait_for_end(pid)
        assert list(workspace.root.iterdir()) == []
        _, complaint = inside.communicate(b"\n", timeout=DEADLINE_S)
        assert b"not connected" in complaint
