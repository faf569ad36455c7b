"""The forking of mount servers: by the prefork process, or by taking the spare server that was forked ahead.

It knows orders and process ids, and nothing of the servers' messages.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from chronicle.fuse.zygote.prefork import Forked, PreforkProcess
from chronicle.fuse.zygote.spare_server import HotPages, give_order, wait_for_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from chronicle.fuse.poll_loop import PollLoop

__all__ = ["ServerForks"]

log = logging.getLogger(__name__)

S = TypeVar("S")

_QUIET_S: Final = 0.025
"""Delay of the next spare after the last server was up: orders that follow sooner would only wait for its fork."""
_SPARE_ORDER: Final = b"wait"
"""The prefork process's order for a spare."""


@dataclass(slots=True, eq=False)
class _Spare:
    """A forked process that waits for an order."""

    channel: socket.socket
    pid: int = 0
    pidfd: int = -1

    def close(self) -> None:
        """Close its descriptors; it exits, unless it was given an order."""
        self.channel.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


class ServerForks(Generic[S]):
    """Owns the prefork process, the orders that it is executing, and the spare server.

    Args:
        loop: where to wait for the processes.
        serve: runs a mount server in the forked process: an order, a listening socket and a channel to an exit code.
        forked: called when a server was forked: the server, its process id and pidfd.
        lost: called with each server whose order the prefork process took with it when it died.
        running: returns the process ids of the servers; None while one of them is still being opened.
        spares: fork a server ahead of the orders.
    """

    def __init__(
        self,
        loop: PollLoop,
        serve: Callable[[bytes, socket.socket, socket.socket], int],
        *,
        forked: Callable[[S, int, int], None],
        lost: Callable[[S], None],
        running: Callable[[], Iterable[int] | None],
        spares: bool,
    ) -> None:
        self._loop = loop
        self._serve = serve
        self._forked = forked
        self._lost = lost
        self._running = running
        self._hot = HotPages()
        self._orders: deque[S | _Spare] = deque()
        """The servers that the prefork process is forking, in the order of the orders."""
        self._spares = spares
        self._spare: _Spare | None = None
        self._prefork = self._new_prefork()
        self.next_spare_at: float | None = None
        """When `fork_spare` is due, monotonic seconds."""
        self.fork_spare_when_quiet()

    def order(self, server: S, order: bytes, listener: socket.socket) -> tuple[socket.socket, Forked | None]:
        """Start a server.

        Returns:
            The zygote's end of the channel to it, and its process; None if it is yet to be forked.

        Raises:
            OSError: no descriptors are left.
        """
        spare = self._take_spare()
        if spare is not None:
            if give_order(spare.channel, order, listener):
                return spare.channel, Forked(spare.pid, spare.pidfd)
            spare.close()
        ours, theirs = _channel()
        self._orders.append(server)
        self._prefork.order(order, listener, theirs)
        theirs.close()
        return ours, None

    def kill_prefork(self) -> None:
        """Kill a prefork process that hangs; it is replaced when it is dead."""
        os.kill(self._prefork.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the prefork process and the spare, when all servers are gone."""
        spare = self._take_spare()
        if spare is not None:
            spare.close()
        self._loop.unwatch(self._prefork.fileno())
        self._prefork.close()

    def fork_spare_when_quiet(self) -> None:
        """Schedule the fork of a spare."""
        if self._spares:
            self.next_spare_at = time.monotonic() + _QUIET_S

    def fork_spare(self) -> None:
        """Fork a spare, if there is none and all servers are up."""
        self.next_spare_at = None
        running = self._running()
        if self._orders or running is None:
            return  # scheduled again when the last of them is up
        self._hot.learn(running)
        if self._spare is not None:
            return
        try:
            ours, theirs = _channel()
        except OSError:  # the next server is forked when it is ordered, if possible
            return
        self._orders.append(_Spare(ours))
        self._prefork.order(_SPARE_ORDER, theirs, theirs)
        theirs.close()

    def _new_prefork(self) -> PreforkProcess:
        prefork = PreforkProcess(self._run_server)
        self._loop.watch(prefork.fileno(), self._hear_prefork)
        return prefork

    def _run_server(self, order: bytes, listener: socket.socket, channel: socket.socket) -> int:
        """Be a mount server, a spare one first if so ordered; called in the forked process."""
        if order == _SPARE_ORDER:
            listener.close()
            self._hot.copy()
            given = wait_for_order(channel)
            if given is None:
                return 0
            order, listener = given
        return self._serve(order, listener, channel)

    def _hear_prefork(self) -> None:
        forked = self._prefork.answer()
        if forked is None:
            self._replace_prefork()
            return
        server = self._orders.popleft()
        if not isinstance(server, _Spare):
            self._forked(server, *forked)
        elif forked.pidfd < 0:
            server.close()
        else:
            server.pid, server.pidfd = forked
            self._spare = server
            self._loop.watch(forked.pidfd, self._spare_gone)

    def _replace_prefork(self) -> None:
        """Fork another prefork process from the current state of this one, and fail the orders of the dead one."""
        log.error("the prefork process is dead; forking another one")
        self._loop.unwatch(self._prefork.fileno())
        self._prefork.close()
        self._prefork = self._new_prefork()
        orders, self._orders = self._orders, deque()
        for server in orders:
            # It may have been forked: then the end of its channel makes it exit.
            if isinstance(server, _Spare):
                server.close()
                self.fork_spare_when_quiet()
            else:
                self._lost(server)

    def _take_spare(self) -> _Spare | None:
        spare, self._spare = self._spare, None
        if spare is not None:
            self._loop.unwatch(spare.pidfd)
        return spare

    def _spare_gone(self) -> None:
        """Drop a spare that was killed; another one is forked after the next order."""
        spare = self._take_spare()
        if spare is not None:
            spare.close()


def _channel() -> tuple[socket.socket, socket.socket]:
    """Return the zygote's end of a channel, and a server's.

    Raises:
        OSError: no descriptors are left.
    """
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
