"""Moves copies of a home into PostgreSQL and an object store; each is killed with SIGKILL at a later write.

    python -m tests.crash.home.migration_work HOME JOURNAL_URL BLOBS_URL STEP

A process is killed right before its n-th write: of a file, to the object store, or a commit in the database; the next
one STEP writes later. It works on ``HOME-N``, on the schema that the URL names and ``_N``, and below the other URL and
``-N``. A line says N and which write that was; the last process ends by itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.blobs.media.fsspec_objects import RemoteObjects, preload
from chronicle.journal.postgres.database import PostgresConnection
from coordinator.home import Home
from coordinator.migration import move_home

if TYPE_CHECKING:
    from collections.abc import Callable

_FILES = {"os.rename": 1, "os.link": 1, "os.mkdir": 0, "os.remove": 0}
"""Audit events of changes of a directory, with the argument that is the new name."""


class Killer:
    """Counts the writes of this process, and kills it before one of them.

    Args:
        home: the directory whose files count.
        stop: the number of the write.
        says: a descriptor for what it is.
    """

    def __init__(self, home: Path, stop: int, says: int) -> None:
        self._home = os.fspath(home)
        self._stop = self._left = stop
        self._says = says

    def arm(self) -> None:
        """Begin to count."""
        sys.addaudithook(self._audit)
        for name in ("write", "create", "delete"):
            self._wrap(RemoteObjects, name, lambda name, *_: f"{name[:6]} of the store")
        self._wrap(PostgresConnection, "execute", lambda statement, *_: statement if statement == "COMMIT" else None)

    def _wrap(self, owner: type, method: str, named: Callable[..., str | None]) -> None:
        real = getattr(owner, method)

        def counted(this: object, *arguments: Any) -> Any:
            what = named(*arguments)
            if what is not None:
                self._count(f"{method} {what}")
            return real(this, *arguments)

        setattr(owner, method, counted)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILES:
            path = os.fspath(arguments[_FILES[event]])
            if path.startswith(self._home):
                self._count(f"{event} {Path(path).name}")

    def _count(self, what: str) -> None:
        self._left -= 1
        if not self._left:
            os.write(self._says, f"{self._stop} {what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


def main(home: str, journal_url: str, blobs_url: str, step: str) -> None:
    preload("s3")  # not in each forked process
    for stop in count(1, int(step)):
        copy = Path(f"{home}-{stop}")
        shutil.copytree(home, copy)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                Killer(copy, stop, sys.stdout.fileno()).arm()
                move_home(Home(copy).open(), f"{journal_url}_{stop}", f"{blobs_url}-{stop}", lambda _: None)
                code = 0
            finally:
                os._exit(code)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert ended in (0, -signal.SIGKILL), f"ended with {ended} at write {stop}"
        if ended == 0:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
