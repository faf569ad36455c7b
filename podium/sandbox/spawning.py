"""The connection of this process with its spawner (`podium.sandbox.spawner`), which the first command starts."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["start_supervisor"]

_BOOTSTRAP: Final = (
    "'podium sandbox'; import sys; sys.path.insert(0, {package!r}); from podium.sandbox.spawner import main; main(3)"
)
"""Finds this very package, and no module of the caller's directory; begins with the text that ``ps`` is to show."""


class _Spawner:
    """A spawner of this process; after a fork the child starts its own."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        package = os.fspath(Path(__file__).absolute().parents[2])
        with its:
            # No environment: what a command could read of it. No site: the standard library is all that it needs.
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP.format(package=package)],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 2, 1),
                    (os.POSIX_SPAWN_DUP2, its.fileno(), 3),
                ],
                setsid=True,
            )

    def start(self, descriptors: Sequence[int]) -> None:
        socket.send_fds(self._socket, [b"\n"], descriptors)

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(ChildProcessError):  # it is this process's own, and has ended, or does so now
            os.waitpid(self._pid, 0)


_lock: Final = threading.Lock()
_spawner: _Spawner | None = None


def start_supervisor(descriptors: Sequence[int]) -> None:
    """Have a supervisor started that has these: its socket, and the outputs of the command.

    A spawner that was killed is replaced; commands that it started go on.
    """
    global _spawner
    with _lock:
        if _spawner is not None and _spawner.owner == os.getpid():
            try:
                _spawner.start(descriptors)
                return
            except ConnectionError:
                _spawner.close()
        _spawner = _Spawner()
        _spawner.start(descriptors)
