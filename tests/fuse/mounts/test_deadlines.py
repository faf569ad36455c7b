"""No request hangs: servers and blob stores that do not answer, and what their callers get."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import list_mounts, open_fuse_workspace
from chronicle.fuse.watchdog import COMMAND, IDLE, OPENING, REQUEST, HeartbeatTable, Verdict, Watchdog
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec
from tests.faulty_proxy import running_proxy
from tests.fuse.conftest import DEADLINE_S, Node, prefork_process_of, running_mirror, served, wait_for_end
from tests.s3_server import BUCKET, S3Server, point_at

WELL, QUIET, HANGS = Verdict.ALIVE, Verdict.SILENT, Verdict.HUNG
ENDED = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO}
PATIENCE_S = 4.0
"""After which a server is taken to hang. One that does not may wait for the processor, or the disk, for a second."""


def pids_of(node: Node) -> dict[object, int]:
    return {mount["workspace_id"]: int(str(mount["pid"])) for mount in served(node.socket)}


def read_all(path: Path) -> int:
    """Return the errno with which reading a file ends, in a process of its own: it could hang."""
    code = "import sys\ntry: open(sys.argv[1], 'rb').read()\nexcept OSError as error: sys.exit(error.errno)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=DEADLINE_S, check=False)
    return done.returncode


def test_a_server_that_hangs_in_a_request_is_replaced(tmp_path: Path, transport: Transport) -> None:
    with running_mirror(tmp_path, transport, request_deadline_s=PATIENCE_S) as node:
        workspace, other = node.workspace(), node.workspace("other")
        (node.layers / "w" / "hang").write_text("x")
        pids = pids_of(node)
        assert read_all(workspace.root / "hang") in ENDED
        workspace.begin_turn(2)
        after = pids_of(node)
        assert after["w"] != pids["w"]
        assert after["other"] == pids["other"]
        (workspace.root / "a").write_text("goes on")
        (other.root / "a").write_text("was not hindered")
        assert "hangs and is ended" in (tmp_path / "log").read_text()


def test_a_blob_store_that_hangs_fails_reads_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    socket = tmp_path / "zygote.sock"
    with running_proxy(s3.port) as proxy:
        point_at(monkeypatch, proxy.endpoint, tmp_path / "cache")
        launcher.start(
            socket,
            tmp_path / "m",
            tmp_path / "log",
            os.getpid(),
            request_deadline_s=PATIENCE_S,
            blobs_url=f"s3://{BUCKET}",
            few_mounts=True,
        )
        with ExitStack() as opened:
            opened.callback(lambda: print((tmp_path / "log").read_text()))
            opened.callback(launcher.shut_down, socket)
            url = f"s3://{BUCKET}/{uuid4().hex}"
            spec = LayerSpec("w", tmp_path / "here", None, 1, 1)
            first = open_fuse_workspace(socket, spec, url, tmp_path / "m" / "first").workspace
            opened.callback(first.close)
            (first.root / "far").write_bytes(os.urandom(300_000))
            content = (first.root / "far").read_bytes()
            first.adopt(first.seal())
            spec = LayerSpec("w2", tmp_path / "there", first.base, 1, 2)
            second = open_fuse_workspace(socket, spec, url, tmp_path / "m" / "second").workspace
            opened.callback(second.close)
            (second.root / "near").write_text("on this node")
            drop_node_cache(tmp_path / "cache")
            proxy.fail("stall")
            assert read_all(second.root / "far") == errno.EIO
            assert read_all(second.root / "far") == errno.EIO
            assert (second.root / "near").read_text() == "on this node"
            assert (first.root / "far").read_bytes() == content
            proxy.fail("none")
            while read_all(second.root / "far") != 0:  # until the reads that hang have ended
                pass
            assert (second.root / "far").read_bytes() == content
            assert [mount["restarts"] for mount in list_mounts(socket)] == [0, 0]


@pytest.mark.one_transport
def test_a_diff_of_many_lines_hinders_nobody(tmp_path: Path, transport: Transport) -> None:
    socket = tmp_path / "zygote.sock"
    # Half a second is enough for all of it, and minutes if it took as long as the lines times themselves.
    launcher.start(
        socket,
        tmp_path / "m",
        tmp_path / "log",
        os.getpid(),
        transport=transport,
        request_deadline_s=20,
        few_mounts=True,
    )
    with ExitStack() as opened:
        opened.callback(launcher.shut_down, socket)
        spec = LayerSpec("w", tmp_path / "layers", None, 1, 1)
        workspace = open_fuse_workspace(socket, spec, f"file://{tmp_path}/blobs", tmp_path / "m" / "w").workspace
        opened.callback(workspace.close)
        held = opened.enter_context((workspace.root / "held").open("w+b", buffering=0))
        for turn, odd in ((1, b"odd"), (2, b"new")):
            text = b"".join(b"%d\n" % line if line % 2 else b"%d %s\n" % (line, odd) for line in range(100_000))
            (workspace.root / "lines").write_bytes(text)
            held.write(odd)
            workspace.adopt(workspace.seal())
            workspace.begin_turn(turn + 1)
        path = workspace.root / ".chronicle" / "diff" / "1..2"
        found = subprocess.run(["cat", path], capture_output=True, timeout=DEADLINE_S, check=True).stdout
        assert found.count(b" new\n") == 50_000
        with path.open("rb") as file:  # it may be read anywhere
            file.seek(1_000_000)
            assert file.read(1_000) == found[1_000_000:1_001_000]
            file.seek(10)
            assert file.read() == found[10:]
        assert os.pread(held.fileno(), 6, 0) == b"oddnew"
        assert [mount["restarts"] for mount in list_mounts(socket)] == [0]


def drop_node_cache(directory: Path) -> None:
    """Let nothing that was fetched or put be on this node but in layers."""
    for path in directory.rglob("*"):
        if path.is_file():
            path.unlink()


def looks(watchdog: Watchdog, times: int, first_s: float, pid: int = 0) -> list[Verdict]:
    """Look as often as a zygote does, for a deadline of six seconds."""
    return [watchdog.check(first_s + number, pid) for number in range(times)]


def test_a_server_hangs_if_it_stays_where_it_is_while_it_does_something() -> None:
    heartbeat = HeartbeatTable().slot(3)
    watchdog = Watchdog(heartbeat, 6)
    heartbeat.cells[1] = REQUEST
    assert set(looks(watchdog, 7, 1)) == {WELL}
    assert watchdog.check(8, 0) is HANGS
    heartbeat.beat()
    assert watchdog.check(9, 0) is WELL
    heartbeat.cells[1] = COMMAND
    assert set(looks(watchdog, 30, 10)) == {WELL}, "a command may be longer at one point"
    assert set(looks(watchdog, 3, 40)) == {WELL, HANGS}


def test_a_server_that_waits_hangs_if_it_does_not_hear_that_it_is_asked() -> None:
    heartbeat = HeartbeatTable().slot(3)
    watchdog = Watchdog(heartbeat, 6)
    assert looks(watchdog, 5, 1) == [WELL, WELL, WELL, QUIET, WELL]
    heartbeat.beat()
    assert looks(watchdog, 8, 6) == [WELL, WELL, WELL, QUIET, WELL, WELL, WELL, HANGS]


def test_time_in_which_the_zygote_was_stopped_too_counts_little() -> None:
    heartbeat = HeartbeatTable().slot(3)
    heartbeat.cells[1] = REQUEST
    watchdog = Watchdog(heartbeat, 6)
    assert [watchdog.check(now_s, 0) for now_s in (1, 2, 1_000, 1_001, 1_002)] == [WELL] * 5


def test_a_server_that_opens_its_layer_gets_on_if_it_computes() -> None:
    heartbeat = HeartbeatTable().slot(3)
    heartbeat.cells[1] = OPENING
    watchdog = Watchdog(heartbeat, 6)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        for now_s in range(20):
            before = Path(f"/proc/{busy.pid}/stat").read_text().split()[13]
            assert watchdog.check(now_s, busy.pid) is WELL
            while Path(f"/proc/{busy.pid}/stat").read_text().split()[13] == before:
                pass
        busy.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, busy.pid, os.WSTOPPED | os.WNOWAIT)  # till then it computes
        assert looks(watchdog, 9, 20, busy.pid)[-1] is HANGS
        busy.kill()


@pytest.mark.one_transport
def test_a_server_that_was_stopped_while_it_waited_is_replaced(tmp_path: Path, transport: Transport) -> None:
    with running_mirror(tmp_path, transport, request_deadline_s=PATIENCE_S) as node:
        workspace, other = node.workspace(), node.workspace("other")
        (workspace.root / "a").write_text("kept")
        before = pids_of(node)
        os.kill(before["w"], signal.SIGSTOP)
        wait_for_end(before["w"])
        workspace.begin_turn(2)
        assert (workspace.root / "a").read_text() == "kept"
        after = pids_of(node)
        assert after["w"] != before["w"]
        assert after["other"] == before["other"], "it waited as long, and was asked"
        (other.root / "a").write_text("was not hindered")
        assert "hangs and is ended" in (tmp_path / "log").read_text()


@pytest.mark.one_transport
def test_a_server_that_hangs_as_it_opens_its_layer_is_replaced(tmp_path: Path, transport: Transport) -> None:
    with running_mirror(tmp_path, transport, request_deadline_s=PATIENCE_S) as node:
        workspace = node.workspace("stuck")
        (workspace.root / "a").write_text("goes on")
        assert "hangs and is ended" in (tmp_path / "log").read_text()


def test_a_template_that_hangs_is_replaced(tmp_path: Path) -> None:
    with running_mirror(tmp_path, "raw", request_deadline_s=PATIENCE_S) as node:
        os.kill(prefork_process_of(node.process.pid), signal.SIGSTOP)
        for name in ("one", "two"):  # there may be a spare for the first
            (node.workspace(name).root / "a").write_text("goes on")
        assert "prefork process hangs and is ended" in (tmp_path / "log").read_text()


def test_places_are_given_to_one_server_at_a_time() -> None:
    pulses = HeartbeatTable()
    first, second = pulses.allocate(), pulses.allocate()
    assert first is not None
    assert second is not None
    assert first != second
    pulses.slot(first).cells[1] = REQUEST
    pulses.release(first)
    assert pulses.slot(first).cells[1] == IDLE
    assert pulses.allocate() == first
