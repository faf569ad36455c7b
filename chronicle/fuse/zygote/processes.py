"""The processes of mount servers, as the zygote sees them: forked by the template, heard, watched, and ended.

Nothing is known here of mounts and their lives: whoever has a server forked is told what it says, and when it is gone.
A process that is told to end and does not is killed; one that hangs (`chronicle.fuse.watchdog`) loses its
connection and is killed, so that whoever waits for it gets an error. A template that dies, or hangs, is replaced by
another.

While nothing is asked for, one server is forked ahead (`chronicle.fuse.zygote.spare_server`): the next mount takes it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import Unavailable
from chronicle.fuse import control
from chronicle.fuse.control import Connection, answer_error
from chronicle.fuse.mountpoints import mounts
from chronicle.fuse.server.server import Exit, request_from_wire, request_to_wire, serve
from chronicle.fuse.watchdog import CHECKS_PER_DEADLINE, OPENING, HeartbeatTable, Verdict, Watchdog, unwatched_heartbeat
from chronicle.fuse.zygote.prefork import PreforkProcess
from chronicle.fuse.zygote.spare_server import HotPages, give_order, wait_for_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.fuse.control import Message
    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.poll_loop import PollLoop
    from chronicle.fuse.server.server import MountRequest, Served
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["ServerProcess", "ServerProcesses"]

log = logging.getLogger(__name__)

_CLOSE_DEADLINE_S: Final = 5.0
"""For a server to close its layer in order; then it is killed. Killing loses nothing that was acknowledged."""
_QUIET_S: Final = 0.025
"""After the last server was up. Orders that follow sooner would only wait for what is done ahead of them."""
_SPARE: Final = b"wait"
"""The template's order for a spare."""


@dataclass(slots=True, eq=False)
class ServerProcess:
    """One mount server, from the order to its end.

    Args:
        request: what it is to serve.
        listener: where its host connects; it stays its owner's.
        heard: called with each message of `chronicle.fuse.server.server` but its last word.
        gone: called once, when the process has ended or will never be.
    """

    request: MountRequest
    listener: socket.socket
    on_message: Callable[[Message], None]
    on_exit: Callable[[], None]
    pid: int = 0
    """0 until the template has forked it."""
    pidfd: int = -1
    code: int | None = None
    """What it said its exit code would be; ``None`` if it was killed."""
    lost: bool = False
    """The template died before it said whether it forked this one: nothing is wrong with what it serves."""
    channel: Connection | None = None
    """``None`` when it was told to close."""
    has_begun: bool = False
    """It is up, or said why it will not be."""
    closing: bool = False
    kill_at: float | None = None
    slot: int | None = None
    """Its own, among the pulses."""
    watchdog: Watchdog | None = None


@dataclass(slots=True, eq=False)
class _Spare:
    """A process that waits to be a server."""

    channel: socket.socket
    pid: int = 0
    pidfd: int = -1

    def close(self) -> None:
        """Let go of it; it ends, if it was given no order."""
        self.channel.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


