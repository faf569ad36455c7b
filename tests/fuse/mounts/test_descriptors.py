"""Mounts where a process may have few descriptors."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.fuse.zygote.prefork import PreforkProcess
from chronicle.workspace.port import LayerSpec
from tests.fuse.conftest import DEADLINE_S, served, wait_for_end
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.workspace.port import Workspace

FEW = 128
VERSIONS = 500


@pytest.fixture
def machine(tmp_path: Path, transport: Transport) -> Iterator[Path]:
    launcher.start(
        tmp_path / "zygote.sock", tmp_path / "m", tmp_path / "log", os.getpid(), transport=transport, few_mounts=True
    )
    yield tmp_path
    launcher.shut_down(tmp_path / "zygote.sock")
    print((tmp_path / "log").read_text())


@pytest.fixture
def workspace(machine: Path) -> Iterator[Workspace]:
    spec = LayerSpec("w", machine / "layers", None, 1, 1)
    opened = open_fuse_workspace(machine / "zygote.sock", spec, f"file://{machine}/blobs", machine / "m" / "w")
    yield opened.workspace
    opened.workspace.close()


def allow_few(machine: Path) -> None:
    """Take descriptors from the zygote and its server."""
    (mount,) = served(machine / "zygote.sock")
    zygote_pid = launcher.is_running(machine / "zygote.sock")
    assert zygote_pid is not None
    for pid in (zygote_pid, int(str(mount["pid"]))):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW, FEW))


def text_of(version: int) -> bytes:
    return b"%06d " % version * 1_000


def overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)


def test_a_file_is_overwritten_in_place_more_often_than_there_are_descriptors(
    machine: Path, workspace: Workspace
) -> None:
    allow_few(machine)
    path = workspace.root / "a"
    path.write_bytes(text_of(1))
    for version in range(2, VERSIONS + 1):
        overwrite(path, text_of(version))
    rows = json.loads((workspace.root / ".chronicle/query/a").read_text())
    assert [row["iteration"] for row in rows] == list(range(1, VERSIONS + 1))
    for version in (1, 2, 250, VERSIONS):
        assert (workspace.root / f".chronicle/at/{version}/a").read_bytes() == text_of(version)
        with workspace.at("a", version) as file:
            assert file.read() == text_of(version)
    workspace.adopt(workspace.seal())
    workspace.begin_turn(2)
    assert (workspace.root / ".chronicle/at/1/a").read_bytes() == text_of(1)
    assert path.read_bytes() == text_of(VERSIONS)


def test_more_files_are_overwritten_than_there_are_descriptors(machine: Path, workspace: Workspace) -> None:
    allow_few(machine)
    paths = [workspace.root / f"{number}" for number in range(300)]
    for version in (1, 2):
        for path in paths:
            if version == 1:
                path.write_bytes(text_of(version))
            else:
                overwrite(path, text_of(version))
    for path in paths:
        assert (workspace.root / ".chronicle/at/1" / path.name).read_bytes() == text_of(1)
    workspace.adopt(workspace.seal())
    assert all(path.read_bytes() == text_of(2) for path in paths)


def test_a_zygote_takes_as_many_descriptors_as_it_may(tmp_path: Path, transport: Transport) -> None:
    """The limit of who starts it is usually the one for interactive programs."""
    code = (
        "import os, resource, sys\n"
        "from pathlib import Path\n"
        "from chronicle.fuse.zygote import launcher as zygote\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, 2 * {FEW}))\n"
        "at = Path(sys.argv[1])\n"
        "zygote.start(at / 'zygote.sock', at / 'm', at / 'log', int(sys.argv[2]), transport=sys.argv[3])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(os.getpid()), transport]
    subprocess.run(command, check=True, timeout=DEADLINE_S)
    socket = tmp_path / "zygote.sock"
    try:
        spec = LayerSpec("w", tmp_path / "layers", None, 1, 1)
        opened = open_fuse_workspace(socket, spec, f"file://{tmp_path}/blobs", tmp_path / "m" / "w")
        files = []
        try:
            for number in range(FEW + 20):
                files.append((opened.workspace.root / f"{number}").open("wb"))
                files[-1].write(b"x")
        finally:
            for file in files:
                file.close()
            opened.workspace.close()
    finally:
        launcher.shut_down(socket)


def test_who_cannot_be_let_in_waits_and_the_mounts_go_on(machine: Path, workspace: Workspace) -> None:
    """Of callers beyond the limit, and of the servers' hosts too."""
    (mount,) = served(machine / "zygote.sock")
    zygote_pid = launcher.is_running(machine / "zygote.sock")
    assert zygote_pid is not None
    doors = {zygote_pid: machine / "zygote.sock", int(str(mount["pid"])): str(mount["control"])}
    limits = {}
    for pid in doors:
        limits[pid] = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        taken = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - numbers
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (taken + 1, limits[pid][1]))
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from chronicle.control.connections import ControlClient\n"
        "callers = [ControlClient(Path(sys.argv[1]), 60) for _ in range(40)]\n"
        "print('connected', flush=True)\n"
        "for caller in callers: caller.call('ping', 60)\n"
    )
    waiting = [
        subprocess.Popen([sys.executable, "-c", code, str(door)], stdout=subprocess.PIPE) for door in doors.values()
    ]
    try:
        for process in waiting:
            assert process.stdout is not None
            assert process.stdout.readline() == b"connected\n"
        log = machine / "log"
        wait_until(lambda: log.read_text().count("no connection can be accepted") >= len(doors), "nobody had to wait")
        (workspace.root / ".chronicle" / "turn").stat()  # answered while they wait
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
        assert [process.wait(DEADLINE_S) for process in waiting] == [0, 0]
    finally:
        for process in waiting:
            process.kill()
            process.communicate()
    (workspace.root / "a").write_text("goes on")
    assert [mount["pid"] for mount in served(machine / "zygote.sock")] == [mount["pid"]]


def duplicates(fd: int) -> list[int]:
    """Take all descriptors that are left."""
    found = []
    try:
        while True:
            found.append(os.dup(fd))
    except OSError as error:
        assert error.errno == errno.EMFILE  # noqa: PT017 - what it ends with
    return found


def test_a_server_whose_pidfd_could_not_be_received_is_ended() -> None:
    def serve(order: bytes, listener: socket.socket, channel: socket.socket) -> int:
        return len(channel.recv(1))  # for as long as it may

    prefork = PreforkProcess(serve)
    ours, theirs = socket.socketpair()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert prefork.order(b"serve", theirs, theirs)
        theirs.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(ours.fileno(), prefork.fileno()) + 1, before[1]))
        full = duplicates(ours.fileno())
        forked = prefork.answer()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for fd in full:
        os.close(fd)
    assert forked is not None
    assert forked.pid > 0
    assert forked.pidfd == -1
    wait_for_end(forked.pid)
    ours.close()
    prefork.close()
