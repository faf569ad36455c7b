"""The prefork process: it does nothing but fork mount servers.

The zygote could fork them itself, but its loop writes to the same few hundred pages again and again. After each fork
these are copied, and every server would keep a copy: 2 MB of 5. The prefork process sleeps in one ``recvmsg`` between
two forks, so nearly all its memory stays shared by all servers.

It has no descriptors but its socket (and the log). It receives an order with the descriptors that a server needs,
forks, and answers with a pidfd. It ends when its socket does. Servers are its children, reaped by the kernel: a
server's last message on its channel tells how it ended.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Forked", "PreforkProcess"]

log = logging.getLogger(__name__)

_ORDER_BYTES: Final = 64 * 1024
_OWN_FDS: Final = frozenset({0, 1, 2})


class Forked(NamedTuple):
    """The prefork process's answer to an order."""

    pid: int
    """0 if the system refused the fork."""
    pidfd: int
    """-1 if the process has ended already, or was killed since it could not be watched."""


class PreforkProcess:
    """The zygote's end of a prefork process. Making one forks it from the current state of the calling process.

    Args:
        serve: runs a server: an order's bytes, its listening socket and its channel to an exit code.
    """

    def __init__(self, serve: Callable[[bytes, socket.socket, socket.socket], int]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            # The zygote's resources are never released here: this process leaves by _exit only.
            try:
                _run(theirs, serve)
            finally:
                os._exit(1)
        theirs.close()

    def fileno(self) -> int:
        """Return the descriptor to wait on for answers, or for the end of the process."""
        return self._socket.fileno()

    def order(self, data: bytes, listener: socket.socket, channel: socket.socket) -> bool:
        """Order a server; answers come in the order of the orders. False if the process is dead."""
        try:
            socket.send_fds(self._socket, [data], [listener.fileno(), channel.fileno()])
        except OSError:
            return False
        return True

    def answer(self) -> Forked | None:
        """Return the next answer, when it is there; ``None`` if the process is dead."""
        try:
            data, fds, flags, _ = socket.recv_fds(self._socket, 16, 1)
        except OSError:
            return None
        if not data:
            return None
        pid = int(data)
        if flags & socket.MSG_CTRUNC:  # no descriptor was left for its pidfd: it cannot be watched
            os.kill(pid, signal.SIGKILL)
        return Forked(pid, fds[0] if fds else -1)

    def close(self) -> None:
        """Kill the process, even if it was stopped. Its servers go on."""
        self._socket.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _run(orders: socket.socket, serve: Callable[[bytes, socket.socket, socket.socket], int]) -> None:
    """Be the prefork process."""
    signal.set_wakeup_fd(-1)
    # Signals to the zygote's process group reach this process too. It ends after the zygote, and servers in order.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd not in _OWN_FDS and fd != orders.fileno():
            # One of them is the listing's own, which is closed by now.
            _close(fd)
    while True:
        data, fds, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 2)
        if not data:
            os._exit(0)
        try:
            pid = os.fork()
        except OSError:
            log.exception("forking failed")
            pid = -1
        if pid == 0:
            code = 1
            try:
                orders.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # libfuse waits for fusermount3
                code = serve(data, socket.socket(fileno=fds[0]), socket.socket(fileno=fds[1]))
            except BaseException:
                log.exception("a mount server failed")
            finally:
                logging.shutdown()
                os._exit(code)
        for fd in fds:
            os.close(fd)
        _answer(orders, pid)


def _answer(orders: socket.socket, pid: int) -> None:
    if pid < 0:
        orders.send(b"0")
        return
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        orders.send(str(pid).encode())
        return
    socket.send_fds(orders, [str(pid).encode()], [pidfd])
    os.close(pidfd)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return
