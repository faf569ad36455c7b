"""Committed files of a mount are on the node once: what the disk has, what `stats` says, and who may go on reading."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import list_mounts
from tests.fuse.command import Command, running_command
from tests.fuse.conftest import DEADLINE_S, wait_for_end

LARGE = random.Random(7).randbytes(6_000_000)
SMALL = random.Random(8).randbytes(20_000)
LIMIT_BYTES = 1_000_000
MAPS = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    number = int(line)
    mapped[number * 4096 : number * 4096 + 5] = b"line" + line[:1].encode()
    mapped.flush()
    print(bytes(mapped[:4]).hex(), flush=True)
"""
"""Of a process of its own: one that waits for a page holds up its own threads."""


@pytest.fixture
def chronicle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", str(LIMIT_BYTES))
    monkeypatch.setenv("CHRONICLE_TRANSPORT", transport)
    yield from running_command(tmp_path, capsys)


def taken(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


@pytest.mark.one_transport
def test_a_large_file_is_on_the_disk_once(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "large").write_bytes(LARGE)
    (root / "small").write_bytes(SMALL)
    layers, blobs = chronicle.store / "layers", chronicle.store / "blobs"
    assert taken(layers) > len(LARGE)
    chronicle.on_store("commit", "-m", "one")
    assert len(LARGE) < taken(blobs) < 1.1 * len(LARGE)
    assert len(SMALL) < taken(layers) < LIMIT_BYTES
    assert (root / "large").read_bytes() == LARGE
    chronicle.unmount()
    counted = chronicle.json("stats")
    assert counted["layer_bytes"] == taken(layers) < LIMIT_BYTES
    assert counted["stored_bytes"] == taken(blobs)
    root = chronicle.mount()
    assert (root / "large").read_bytes() == LARGE
    assert (root / "small").read_bytes() == SMALL
    with (root / "large").open("r+b") as file:
        file.seek(3_000_000)
        file.write(b"changed")
    chronicle.on_store("commit", "-m", "two")
    assert taken(layers) < LIMIT_BYTES
    assert (root / "large").read_bytes() == LARGE[:3_000_000] + b"changed" + LARGE[3_000_007:]


@pytest.mark.one_transport
def test_gc_frees_what_was_kept_under_another_limit(chronicle: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", str(10 * len(LARGE)))
    (chronicle.mount() / "large").write_bytes(LARGE)
    chronicle.on_store("commit", "-m", "one")
    chronicle.unmount()
    layers = chronicle.store / "layers"
    assert chronicle.json("stats")["layer_bytes"] > len(LARGE)
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", str(LIMIT_BYTES))
    chronicle.on_store("gc", "--now", "--dry-run")
    assert taken(layers) > len(LARGE)
    chronicle.on_store("gc", "--now")
    assert chronicle.json("stats")["layer_bytes"] == taken(layers) < LIMIT_BYTES
    assert (chronicle.mount() / "large").read_bytes() == LARGE


def test_who_has_a_file_open_or_mapped_goes_on_with_it(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "mapped").write_bytes(LARGE)
    (root / "open").write_bytes(LARGE[::-1])
    process = subprocess.Popen(
        [sys.executable, "-c", MAPS, root / "mapped"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with (root / "open").open("rb", buffering=0) as held:
            for number in (1, 2):
                process.stdin.write(f"{number}\n")
                process.stdin.flush()
                assert process.stdout.readline() == LARGE[:4].hex() + "\n"
                chronicle.on_store("commit", "-m", f"{number}")
                os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # so that the server is asked
                assert os.pread(held.fileno(), 100, 4_000_000) == LARGE[::-1][4_000_000:4_000_100]
    finally:
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    expected = bytearray(LARGE)
    expected[4096:4101], expected[8192:8197] = b"line1", b"line2"
    assert (root / "mapped").read_bytes() == expected
    chronicle.on_store("commit", "-m", "last")
    chronicle.unmount()
    assert taken(chronicle.store / "layers") < LIMIT_BYTES
    assert (chronicle.mount() / "mapped").read_bytes() == expected


@pytest.mark.one_transport
def test_a_server_that_is_killed_after_a_commit_loses_nothing(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "large").write_bytes(LARGE)
    chronicle.on_store("commit", "-m", "one")
    with (root / "large").open("r+b", buffering=0) as file:
        file.write(b"after")
    (mount,) = list_mounts(chronicle.store / "run" / "zygote.sock")
    pid = mount["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    chronicle.on_store("commit", "-m", "two")  # waits for the next server
    assert (root / "large").read_bytes() == b"after" + LARGE[5:]
