"""The processes of mount servers, as the zygote sees them: heard, watched and ended.

They know nothing of mounts and their life cycles: a process reports its messages and its end to the owner of the mount.
A process that does not end when it is told to is killed. One that hangs (`chronicle.fuse.watchdog`) loses its
connection and is killed, so that its callers get an error. `chronicle.fuse.zygote.forking` forks them.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.control import messages
from chronicle.control.connections import Connection
from chronicle.control.messages import answer_error
from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import mounts
from chronicle.fuse.server.request import Exit, request_from_wire, request_to_wire
from chronicle.fuse.server.server import serve
from chronicle.fuse.watchdog import (
    CHECKS_PER_DEADLINE,
    OPENING,
    HeartbeatTable,
    Verdict,
    Watchdog,
    unwatched_heartbeat,
)
from chronicle.fuse.zygote.forking import ServerForks

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from chronicle.control.messages import Message
    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.poll_loop import PollLoop
    from chronicle.fuse.server.engine import Served
    from chronicle.fuse.server.request import MountRequest
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["ServerProcess", "ServerProcesses"]

log = logging.getLogger(__name__)

_CLOSE_DEADLINE_S: Final = 5.0
"""For a server to close its layer in order; then it is killed, which loses nothing that was acknowledged."""


@dataclass(slots=True, eq=False)
class ServerProcess:
    """One mount server, from the order to its end.

    Args:
        request: its order.
        listener: the mount's control socket; it stays the mount's.
        on_message: called with each message of `chronicle.fuse.server.server` but the last, ``ended``.
        on_exit: called once, when the process has ended or could not be forked.
    """

    request: MountRequest
    listener: socket.socket
    on_message: Callable[[Message], None]
    on_exit: Callable[[], None]
    pid: int = 0
    """0 until the prefork process has forked it."""
    pidfd: int = -1
    code: int | None = None
    """Its exit code, by its last message; ``None`` if it was killed."""
    was_lost: bool = False
    """The prefork process died before it answered the order: nothing is wrong with the mount."""
    channel: Connection | None = None
    """``None`` after it was told to close."""
    has_begun: bool = False
    """It is up, or has reported its failure."""
    closing: bool = False
    kill_at: float | None = None
    slot: int | None = None
    """In the table of heartbeats."""
    watchdog: Watchdog | None = None


class ServerProcesses:
    """All servers of a zygote.

    Args:
        loop: where to wait for them.
        opener: opens the layer of a mount, in the forked server.
        transport: how the servers talk to the kernel.
        request_deadline_s: limit for one point of a request, seconds; then the server counts as hung.
        spares: fork a server ahead of the orders.
    """

    def __init__(
        self,
        loop: PollLoop,
        opener: Callable[[MountRequest, Heartbeat], Served],
        transport: Transport,
        request_deadline_s: float,
        *,
        spares: bool,
    ) -> None:
        self._loop = loop
        self._opener = opener
        self._transport = transport
        self._request_deadline_s = request_deadline_s
        self._heartbeats = HeartbeatTable()
        self._next_check_at = 0.0
        self._all: set[ServerProcess] = set()
        self._forks: ServerForks[ServerProcess] = ServerForks(
            loop, self._serve, forked=self._forked, lost=self._lost, running=self._running, spares=spares
        )

    def start(self, process: ServerProcess) -> None:
        """Start a server. If the system cannot fork it, it has ended as refused when this returns."""
        self._all.add(process)
        process.slot = self._heartbeats.allocate()
        if process.slot is not None:
            heartbeat = self._heartbeats.slot(process.slot)
            heartbeat.cells[1] = OPENING
            process.watchdog = Watchdog(heartbeat, self._request_deadline_s)
        order = messages.pack({"request": request_to_wire(process.request), "slot": process.slot})
        try:
            channel, forked = self._forks.order(process, order, process.listener)
        except OSError as error:  # the other mounts must not fail with it
            refused = Unavailable(f"no mount server can be started: {error.strerror}")
            process.on_message({"failed": answer_error(refused)["error"]})
            process.code = Exit.REFUSED
            self._gone(process)
            return
        peer = process.channel = Connection(channel)
        self._loop.watch(peer.fileno(), lambda: self._hear(process, peer))
        if forked is not None:
            self._forked(process, *forked)

    def close(self, process: ServerProcess) -> None:
        """Tell a server to close its layer and end; it is killed at the deadline."""
        # A starting server sees this as soon as it is mounted. It is not killed: its fusermount3 would go on, and mount
        # after the unmount.
        if process.channel is not None:
            process.channel.send({"close": True})
        self._hang_up(process)
        self._end_in_time(process)

    def cut(self, process: ServerProcess) -> None:
        """Tell a server that is up to revoke its mount and end; it is killed at the deadline."""
        if process.channel is None or not process.channel.send({"cut": True}):
            self._hang_up(process)
        self._end_in_time(process)

    def due(self) -> float | None:
        """Return when `check` is due, monotonic seconds; None if there is nothing to check."""
        due = [process.kill_at for process in self._all if process.kill_at is not None]
        if self._forks.next_spare_at is not None:
            due.append(self._forks.next_spare_at)
        if any(process.watchdog is not None for process in self._all):
            due.append(self._next_check_at)
        return min(due, default=None)

    def check(self) -> None:
        """Kill servers that hang or have not ended in time, and fork a spare if it is due."""
        now = time.monotonic()
        if self._forks.next_spare_at is not None and self._forks.next_spare_at <= now:
            self._forks.fork_spare()
        for process in self._all:
            if process.kill_at is not None and process.kill_at <= now:
                process.kill_at = None
                log.warning("killed a mount server that did not end: %s", process.request.mountpoint)
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
        if now < self._next_check_at:
            return
        self._next_check_at = now + self._request_deadline_s / CHECKS_PER_DEADLINE
        for process in self._all:
            verdict = Verdict.ALIVE if process.watchdog is None else process.watchdog.check(now, process.pid)
            if verdict is Verdict.SILENT and process.channel is not None:
                process.channel.send({"hear": True})
            elif verdict is Verdict.HUNG:
                self._end_hung(process)

    def end(self) -> None:
        """End the processes that fork, when all servers are gone."""
        self._forks.close()

    def _end_in_time(self, process: ServerProcess) -> None:
        process.closing = True
        if process.pidfd >= 0:  # otherwise the deadline starts when it is forked
            process.kill_at = time.monotonic() + _CLOSE_DEADLINE_S

    def _end_hung(self, process: ServerProcess) -> None:
        """End a server that hangs: its callers get an error, and it can be replaced."""
        process.watchdog = None
        mountpoint = process.request.mountpoint
        if process.pid == 0:
            log.error("the prefork process hangs and is ended: %s waits for a server", mountpoint)
            self._forks.kill_prefork()
            return
        log.error("a mount server hangs and is ended: %s", mountpoint)
        # First the connection: callers are released even if the process cannot be killed at the moment.
        mounts.abort(mountpoint)
        if process.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)

    def _serve(self, order: bytes, listener: socket.socket, channel: socket.socket) -> int:
        """Be a mount server; called in its process."""
        given = messages.unpack(order)
        slot = given["slot"]
        heartbeat = self._heartbeats.slot(slot) if slot is not None else unwatched_heartbeat()
        code = serve(request_from_wire(given["request"]), self._opener, self._transport, heartbeat, listener, channel)
        Connection(channel).send({"ended": int(code)})
        return int(code)

    def _running(self) -> list[int] | None:
        """Return the servers' process ids; None while one of them is still being opened."""
        if not all(process.has_begun for process in self._all):
            return None
        return [process.pid for process in self._all]

    def _forked(self, process: ServerProcess, pid: int, pidfd: int) -> None:
        process.pid, process.pidfd = pid, pidfd
        if pidfd < 0:
            self._gone(process)
            return
        self._loop.watch(pidfd, lambda: self._gone(process))
        if process.closing:
            self._end_in_time(process)

    def _lost(self, process: ServerProcess) -> None:
        self._hang_up(process)
        process.was_lost = True
        self._gone(process)

    def _hear(self, process: ServerProcess, channel: Connection) -> None:
        messages, is_open = channel.receive()
        for message in messages:
            if "ended" in message:
                process.code = message["ended"]
                continue
            if not process.has_begun:
                process.has_begun = True
                self._forks.fork_spare_when_quiet()
            process.on_message(message)
        if not is_open:
            self._loop.unwatch(channel.fileno())

    def _hang_up(self, process: ServerProcess) -> None:
        if process.channel is not None:
            self._loop.unwatch(process.channel.fileno())
            process.channel.close()
            process.channel = None

    def _gone(self, process: ServerProcess) -> None:
        """Release a process that has ended, and report it."""
        if process.channel is not None:
            self._hear(process, process.channel)  # its last messages
            self._hang_up(process)
        if process.pidfd >= 0:
            self._loop.unwatch(process.pidfd)
            os.close(process.pidfd)
            process.pidfd = -1
        if process.slot is not None:
            self._heartbeats.release(process.slot)
        self._all.discard(process)
        self._forks.fork_spare_when_quiet()
        process.on_exit()
