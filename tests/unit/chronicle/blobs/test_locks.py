"""Locks end with what they were held for, also when a child was forked meanwhile and lives on.

A lock of ``flock`` belongs to the opening of its file, which the child has as well: closing alone leaves it locked.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.cache import BlobCache
from chronicle.blobs.gc.local_disk import only_one
from chronicle.blobs.media.objects import LocalObjects
from chronicle.blobs.packs.pack_store import PackBlobStore
from coordinator.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_DEADLINE_S = 60


@pytest.fixture
def fork() -> Iterator[Callable[[], None]]:
    """Fork a child that does nothing and lives until the test ends."""
    children: list[int] = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(_DEADLINE_S)
                signal.pause()
            finally:
                os._exit(0)
        children.append(pid)

    yield fork
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def fork_when_locked(monkeypatch: pytest.MonkeyPatch, fork: Callable[[], None]) -> list[int]:
    """Fork once, right after the next lock is taken; return what will be a list of the kind of each lock taken.

    From then on no lock is waited for: one that the child keeps is an error and not a hang.
    """
    taken: list[int] = []
    flock = fcntl.flock

    def forking(file: int, operation: int) -> None:
        flock(file, operation | fcntl.LOCK_NB)
        if operation != fcntl.LOCK_UN:
            taken.append(operation & ~fcntl.LOCK_NB)
            if len(taken) == 1:
                fork()

    monkeypatch.setattr(fcntl, "flock", forking)
    return taken


def check_free(path: Path) -> None:
    """Take the lock of a file, or fail."""
    with path.open("rb") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_lock_of_collections(tmp_path: Path, fork: Callable[[], None], dry_run: bool) -> None:
    (tmp_path / "gc.lock").touch()
    objects = LocalObjects(tmp_path)
    with only_one(objects, dry_run=dry_run):
        fork()
    with only_one(objects, dry_run=False):
        pass


def test_the_lock_of_an_index_that_is_written(tmp_path: Path, fork_when_locked: list[int]) -> None:
    store = PackBlobStore(f"file://{tmp_path}")
    store.put({blob_id(b"a"): b"a"})
    assert fork_when_locked[0] == fcntl.LOCK_EX
    check_free(tmp_path / "index" / "lock")
    store.put({blob_id(b"b"): b"b"})
    store.close()


def test_the_lock_of_an_index_that_is_read(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    writer = PackBlobStore(f"file://{tmp_path}")
    writer.put({blob_id(b"a"): b"a"})
    taken = request.getfixturevalue("fork_when_locked")
    reader = PackBlobStore(f"file://{tmp_path}")
    assert reader.get(blob_id(b"a")) == b"a"
    assert taken[0] == fcntl.LOCK_SH
    check_free(tmp_path / "index" / "lock")
    writer.put({blob_id(b"b"): b"b"})
    reader.close()
    writer.close()


def test_the_lock_of_what_a_cache_takes(tmp_path: Path, fork_when_locked: list[int]) -> None:
    cache = BlobCache(tmp_path / "cache", 10**6)
    cache.put(b"a" * 32, b"a")
    assert fork_when_locked == [fcntl.LOCK_EX]
    check_free(cache.directory / "used")


def test_claims(tmp_path: Path, fork: Callable[[], None]) -> None:
    cache = BlobCache(tmp_path / "cache", 10**6)
    with cache.claim([b"a" * 32, b"b" * 32]):
        fork()
    with (cache.directory / "claims").open("r+b") as file:  # all of its bytes
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def test_the_lock_of_a_service(tmp_path: Path, fork: Callable[[], None]) -> None:
    home = Home(tmp_path).create()
    with home.service_lock() as held:
        assert held
        fork()
        with home.service_lock() as again:
            assert not again
        assert home.service_alive()  # one who did not get it has not let go of it
    assert not home.service_alive()
    with home.service_lock() as held:
        assert held


def test_looking_for_a_service(tmp_path: Path, fork_when_locked: list[int]) -> None:
    home = Home(tmp_path).create()
    assert not home.service_alive()
    assert fork_when_locked == [fcntl.LOCK_SH]
    with home.service_lock() as held:
        assert held
