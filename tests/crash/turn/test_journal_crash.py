"""The SQLite journal after a kill at each of its writes, and after a loss of power there.

A small library that is preloaded numbers the writes, syncs and truncations of a process. It can end the process right
before any of them. It also logs them, and from the log the disk is rebuilt as a loss of power may leave it: what was
synced is there, of the rest any part is.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.crash.turn.journal_work import check
from tests.next_format import OLDER
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="builds a small library with gcc"),
    pytest.mark.timeout(900),  # half a minute on two busy cores
]

ROOT = Path(__file__).parents[3]
SECTOR = 512
TORN = 0.3
TURNS = 9


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload."""
    built = tmp_path_factory.mktemp("library") / "syscalls.so"
    source = Path(__file__).with_name("syscalls.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, source, "-ldl", "-lpthread"], check=True, timeout=60)
    return built


def start(library: Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
    """Start the process that works on a journal."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.turn.journal_work", *arguments],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Wait for the end, and return the numbers that it said."""
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors.decode()
    return [int(number) for number in out.split()]


def test_killed_before_each_write(library: Path, tmp_path: Path) -> None:
    turns = end_of(start(library, "kills", tmp_path, "4"))
    assert len(turns) > 100
    assert turns == sorted(turns)
    assert set(turns) == set(range(5))


def test_killed_before_each_write_of_a_migration(library: Path, tmp_path: Path) -> None:
    left = end_of(start(library, "migration", tmp_path, "8"))
    assert len(left) > 10
    assert left == sorted(left)
    assert set(left) == {OLDER, OLDER + 1}


def test_killed_before_each_write_among_others(library: Path, tmp_path: Path) -> None:
    """One of four processes that do each other's commits; the rest must not notice."""
    turns = end_of(start(library, "crowd", tmp_path, "10"))
    assert sum(each < 40 for each in turns) > 20


def is_further(process: subprocess.Popen[bytes], acknowledged: Path, size: int) -> bool:
    """Say whether more than so many bytes were acknowledged."""
    assert process.poll() is None
    return acknowledged.exists() and acknowledged.stat().st_size > size


def test_killed_from_outside(library: Path, tmp_path: Path) -> None:
    for seed in range(6):
        home = tmp_path / str(seed)
        home.mkdir()
        process = start(library, "work", home, "100000")
        acknowledged = home / "acknowledged"
        wanted = random.Random(seed).randrange(1, 4_000)
        wait_until(partial(is_further, process, acknowledged, wanted), "it does not work")
        process.kill()
        process.communicate(timeout=30)
        assert check(home) >= 1


@dataclass
class Disk:
    """The files as a disk may have them: what is surely there, and what was written since."""

    synced: dict[str, bytearray] = field(default_factory=dict)
    pending: dict[str, list[tuple[str, int, bytes]]] = field(default_factory=dict)
    acknowledged: bytes = b""

    def apply(self, op: str, path: str, offset: int, data: bytes) -> None:
        """Do one operation."""
        if path.endswith("/acknowledged"):
            self.acknowledged += data
        elif op in "WTU":
            self.pending.setdefault(path, []).append((op, offset, data))
        elif op == "S" and path in self.pending:
            for each in self.pending.pop(path):
                self.change(self.synced, path, *each)
        elif op == "S":  # of the directory: files that were removed stay away
            for removed in [path for path, operations in self.pending.items() if operations[-1][0] == "U"]:
                del self.pending[removed]
                self.synced.pop(removed, None)

    def after_power_loss(self, generator: random.Random) -> dict[str, bytearray]:
        """Return the files with any part of what was not synced, down to sectors."""
        files = {path: bytearray(content) for path, content in self.synced.items()}
        for path, operations in self.pending.items():
            keep = generator.choice((0.0, 0.5, 0.9, 1.0))
            for op, offset, data in operations:
                if generator.random() >= keep:
                    continue
                if op == "W" and generator.random() < TORN:
                    cut = generator.randrange(0, len(data), SECTOR)
                    first, last = (op, offset, data[:cut]), (op, offset + cut, data[cut:])
                    self.change(files, path, *generator.choice((first, last)))
                else:
                    self.change(files, path, op, offset, data)
        return files

    @staticmethod
    def change(files: dict[str, bytearray], path: str, op: str, offset: int, data: bytes) -> None:
        """Write, truncate or remove."""
        if op == "U":
            files.pop(path, None)
            return
        file = files.setdefault(path, bytearray())
        file.extend(bytes(max(offset - len(file), 0)))
        if op == "T":
            del file[offset:]
        else:
            file[offset : offset + len(data)] = data


def read_log(log: Path) -> list[tuple[str, str, int, bytes]]:
    """Return the operations: letter, path, offset, data."""
    data, at, operations = log.read_bytes(), 0, []
    while at < len(data):
        end = data.index(b"\0", at)
        offset, length = struct.unpack_from("<QQ", data, end + 1)
        content = data[end + 17 : end + 17 + length]
        operations.append((chr(data[at]), data[at + 1 : end].decode(), offset, content))
        at = end + 17 + length
    return operations


def test_power_lost_at_any_moment(library: Path, tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    home.mkdir()
    end_of(start(library, "log", home, str(TURNS), log))
    operations = read_log(log)
    assert sum(op == "S" for op, *_ in operations) > 2 * TURNS
    generator = random.Random(7)
    disk = Disk()
    found = []
    for number, operation in enumerate(operations):
        disk.apply(*operation)
        if "journal.db" not in "".join(disk.synced):
            continue  # nothing was answered yet, not even that the journal was opened
        for _ in range(2 if number % 3 == 0 else 1):
            lost = tmp_path / "lost"
            lost.mkdir()
            for path, content in disk.after_power_loss(generator).items():
                if not path.endswith("-shm"):  # an index in memory; made anew
                    (lost / Path(path).name).write_bytes(content)
            (lost / "acknowledged").write_bytes(disk.acknowledged)
            found.append(check(lost))
            shutil.rmtree(lost)
    assert max(found) == TURNS
    assert len(found) > 200
