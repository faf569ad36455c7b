"""The zygote: it ends what it started, with its owner or killed, and serves many mounts; over mounts that mirror."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chronicle.errors import Conflict, Unavailable
from chronicle.fuse.mountpoints import mountinfo
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import FuseWorkspace, list_mounts
from chronicle.fuse.zygote import launcher
from chronicle.fuse.zygote.supervisor import Zygote
from tests.fuse.conftest import DEADLINE_S, Node, running_mirror, served, wait_for_end
from tests.fuse.mirror import open_mirror


def test_a_mount_ends_with_the_process_that_asked_for_it(node: Node) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from chronicle.fuse.server.client import open_fuse_workspace\n"
        "from chronicle.workspace.port import LayerSpec\n"
        "directory = pathlib.Path(sys.argv[1])\n"
        "for name, bound in (('bound', True), ('free', False)):\n"
        "    spec = LayerSpec(name, directory / 'layers', None, 1, 1)\n"
        "    socket = directory / 'run' / 'zygote.sock'\n"
        "    opened = open_fuse_workspace(socket, spec, 'memory://', directory / 'mounts' / name, with_caller=bound)\n"
        "    (opened.workspace.root / 'a').touch()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(node.directory)], timeout=DEADLINE_S, check=False)
    assert done.returncode == -signal.SIGKILL
    while len(list_mounts(node.socket)) > 1:  # each question is a round of the zygote's loop
        pass
    assert [mount["workspace_id"] for mount in list_mounts(node.socket)] == ["free"]
    assert not mountinfo.is_mounted(node.mounts / "bound")


def test_servers_unmount_and_end_when_the_zygote_is_killed(node: Node) -> None:
    for number in range(5):
        node.open(f"w{number}")
    pids = [mount["pid"] for mount in served(node.socket)]
    assert len(mountinfo.fuse_mounts_under(node.mounts)) == 5
    node.process.kill()
    for pid in pids:
        assert isinstance(pid, int)
        wait_for_end(pid)
    assert mountinfo.fuse_mounts_under(node.mounts) == []


def test_a_kill_of_everything_at_once_is_cleaned_up_by_the_next_start(tmp_path: Path, transport: Transport) -> None:
    with running_mirror(tmp_path, transport) as first:
        for number in range(5):
            workspace = first.workspace(f"w{number}")
            (workspace.root / "a").write_text("kept")
        pids = [mount["pid"] for mount in served(first.socket)]
        os.killpg(first.process.pid, signal.SIGKILL)
        for pid in pids:
            assert isinstance(pid, int)
            wait_for_end(pid)
        first.process.wait(DEADLINE_S)
        assert len(mountinfo.fuse_mounts_under(first.mounts)) == 5, "nobody was left to unmount"
        with running_mirror(tmp_path, transport) as second:
            assert mountinfo.fuse_mounts_under(second.mounts) == []
            assert (second.workspace("w3").root / "a").read_text() == "kept"


@pytest.mark.one_transport
def test_the_zygote_ends_with_its_owner(tmp_path: Path, transport: Transport) -> None:
    with (
        subprocess.Popen(["sleep", "3600"]) as owner,
        running_mirror(tmp_path, transport, owner.pid) as node,
    ):
        node.open(with_caller=False)
        owner.kill()
        owner.wait()
        node.process.wait(DEADLINE_S)
        assert mountinfo.fuse_mounts_under(node.mounts) == []
        assert launcher.is_running(node.socket) is None


@pytest.mark.one_transport
def test_fifty_at_once(node: Node) -> None:
    opened: list[FuseWorkspace] = []
    failures: list[BaseException] = []

    def open_some(first: int) -> None:
        try:
            for number in range(first, first + 10):
                workspace = node.workspace(f"w{number}")
                (workspace.root / "a").write_text(str(number))
                opened.append(workspace)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=open_some, args=(first,)) for first in range(0, 50, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not failures
    assert len(list_mounts(node.socket)) == 50
    for workspace in opened:
        assert workspace.root.name == "w" + (workspace.root / "a").read_text()
    launcher.shut_down(node.socket)
    node.process.wait(DEADLINE_S)
    assert mountinfo.fuse_mounts_under(node.mounts) == []
    assert [path.name for path in node.socket.parent.iterdir()] == ["zygote.sock.lock"]


@pytest.mark.one_transport
def test_a_second_zygote_on_the_socket_is_refused(node: Node) -> None:
    with pytest.raises(Conflict, match="runs at"):
        Zygote(node.socket, node.mounts, open_mirror)
    assert launcher.is_running(node.socket) == node.process.pid


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    assert launcher.is_running(tmp_path / "z.sock") is None
    launcher.shut_down(tmp_path / "z.sock")
    with pytest.raises(Unavailable, match="nothing listens"):
        list_mounts(tmp_path / "none" / "z.sock")


@pytest.mark.one_transport
def test_a_deep_home_is_not_too_long_for_a_socket(tmp_path: Path, transport: Transport) -> None:
    deep = tmp_path / ("d" * 80) / ("e" * 80)
    deep.mkdir(parents=True)
    with running_mirror(deep, transport) as node:
        workspace = node.workspace()
        workspace.begin_turn(2)
