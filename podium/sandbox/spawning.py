"""The connections of this process with its spawner, which the first command starts, and with supervisors that wait."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Final

__all__ = ["close", "give_back", "new_supervisor", "take_supervisor"]

_MAX_IDLE: Final = 4
"""Supervisors that wait for a command; each has two processes, of some 3 MB that they share with nothing."""
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

    def start(self, control: socket.socket) -> None:
        socket.send_fds(self._socket, [b"\n"], [control.fileno()])

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(ChildProcessError):  # it is this process's own, and has ended, or does so now
            os.waitpid(self._pid, 0)


_lock: Final = threading.Lock()
_spawner: _Spawner | None = None
_idle: Final[list[socket.socket]] = []


def take_supervisor() -> socket.socket:
    """Return the connection of a supervisor that does nothing else; give it back by `give_back`, or close it."""
    with _lock:
        _forget_those_of_a_parent()
        while _idle:
            control = _idle.pop()
            if _waits(control):
                return control
            control.close()
        return _started()


def new_supervisor() -> socket.socket:
    """Return the connection of a supervisor that has not waited for a command."""
    with _lock:
        _forget_those_of_a_parent()
        return _started()


def give_back(control: socket.socket) -> None:
    """Keep a supervisor that has answered, for the next command."""
    with _lock:
        _forget_those_of_a_parent()
        if len(_idle) < _MAX_IDLE:
            _idle.append(control)
        else:
            control.close()


def close(control: socket.socket) -> None:
    """Have a supervisor end, and another one start if none is left: ahead, since that takes a while."""
    control.close()
    with _lock:
        _forget_those_of_a_parent()
        if not _idle:
            _idle.append(_started())


def _forget_those_of_a_parent() -> None:
    """After a fork what there is serves the parent."""
    global _spawner
    if _spawner is not None and _spawner.owner != os.getpid():
        _spawner = None
        _idle.clear()


def _waits(control: socket.socket) -> bool:
    """Whether the other end is open; it has nothing to say."""
    try:
        control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    return False


def _started() -> socket.socket:
    """Have a supervisor forked. A spawner that was killed is replaced; supervisors that it forked go on."""
    global _spawner
    control, its = socket.socketpair()
    control.setblocking(False)
    with its:
        if _spawner is not None:
            try:
                _spawner.start(its)
            except ConnectionError:
                _spawner.close()
            else:
                return control
        _spawner = _Spawner()
        _spawner.start(its)
    return control
