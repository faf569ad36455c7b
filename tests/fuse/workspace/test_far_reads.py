"""Reads of a store that does not answer for a while: who waits for it, and who does not."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import FuseWorkspace, list_mounts
from chronicle.fuse.watchdog import COMMAND, REQUEST, unwatched_heartbeat
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.faulty_proxy import FaultyProxy
from tests.fuse.conftest import DEADLINE_S
from tests.fuse.far_mounts import FarMounts, running_far_mounts
from tests.s3_server import BUCKET, S3Server

LARGE = random.Random(5).randbytes(6_000_000)
SMALL = random.Random(6).randbytes(30_000)
LONG_S = 600.0
"""A read's deadline is half of it: no test here waits for that."""
RUN = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
try:
    exec(sys.argv[1])
except OSError as error:
    sys.exit(error.errno)
"""


class Far:
    """A workspace whose content is in the store only, mounted."""

    def __init__(self, workspace: FuseWorkspace, proxy: FaultyProxy) -> None:
        self.workspace = workspace
        self.root = workspace.root
        self.proxy = proxy
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, code: str) -> subprocess.Popen[str]:
        """Run a program beside, which may hang; return when it is about to begin."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", RUN, code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.root,
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def waits(self, code: str) -> subprocess.Popen[str]:
        """Run a program beside that waits for the store; return when the store was asked."""
        before = self.proxy.held
        process = self.start(code)
        with self.proxy.changed:
            assert self.proxy.changed.wait_for(lambda: self.proxy.held > before, DEADLINE_S)
        return process

    def end(self) -> None:
        self.proxy.released.set()
        for process in self._processes:
            process.kill()
            process.communicate(timeout=DEADLINE_S)