class ServerProcesses:
    """All servers of a zygote, and the template that forks them.

    Args:
        loop: where to wait for them.
        opener: opens the layer of a mount, in the forked server.
        transport: how the servers speak to the kernel.
        request_deadline_s: how long a server may be at one point of a request before it is taken to hang, seconds.
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
        self._look_at = 0.0
        self._hot = HotPages()
        self._all: set[ServerProcess] = set()
        self._ordered: deque[ServerProcess | _Spare] = deque()
        """Those that the template is forking, the first asked for first."""
        self._spares = spares
        self._spare: _Spare | None = None
        self._prefork = self._new_prefork()
        self._prepare_at: float | None = None
        self._prepare_when_quiet()

    def start(self, process: ServerProcess) -> None:
        """Have a server forked. If the system does not allow it, it is gone by the time this returns, as refused."""
        self._all.add(process)
        process.slot = self._heartbeats.allocate()
        if process.slot is not None:
            heartbeat = self._heartbeats.slot(process.slot)
            heartbeat.cells[1] = OPENING
            process.watchdog = Watchdog(heartbeat, self._request_deadline_s)
        order = control.pack({"request": request_to_wire(process.request), "slot": process.slot})
        spare = self._take_spare()
        if spare is not None:
            if give_order(spare.channel, order, process.listener):
                self._listen(process, spare.channel)
                self._forked(process, spare.pid, spare.pidfd)
                return
            spare.close()
        try:
            ours, theirs = _channel()
        except OSError as error:  # the others must not go with it
            refused = Unavailable(f"no mount server can be started: {error.strerror}")
            process.on_message({"failed": answer_error(refused)["error"]})
            process.code = Exit.REFUSED
            self._gone(process)
            return
        self._listen(process, ours)
        self._ordered.append(process)
        self._prefork.order(order, process.listener, theirs)
        theirs.close()

    def close(self, process: ServerProcess) -> None:
        """Let a server close its layer and end; kill it if it does not."""
        # One that starts sees it as soon as it is mounted. It is not killed: a fusermount3 that it runs would go on,
        # and mount after the unmounting.
        if process.channel is not None:
            process.channel.send({"close": True})
        self._hang_up(process)
        self._end_in_time(process)

    def cut(self, process: ServerProcess) -> None:
        """End a server that is up, and let nobody read what the kernel has of it; kill it if it does not end."""
        if process.channel is None or not process.channel.send({"cut": True}):
            self._hang_up(process)
        self._end_in_time(process)

    def due(self) -> float | None:
        """Return when `look` is to be called at the latest, monotonic seconds; None if nothing is to be looked at."""
        due = [process.kill_at for process in self._all if process.kill_at is not None]
        if self._prepare_at is not None:
            due.append(self._prepare_at)
        if any(process.watchdog is not None for process in self._all):
            due.append(self._look_at)
        return min(due, default=None)

    def look(self) -> None:
        """End the servers that hang, and those that were told to end and did not; fork a spare if all is quiet."""
        now = time.monotonic()
        if self._prepare_at is not None and self._prepare_at <= now:
            self._prepare()
        for process in self._all:
            if process.kill_at is not None and process.kill_at <= now:
                process.kill_at = None
                log.warning("killed a mount server that did not end: %s", process.request.mountpoint)
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
        if now < self._look_at:
            return
        self._look_at = now + self._request_deadline_s / CHECKS_PER_DEADLINE
        for process in self._all:
            found = Verdict.ALIVE if process.watchdog is None else process.watchdog.check(now, process.pid)
            if found is Verdict.SILENT and process.channel is not None:
                process.channel.send({"hear": True})
            elif found is Verdict.HUNG:
                self._end_hanging(process)

    def end(self) -> None:
        """End the template; for when all servers are gone."""
        spare = self._take_spare()
        if spare is not None:
            spare.close()
        self._loop.unwatch(self._prefork.fileno())
        self._prefork.close()

    def _end_in_time(self, process: ServerProcess) -> None:
        process.closing = True
        if process.pidfd >= 0:  # else from when it is forked
            process.kill_at = time.monotonic() + _CLOSE_DEADLINE_S

    def _end_hanging(self, process: ServerProcess) -> None:
        """Whoever waits for a server gets an error, and another can be put in its place."""
        process.watchdog = None
        mountpoint = process.request.mountpoint
        if process.pid == 0:
            log.error("the template hangs and is ended: %s waits for a server", mountpoint)
            os.kill(self._prefork.pid, signal.SIGKILL)
            return
        log.error("a mount server hangs and is ended: %s", mountpoint)
        # First the connection, so that nobody waits even if the process cannot be killed at the moment.
        mounts.abort(mountpoint)
        if process.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)

    # The template

    def _new_prefork(self) -> PreforkProcess:
        template = PreforkProcess(self._serve)
        self._loop.watch(template.fileno(), self._hear_prefork)
        return template

    def _serve(self, order: bytes, listener: socket.socket, channel: socket.socket) -> int:
        """Be a mount server; called in its process."""
        if order == _SPARE:
            listener.close()
            self._hot.copy()
            given = wait_for_order(channel)
            if given is None:
                return Exit.CLOSED
            order, listener = given
        told = control.unpack(order)
        heartbeat = self._heartbeats.slot(told["slot"]) if told["slot"] is not None else unwatched_heartbeat()
        code = serve(request_from_wire(told["request"]), self._opener, self._transport, heartbeat, listener, channel)
        Connection(channel).send({"ended": int(code)})
        return int(code)

    def _hear_prefork(self) -> None:
        forked = self._prefork.answer()
        if forked is None:
            self._replace_prefork()
            return
        ordered = self._ordered.popleft()
        if isinstance(ordered, ServerProcess):
            self._forked(ordered, *forked)
        elif forked.pidfd < 0:
            ordered.close()
        else:
            ordered.pid, ordered.pidfd = forked
            self._spare = ordered
            self._loop.watch(forked.pidfd, self._spare_gone)

    def _forked(self, process: ServerProcess, pid: int, pidfd: int) -> None:
        process.pid, process.pidfd = pid, pidfd
        if pidfd < 0:
            self._gone(process)
            return
        self._loop.watch(pidfd, lambda: self._gone(process))
        if process.closing:
            self._end_in_time(process)

    def _replace_prefork(self) -> None:
        """Fork another template, from this process as it is now, and let go of what the dead one did not get to."""
        log.error("the template is dead; forking another one")
        self._loop.unwatch(self._prefork.fileno())
        self._prefork.close()
        self._prefork = self._new_prefork()
        ordered, self._ordered = self._ordered, deque()
        for process in ordered:
            # It may have been forked: then the channel's end makes it go.
            if isinstance(process, _Spare):
                process.close()
                self._prepare_when_quiet()
                continue
            self._hang_up(process)
            process.lost = True
            self._gone(process)

    # The spare

    def _prepare_when_quiet(self) -> None:
        if self._spares:
            self._prepare_at = time.monotonic() + _QUIET_S

    def _prepare(self) -> None:
        """Have a spare forked, if there is none."""
        self._prepare_at = None
        if self._ordered or not all(process.has_begun for process in self._all):
            return  # until the last of them is up
        self._hot.learn(process.pid for process in self._all)
        if self._spare is not None:
            return
        try:
            ours, theirs = _channel()
        except OSError:  # then the next server is forked when it is wanted, if it can be
            return
        self._ordered.append(_Spare(ours))
        self._prefork.order(_SPARE, theirs, theirs)
        theirs.close()

    def _take_spare(self) -> _Spare | None:
        spare, self._spare = self._spare, None
        if spare is not None:
            self._loop.unwatch(spare.pidfd)
        return spare

    def _spare_gone(self) -> None:
        """Do without a spare that someone killed, until another one is forked after the next order."""
        spare = self._take_spare()
        if spare is not None:
            spare.close()

    # Servers

    def _listen(self, process: ServerProcess, channel: socket.socket) -> None:
        """Hear what a server says."""
        peer = process.channel = Connection(channel)
        self._loop.watch(peer.fileno(), lambda: self._hear(process, peer))

    def _hear(self, process: ServerProcess, channel: Connection) -> None:
        messages, is_open = channel.receive()
        for message in messages:
            if "ended" in message:
                process.code = message["ended"]
                continue
            if not process.has_begun:
                process.has_begun = True
                self._prepare_when_quiet()
            process.on_message(message)
        if not is_open:
            self._loop.unwatch(channel.fileno())

    def _hang_up(self, process: ServerProcess) -> None:
        if process.channel is not None:
            self._loop.unwatch(process.channel.fileno())
            process.channel.close()
            process.channel = None

    def _gone(self, process: ServerProcess) -> None:
        """Forget a process, and say so to whom it was for."""
        if process.channel is not None:
            self._hear(process, process.channel)  # its last words
            self._hang_up(process)
        if process.pidfd >= 0:
            self._loop.unwatch(process.pidfd)
            os.close(process.pidfd)
            process.pidfd = -1
        if process.slot is not None:
            self._heartbeats.release(process.slot)
        self._all.discard(process)
        self._prepare_when_quiet()
        process.on_exit()


def _channel() -> tuple[socket.socket, socket.socket]:
    """Return the zygote's end of a channel, and a server's.

    Raises:
        OSError: there are no descriptors left.
    """
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
