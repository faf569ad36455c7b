"""The zygote's loop: its clients, its commands, and its lifetime.

It owns every mount of a node, and is the only process that unmounts while it lives.
`chronicle.fuse.zygote.mount_manager` is the life cycle of a mount, `chronicle.fuse.zygote.processes` that of a mount
server's process.

Lifetimes: the zygote ends with its owner (a process id, watched by pidfd), on SIGTERM, and on ``shutdown``. A mount
ends with the process that ordered it, unless the order says otherwise. A server ends, unmounting, with the zygote.
Mounts that survive a kill of everything are unmounted by the next zygote.

Nothing here waits for anything but the poll: a server that hangs never delays other mounts.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chronicle.control import connections
from chronicle.control.connections import Acceptor, Connection
from chronicle.control.messages import answer_error, answer_ok
from chronicle.errors import ChronicleError, Conflict, InvalidInput
from chronicle.fuse.mountpoints import availability, mounts
from chronicle.fuse.poll_loop import PollLoop
from chronicle.fuse.server.request import MountRequest, request_from_wire
from chronicle.fuse.zygote.launcher import lock_path
from chronicle.fuse.zygote.mount_manager import MountManager
from chronicle.fuse.zygote.processes import ServerProcesses
from chronicle.system.locks import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.server.engine import Served
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["REQUEST_DEADLINE_S", "UNUSED_S", "Zygote"]

log = logging.getLogger(__name__)

UNUSED_S: Final = 10.0
"""How long a zygote that ends with its last mount waits for the first one, seconds. Its starter orders that some
milliseconds later, or was killed in between. An order that comes too late is refused, and starts another zygote."""
REQUEST_DEADLINE_S: Final = 60.0
"""Longer than a request takes: the longest wait for the blob store is half of this for each read."""


class Zygote:
    """The supervisor's loop.

    Args:
        socket_path: where it listens; mounts' control sockets are made beside it.
        mounts_dir: this node's mountpoints; stale mounts below it are removed at the start.
        opener: opens the layer of a mount, in the forked server.
        transport: how the servers talk to the kernel.
        request_deadline_s: limit for one point of a request, seconds; then the server counts as hung.
        owner_pid: the process to end with; ``None`` to run until told to end.
        until_idle: end when the last mount is gone, or when none came for `UNUSED_S`.
        prepare: called when no other zygote can run here and stale mounts are gone, before any lasting fork.

    Raises:
        Conflict: another zygote runs on this socket.
    """

    def __init__(
        self,
        socket_path: Path,
        mounts_dir: Path,
        opener: Callable[[MountRequest, Heartbeat], Served],
        owner_pid: int | None = None,
        *,
        transport: Transport = availability.DEFAULT_TRANSPORT,
        request_deadline_s: float = REQUEST_DEADLINE_S,
        until_idle: bool = False,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._socket_path = socket_path
        self._lock = os.open(lock_path(socket_path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if not try_lock(self._lock):
            os.close(self._lock)
            raise Conflict(f"a zygote runs at {socket_path} already")
        for mountpoint in mounts.unmount_all_under(mounts_dir):
            log.warning("removed a stale mount: %s", mountpoint)
        for path in socket_path.parent.glob(f"{socket_path.name}.*.ctl"):
            path.unlink()
        if prepare is not None:
            prepare()
        self._leaving: list[Connection] = []
        """Clients that get an answer when it has ended."""
        self._until_idle = until_idle
        self._unused_until: float | None = None
        self._owner_pidfd = -1
        self._loop = PollLoop()
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._loop.watch(self._wake, self._end)
        self._processes = ServerProcesses(self._loop, opener, transport, request_deadline_s, spares=not until_idle)
        self._manager = MountManager(self._loop, self._processes, socket_path, self._emptied)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)  # the wake-up descriptor ends the loop
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of a terminal is for its foreground job
        if owner_pid is not None:
            try:
                self._owner_pidfd = os.pidfd_open(owner_pid)
                self._loop.watch(self._owner_pidfd, self._end)
            except ProcessLookupError:
                self._end()
        self._listener = connections.listen(socket_path)
        self._acceptor = Acceptor(self._listener)
        self._loop.watch(self._acceptor.fileno(), self._accept)
        if until_idle:
            self._unused_until = time.monotonic() + UNUSED_S

    def run(self) -> None:
        """Serve until told to end, or the owner is gone; then close every mount and return."""
        while not self._manager.has_ended():
            self._loop.wait(self._due())
            self._processes.check()
            self._end_if_unused()
        self._processes.end()
        self._socket_path.unlink(missing_ok=True)
        for peer in self._leaving:
            peer.send(answer_ok())

    def _due(self) -> float | None:
        """Return when the loop must run at the latest, monotonic seconds."""
        return min((at for at in (self._processes.due(), self._unused_until) if at is not None), default=None)

    def _end_if_unused(self) -> None:
        """End if the first mount did not come in time. After it, the last one ends the zygote."""
        if self._unused_until is None:
            return
        if not self._manager.is_empty():
            self._unused_until = None
        elif time.monotonic() >= self._unused_until:
            log.info("no mount was ordered in %.0f s", UNUSED_S)
            self._unused_until = None
            self._end()

    def _end(self) -> None:
        """Close every mount, and leave the loop when the last is gone."""
        self._loop.unwatch(self._wake)
        self._loop.unwatch(self._owner_pidfd)
        self._manager.end()

    def _emptied(self) -> None:
        if self._until_idle:
            self._end()

    def _accept(self) -> None:
        peer = self._acceptor.accept()
        if peer is not None:
            self._loop.watch(peer.fileno(), lambda: self._hear(peer))

    def _hear(self, peer: Connection) -> None:
        messages, is_open = peer.receive()
        for message in messages:
            try:
                self._carry_out(message, peer)
            except Exception as error:  # the client must get an answer, and the other mounts must go on
                if not isinstance(error, ChronicleError):
                    log.exception("%s failed", message.get("op"))
                peer.send(answer_error(error))
        if not is_open:
            self._loop.unwatch(peer.fileno())
            self._manager.forget_client(peer)
            self._leaving = [other for other in self._leaving if other is not peer]
            peer.close()

    def _carry_out(self, message: dict[str, Any], peer: Connection) -> None:
        op = message.get("op")
        if op == "mount":
            self._manager.mount(request_from_wire(message), peer, with_caller=bool(message.get("with_caller")))
        elif op == "unmount":
            self._manager.unmount(message["mountpoint"], peer)
        elif op == "list":
            peer.send(answer_ok(self._manager.describe()))
        elif op == "ping":
            peer.send(answer_ok({"pid": os.getpid()}))
        elif op == "shutdown_unused" and not self._manager.is_empty():
            peer.send(answer_ok())
        elif op in {"shutdown", "shutdown_unused"}:
            self._leaving.append(peer)
            self._end()
        else:
            raise InvalidInput(f"a zygote has no operation {op!r}")