def output(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, error
    return out


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory, transport: Transport, s3: S3Server) -> Iterator[FarMounts]:
    with running_far_mounts(
        tmp_path_factory.mktemp("mounts"), transport, s3, request_deadline_s=LONG_S, CHRONICLE_CACHE_BYTES="0"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def stored(mounts: FarMounts, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, TreeRef]:
    """A tree, and the URL of the store that has it."""
    url = f"s3://{BUCKET}/{uuid4().hex}"
    first = mounts.open(LayerSpec("first", tmp_path_factory.mktemp("here"), None, 1, 1), url)
    try:
        (first.root / "sub" / "deep").mkdir(parents=True)
        for number in range(300):
            (first.root / "sub" / f"{number}").write_text(str(number))
        first.adopt(first.seal())  # the nodes of the last commit are there once it is opened, and these are not
        for name in ("one", "two", "three", "four"):
            (first.root / name).write_bytes(name.encode() + SMALL)
        (first.root / "large").write_bytes(LARGE)
        ref = first.seal()
        first.adopt(ref)
    finally:
        first.close()
    return url, ref


@pytest.fixture
def far(mounts: FarMounts, stored: tuple[str, TreeRef], tmp_path: Path) -> Iterator[Far]:
    url, base = stored
    mounts.proxy.released.clear()
    mounts.proxy.fail("none")
    second = mounts.open(LayerSpec(f"w-{uuid4().hex}", tmp_path / "there", base, 2, 2), url)
    with ExitStack() as opened:
        opened.callback(second.close)
        found = Far(second, mounts.proxy)
        opened.callback(found.end)
        assert len(list(second.root.iterdir())) == 6
        assert (second.root / "four").read_bytes() == b"four" + SMALL  # names, and packs, are known
        yield found
        assert {mount["restarts"] for mount in list_mounts(mounts.socket)} == {0}


def test_who_needs_nothing_of_the_store_does_not_wait_for_it(far: Far) -> None:
    root = far.root
    far.proxy.fail("hold")
    reader = far.waits("sys.stdout.buffer.write(open('one', 'rb').read()[:3])")
    (root / "new").write_text("written here")
    (root / "new").rename(root / "moved")
    assert (root / "moved").read_text() == "written here"
    assert (root / "four").read_bytes() == b"four" + SMALL
    with (root / "four").open("ab") as file:
        file.write(b"more")
        os.fsync(file.fileno())
    with (root / "two").open("wb") as file:
        file.write(b"emptied and written")
    (root / "made").mkdir()
    (root / "three").unlink()
    assert sorted(path.name for path in root.iterdir()) == ["four", "large", "made", "moved", "one", "sub", "two"]
    assert reader.poll() is None
    far.proxy.released.set()
    assert output(reader) == "one"
    assert (root / "one").read_bytes() == b"one" + SMALL


def test_several_wait_at_a_time_and_each_gets_its_own(far: Far) -> None:
    far.proxy.fail("hold")
    with ThreadPoolExecutor() as pool:
        readers = list(
            pool.map(
                lambda name: far.waits(f"sys.stdout.write(open({name!r}, 'rb').read().hex())"), ("one", "two", "three")
            )
        )
        listing = far.waits("print(len(os.listdir('sub')), flush=True)")
        (far.root / "here").write_text("not hindered")
        far.proxy.released.set()
        assert [bytes.fromhex(output(reader)) for reader in readers] == [
            name + SMALL for name in (b"one", b"two", b"three")
        ]
        assert output(listing) == "301\n"


def test_a_change_that_needs_the_store_waits_and_others_do_not(far: Far) -> None:
    far.proxy.fail("hold")
    writer = far.waits("open('one', 'r+b').write(b'ONE')")
    other = far.waits("f = open('large', 'r+b'); f.seek(3_000_000); f.read(10); f.write(b'there')")
    (far.root / "here").write_text("not hindered")
    assert (far.root / "here").read_text() == "not hindered"
    assert writer.poll() is None
    far.proxy.released.set()
    output(writer)
    output(other)
    assert (far.root / "one").read_bytes() == b"ONE" + SMALL
    assert (far.root / "large").read_bytes() == LARGE[:3_000_010] + b"there" + LARGE[3_000_015:]
    assert [item.op for item in far.workspace.history("one")] == ["write", "write"]
    ref = far.workspace.seal()
    far.workspace.adopt(ref)
    assert (far.root / "one").read_bytes() == b"ONE" + SMALL


def test_a_commit_does_not_wait_for_who_reads(far: Far) -> None:
    far.proxy.fail("hold", only="GET")
    reader = far.waits("sys.stdout.buffer.write(open('one', 'rb').read()[:3])")
    (far.root / "here").write_text("new")
    far.proxy.fail("none")
    far.workspace.adopt(far.workspace.seal())
    assert reader.poll() is None
    far.proxy.released.set()
    assert output(reader) == "one"


def test_a_rollback_ends_who_waits(far: Far) -> None:
    far.proxy.fail("hold")
    reader = far.waits("open('one', 'rb').read()")
    far.proxy.fail("none")  # what is held stays held
    far.workspace.rollback()
    reader.communicate(timeout=DEADLINE_S)
    assert reader.returncode in {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO}
    far.proxy.released.set()
    assert (far.root / "one").read_bytes() == b"one" + SMALL


@pytest.mark.parametrize("transport", ["raw"], indirect=True)
@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("open('one', 'rb').read()", signal.SIGKILL),
        ("os.listdir('sub')", signal.SIGKILL),
        ("os.listdir('sub')", signal.SIGINT),
        ("os.write(os.open('one', os.O_RDWR), b'x')", signal.SIGTERM),
    ],
)
def test_who_waits_can_be_ended(far: Far, code: str, number: signal.Signals) -> None:
    """With pyfuse3, which does not tell of signals, who waits ends with the read or its deadline."""
    far.proxy.fail("hold")
    reader = far.waits(code)
    reader.send_signal(number)
    reader.communicate(timeout=DEADLINE_S)
    assert reader.returncode == (7 if number == signal.SIGTERM else -number)
    assert not far.proxy.released.is_set()
    far.proxy.released.set()
    assert (far.root / "one").read_bytes() == b"one" + SMALL
    assert len(list((far.root / "sub").iterdir())) == 301


def test_a_command_goes_on_as_one_after_operations_of_pyfuse3_were_carried_out_in_it(tmp_path: Path) -> None:
    driver = pytest.importorskip("chronicle.fuse.transport.pyfuse3_session")

    heartbeat = unwatched_heartbeat()
    parking = ParkingPolicy(lambda: 0)
    session = driver.Pyfuse3Session(driver.pyfuse3.Operations(), tmp_path, heartbeat, parking=parking)
    carried_out = []

    def finish(_: object) -> None:
        carried_out.append(heartbeat.cells[1])

    session._finish = finish
    read: Future[bytes] = Future()
    fetched = FetchedBlobs()
    fetched.wait_for_read(read, [], 60, is_exclusive=True)
    session._park(None, fetched)
    read.set_result(b"")
    heartbeat.cells[1] = COMMAND
    session._resume_parked()
    assert (carried_out, heartbeat.cells[1]) == ([REQUEST], COMMAND)
    session._parked.close()
