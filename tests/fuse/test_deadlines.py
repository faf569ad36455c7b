"""No request hangs: servers and blob stores that do not answer, and what their callers get."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from chronicle.fuse import zygote
from chronicle.fuse.client import list_mounts, open_fuse_workspace
from chronicle.fuse.mounts import Transport
from chronicle.fuse.pulse import COMMAND, IDLE, REQUEST, Pulses, Watcher
from chronicle.workspace.port import LayerSpec
from tests.faulty_proxy import running_proxy
from tests.fuse.conftest import DEADLINE_S, running_mirror
from tests.s3_server import BUCKET, point_at, running_s3

ENDED = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO}


def read_all(path: Path) -> int:
    """Return the errno with which reading a file ends, in a process of its own: it could hang."""
    code = "import sys\ntry: open(sys.argv[1], 'rb').read()\nexcept OSError as error: sys.exit(error.errno)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=DEADLINE_S, check=False)
    return done.returncode


def test_a_server_that_hangs_in_a_request_is_replaced(tmp_path: Path, transport: Transport) -> None:
    with running_mirror(tmp_path, transport, request_deadline_s=1) as node:
        workspace, other = node.workspace(), node.workspace("other")
        (node.layers / "w" / "hang").write_text("x")
        pids = {mount["workspace_id"]: mount["pid"] for mount in list_mounts(node.socket)}
        assert read_all(workspace.root / "hang") in ENDED
        workspace.begin_turn(2)
        after = {mount["workspace_id"]: mount["pid"] for mount in list_mounts(node.socket)}
        assert after["w"] != pids["w"]
        assert after["other"] == pids["other"]
        (workspace.root / "a").write_text("goes on")
        (other.root / "a").write_text("was not hindered")
        assert "hangs and is ended" in (tmp_path / "log").read_text()


def test_a_blob_store_that_hangs_fails_reads_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "zygote.sock"
    with running_s3(tmp_path / "s3") as s3, running_proxy(s3.port) as proxy:
        point_at(monkeypatch, proxy.endpoint, tmp_path / "cache")
        zygote.start(socket, tmp_path / "m", tmp_path / "log", os.getpid(), request_deadline_s=6)
        with ExitStack() as opened:
            opened.callback(lambda: print((tmp_path / "log").read_text()))
            opened.callback(zygote.shut_down, socket)
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


def drop_node_cache(directory: Path) -> None:
    """Let nothing that was fetched or put be on this node but in layers."""
    for path in directory.rglob("*"):
        if path.is_file():
            path.unlink()


def test_a_server_hangs_if_it_stays_where_it_is_while_it_does_something() -> None:
    pulse = Pulses().at(3)
    watcher = Watcher(pulse, 10)
    assert not watcher.hangs(0)
    assert not watcher.hangs(1_000), "it waits for requests"
    pulse.cells[1] = REQUEST
    assert not watcher.hangs(1_000)
    assert not watcher.hangs(1_010)
    assert watcher.hangs(1_011)
    pulse.beat()
    assert not watcher.hangs(1_012)
    pulse.cells[1] = COMMAND
    assert not watcher.hangs(1_100), "a command may take long"
    assert watcher.hangs(3_000)


def test_places_are_given_to_one_server_at_a_time() -> None:
    pulses = Pulses()
    first, second = pulses.take(), pulses.take()
    assert first is not None
    assert second is not None
    assert first != second
    pulses.at(first).cells[1] = REQUEST
    pulses.give_back(first)
    assert pulses.at(first).cells[1] == IDLE
    assert pulses.take() == first
