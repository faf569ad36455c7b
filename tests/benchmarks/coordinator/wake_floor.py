"""The floor of a wake with a mount: a fork of a warm process, a mount whose root answers, and a plain committed INSERT.

It is the least that has to be done for a process with files of its own, and it stays the same while a wake changes. The
warm process has imported what a host has, and pyfuse3; its child mounts the minimal loopback.

    python -m tests.benchmarks.coordinator.wake_floor      forks a child for each SOURCE<tab>MOUNTPOINT line of stdin
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse.mountpoints.mounts import unmount
from tests.benchmarks.podium.turn_load import floor, inserts_s

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

__all__ = ["WakeFloor", "wake_floor"]

_MODULE: Final = "tests.benchmarks.coordinator.wake_floor"


class WakeFloor:
    """A warm process and a database, and how long the parts of the floor take on them."""

    def __init__(self, directory: Path, warm: subprocess.Popen[str], database: sqlite3.Connection) -> None:
        self._source, self._mountpoint = directory / "source", directory / "mountpoint"
        self._warm = warm
        self._database = database
        self._source.mkdir()
        self._mountpoint.mkdir()

    def process_s(self) -> float:
        """Return the seconds of a fork, a mount to its first answer, and an INSERT."""
        assert self._warm.stdin is not None
        assert self._warm.stdout is not None
        began_s = time.perf_counter()
        print(self._source, self._mountpoint, sep="\t", file=self._warm.stdin, flush=True)
        child = int(self._warm.stdout.readline())
        try:
            if not self._mountpoint.stat().st_ino:
                raise RuntimeError("the mount does not answer")
            inserts_s(self._database, 1)
            return time.perf_counter() - began_s
        finally:
            os.kill(child, signal.SIGTERM)
            self._warm.stdout.readline()  # once it has ended
            unmount(self._mountpoint)

    def insert_s(self) -> float:
        """Return the seconds of an INSERT."""
        return inserts_s(self._database, 1)


@contextmanager
def wake_floor(directory: Path) -> Iterator[WakeFloor]:
    """Start the warm process, and end it."""
    directory.mkdir()
    command = [sys.executable, "-m", _MODULE]
    with (
        floor(directory) as database,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as warm,
    ):
        assert warm.stdin is not None
        yield WakeFloor(directory, warm, database)
        warm.stdin.close()


def _serve_warm() -> None:
    """Fork a child for each line; write its process id when it has mounted, and a line when it has ended."""
    import coordinator.host.agent_host  # noqa: F401  in the warm process only
    from tests.benchmarks.chronicle.loopback import main

    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            os.dup2(write, sys.stdout.fileno())  # the loopback prints a line when it has mounted
            os._exit(main(line.rstrip("\n").split("\t")))
        os.close(write)
        with os.fdopen(read) as mounted:
            mounted.readline()
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    _serve_warm()
