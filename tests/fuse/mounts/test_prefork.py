"""The prefork process, which forks mount servers, and the spare that it forks ahead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.mountpoints import mountinfo
from chronicle.fuse.zygote import launcher
from tests.fuse.conftest import DEADLINE_S, Node, prefork_process_of, running_mirror, served, wait_for_end
from tests.waiting import wait_until

if TYPE_CHECKING:
    from chronicle.fuse.mountpoints.availability import Transport


def spare_of(node: Node) -> int:
    """The process that waits to be a server, when there is one and the zygote knows of it."""

    def spares() -> set[int]:
        waiting = watched(node.process.pid) - {mount["pid"] for mount in served(node.socket)}
        return waiting if len(waiting) == 1 else set()

    return wait_until(spares, "no spare").pop()


def watched(pid: int) -> set[int]:
    """The processes that a process has pidfds of."""
    found = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):
            found |= {int(line.split()[1]) for line in info.read_text().splitlines() if line.startswith("Pid:")}
    return {other for other in found - {os.getpid()} if other > 0}  # -1 is one that is gone


def server_of(node: Node, name: str) -> int:
    root = str(node.workspace(name).root)
    return next(int(str(mount["pid"])) for mount in served(node.socket) if mount["mountpoint"] == root)


def test_a_killed_template_is_replaced(node: Node) -> None:
    kept = node.workspace("kept")
    (kept.root / "a").write_text("not hindered")
    pid = node.process.pid
    prefork = prefork_process_of(pid)
    os.kill(prefork, signal.SIGKILL)
    assert (node.workspace("new").root).is_mount()
    assert (kept.root / "a").read_text() == "not hindered"
    assert prefork_process_of(pid, after=prefork) != prefork


def test_a_zygote_ends_though_its_template_was_stopped(node: Node) -> None:
    os.kill(prefork_process_of(node.process.pid), signal.SIGSTOP)
    node.process.terminate()
    assert node.process.wait(DEADLINE_S) == 0


@pytest.mark.one_transport
def test_a_server_is_forked_before_it_is_wanted(node: Node) -> None:
    for name in ("one", "two", "three"):
        spare = spare_of(node)
        assert server_of(node, name) == spare


@pytest.mark.one_transport
def test_a_spare_that_was_killed_is_done_without(node: Node) -> None:
    spare = spare_of(node)
    os.kill(spare, signal.SIGKILL)
    wait_for_end(spare)
    server = server_of(node, "one")
    assert server != spare
    assert spare_of(node) not in (spare, server)


@pytest.mark.one_transport
def test_a_spare_that_was_stopped_is_replaced(tmp_path: Path, transport: Transport) -> None:
    with running_mirror(tmp_path, transport, request_deadline_s=4) as node:
        spare = spare_of(node)
        os.kill(spare, signal.SIGSTOP)
        (node.workspace().root / "a").write_text("goes on")
        wait_for_end(spare)
        assert "a mount server hangs and is ended" in (tmp_path / "log").read_text()


@pytest.mark.one_transport
def test_a_spare_outlives_its_template_and_ends_with_the_zygote(node: Node) -> None:
    prefork = prefork_process_of(node.process.pid)
    spare = spare_of(node)
    os.kill(prefork, signal.SIGKILL)
    assert server_of(node, "one") == spare
    spare = spare_of(node)
    node.process.kill()
    wait_for_end(spare)


@pytest.mark.one_transport
def test_a_spare_that_a_dead_template_did_not_get_to_is_forked_by_the_next(node: Node) -> None:
    spare, prefork = spare_of(node), prefork_process_of(node.process.pid)
    os.kill(prefork, signal.SIGSTOP)
    assert server_of(node, "one") == spare
    time.sleep(0.2)  # time enough to order another one
    os.kill(prefork, signal.SIGKILL)
    assert spare_of(node) != spare


def test_a_kill_during_the_warm_up_leaves_nothing_behind(tmp_path: Path, transport: Transport) -> None:
    directory = tmp_path / "m"
    directory.mkdir()
    command = [sys.executable, "-m", "chronicle.fuse.zygote.main", "--socket", str(tmp_path / "z.sock")]
    command += ["--mounts", str(directory), "--transport", transport]

    def warms_up() -> bool:
        return bool(mountinfo.fuse_mounts_under(directory) if transport == "raw" else list(directory.iterdir()))

    seen = False
    while not seen:  # this process may have slept through it
        (tmp_path / "z.sock").unlink(missing_ok=True)
        with subprocess.Popen(command, start_new_session=True) as process:
            while not (seen or (tmp_path / "z.sock").exists()):
                assert process.poll() is None
                seen = warms_up()
            process.kill()
    launcher.start(tmp_path / "z.sock", directory, tmp_path / "log", os.getpid(), transport=transport)
    try:
        assert mountinfo.fuse_mounts_under(directory) == []
        assert list(directory.iterdir()) == []
    finally:
        launcher.shut_down(tmp_path / "z.sock")


def test_a_spare_has_the_pages_that_servers_write_to(node: Node) -> None:
    def private_bytes(pid: int) -> int:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) * 1024

    first = private_bytes(spare_of(node))
    for name in ("one", "two"):
        server_of(node, name)
        spare = spare_of(node)
    wait_until(lambda: private_bytes(spare) >= first + 512 * 1024, "it copied nothing")
