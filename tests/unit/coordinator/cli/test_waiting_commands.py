"""Commands that use one workspace, or one store, at the same time: who waits, and who need not."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from chronicle.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE_S = 60


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "store")
    with repository.used("main") as workspace:
        workspace.write("file", b"one")
    repository.commit("main", "first")
    return repository


@contextmanager
def child() -> Iterator[None]:
    """Have a forked child that lives on for a while, with the descriptors that this process has now."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_who_commits_waits_for_who_reads(repository: Repository) -> None:
    with repository.used("main") as workspace:
        workspace.write("file", b"two")
    with ThreadPoolExecutor() as pool:
        with repository.opened("main") as opened:
            commit = pool.submit(repository.commit, "main", "second")
            with pytest.raises(TimeoutError):
                commit.result(0.2)
            assert [item.op for item in opened.history("file")] == ["write", "write"]
        done = commit.result(DEADLINE_S)
    assert done is not None
    assert done.turn == 2


def test_readers_wait_for_each_other(repository: Repository) -> None:
    barrier = threading.Barrier(4, timeout=DEADLINE_S)

    def read() -> list[str]:
        barrier.wait()
        with Repository(repository.directory).opened("main") as opened:
            return [item.op for item in opened.history("file")]

    with ThreadPoolExecutor() as pool:
        assert [future.result(DEADLINE_S) for future in [pool.submit(read) for _ in range(4)]] == [["write"]] * 4


def test_a_child_that_was_forked_meanwhile_keeps_nobody_out(repository: Repository) -> None:
    with ExitStack() as stack:
        with repository.shared_lock():
            stack.enter_context(child())
        with repository.exclusive_lock() as alone:
            assert alone
