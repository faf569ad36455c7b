"""The zygote's loop: forks mount servers, watches over them, and owns every mount of a node.

It is the only one that unmounts while it lives. The life of a mount:

    mount ──► STARTING ──up──► UP ──unmount / owner gone / replaced──► ENDING ──exit──► (unmounted, forgotten)
                  │              └──exit: rolled back, failed, killed──► (unmounted) STARTING, on the same layer
                  └──failed──► (unmounted, forgotten; the caller is told why)
                       └──but was up before──► FAILED ──unmount / owner gone / replaced──► (unmounted, forgotten)

A server that dies again and again is given up (`Mounted.may_restart`); its host's next call fails.

From the order to its end a mountpoint is guarded (`chronicle.fuse.below`): while no server is there, and after it was
given up, whoever uses its path gets an error, and nobody reads or writes the directory below.

Who goes with whom: the zygote ends when its owner does (a process id, watched by pidfd), on SIGTERM, on ``shutdown``;
a mount ends with the process that asked for it, unless that was not wanted; a server ends, unmounting, when the zygote
does. What a kill of everything at once leaves mounted is unmounted when the next zygote starts.

Nothing here waits for anything but the poll: one server that hangs never keeps the others from being mounted.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import select
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import ChronicleError, Conflict, InvalidInput, NotFound, StaleEpoch, Unavailable
from chronicle.fuse import control, mounts
from chronicle.fuse.control import Door, Peer, answer_error, answer_ok
from chronicle.fuse.mounted import Mounted, State
from chronicle.fuse.pulse import LOOKS, OPENING, Finding, Pulse, Pulses, Watcher, unwatched
from chronicle.fuse.server import Exit, MountRequest, Served, request_from_wire, request_to_wire, serve
from chronicle.fuse.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.fuse.mounts import Transport

__all__ = ["REQUEST_DEADLINE_S", "Zygote"]

log = logging.getLogger(__name__)

REQUEST_DEADLINE_S: Final = 60.0
"""Longer than a request of ours takes: the longest wait for the blob store, for each read half of this."""
_CLOSE_DEADLINE_S: Final = 5.0
"""For a server to close its layer in order; then it is killed. Killing loses nothing that was acknowledged."""


class Zygote:
    """The supervisor's loop.

    Args:
        socket_path: where it listens; mounts' control sockets are made beside it.
        mounts_dir: where this node's mountpoints are; stale mounts below it are removed at the start.
        opener: opens the layer of a mount, in the forked server.
        transport: how the servers speak to the kernel.
        request_deadline_s: how long a server may be at one point of a request before it is taken to hang, seconds.
        owner_pid: the process to end with; ``None`` to run until told to end.
        until_idle: end when the last mount is gone.

    Raises:
        Conflict: another zygote runs on this socket.
    """

    def __init__(
        self,
        socket_path: Path,
        mounts_dir: Path,
        opener: Callable[[MountRequest, Pulse], Served],
        owner_pid: int | None = None,
        *,
        transport: Transport = mounts.DEFAULT_TRANSPORT,
        request_deadline_s: float = REQUEST_DEADLINE_S,
        until_idle: bool = False,
    ) -> None:
        self._directory = socket_path.parent
        self._socket_path = socket_path
        self._opener = opener
        self._transport = transport
        self._request_deadline_s = request_deadline_s
        self._pulses = Pulses()
        self._look_at = 0.0
        self._lock = os.open(
            socket_path.with_name(socket_path.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise Conflict(f"a zygote runs at {socket_path} already") from error
        for mountpoint in mounts.unmount_all_under(mounts_dir):
            log.warning("removed a stale mount: %s", mountpoint)
        for path in self._directory.glob(f"{socket_path.name}.*.ctl"):
            path.unlink()
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._mounts: dict[str, Mounted] = {}
        self._peers: dict[int, Peer] = {}
        self._guarded: set[str] = set()
        """Mountpoints that were guarded and not unmounted since."""
        self._serial = 0
        self._name = secrets.token_hex(4)
        """Part of the control sockets' names: a host whose zygote died must never reach another one's mount by them."""
        self._ending = False
        self._until_idle = until_idle
        self._owner_pidfd = -1
        self._leaving: list[Peer] = []
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watch(self._wake, self._end)
        self._template = self._new_template()
        self._ordered: deque[Mounted] = deque()
        """Whose servers the template is forking, the first asked for first."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)  # the wake-up descriptor is what ends the loop
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of a terminal is for its foreground job
        if owner_pid is not None:
            try:
                self._owner_pidfd = os.pidfd_open(owner_pid)
                self._watch(self._owner_pidfd, self._end)
            except ProcessLookupError:
                self._end()
        self._listener = control.listen(socket_path)
        self._door = Door(self._listener)
        self._watch(self._door.fileno(), self._accept)

    def run(self) -> None:
        """Serve until told to end, or the owner is gone; then close every mount and return."""
        while not self._ending or self._mounts:
            for fd, callback in [(fd, self._callbacks[fd]) for fd, _ in self._poll.poll(self._timeout_ms())]:
                # An earlier callback of this round may have closed the descriptor, and its number be another's now.
                if self._callbacks.get(fd) is callback:
                    callback()
            self._kill_overdue()
            self._look_at_servers()
        self._unwatch(self._template.fileno())
        self._template.close()
        self._socket_path.unlink(missing_ok=True)
        for peer in self._leaving:
            peer.send(answer_ok())

    # The loop

    def _watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._callbacks[fd] = callback
        self._poll.register(fd, select.POLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _timeout_ms(self) -> int | None:
        due = [mount.kill_at for mount in self._mounts.values() if mount.kill_at is not None]
        if any(mount.watcher is not None for mount in self._mounts.values()):
            due.append(self._look_at)
        return None if not due else max(0, round((min(due) - time.monotonic()) * 1000) + 1)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for mount in self._mounts.values():
            if mount.kill_at is not None and mount.kill_at <= now:
                mount.kill_at = None
                log.warning("killed a mount server that did not end: %s", mount.request.mountpoint)
                signal.pidfd_send_signal(mount.pidfd, signal.SIGKILL)

    def _look_at_servers(self) -> None:
        """End the servers that hang: whoever waits for them gets an error, and another is put in their place."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self._request_deadline_s / LOOKS
        for mount in self._mounts.values():
            found = Finding.WELL if mount.watcher is None else mount.watcher.look(now, mount.pid)
            if found is Finding.QUIET and mount.channel is not None:
                mount.channel.send({"hear": True})
            elif found is Finding.HANGS:
                self._end_hanging(mount)

    def _end_hanging(self, mount: Mounted) -> None:
        mount.watcher = None
        if mount.pid == 0:
            log.error("the template hangs and is ended: %s waits for a server", mount.request.mountpoint)
            os.kill(self._template.pid, signal.SIGKILL)
            return
        log.error("a mount server hangs and is ended: %s", mount.request.mountpoint)
        # First the connection, so that nobody waits even if the process cannot be killed at the moment.
        mounts.abort(mount.request.mountpoint)
        if mount.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(mount.pidfd, signal.SIGKILL)

    def _end(self) -> None:
        """Close every mount, and leave the loop when the last is gone."""
        self._unwatch(self._wake)
        self._unwatch(self._owner_pidfd)
        self._ending = True
        for mount in list(self._mounts.values()):
            self._close(mount)

    # Callers

    def _accept(self) -> None:
        peer = self._door.accept()
        if peer is not None:
            self._peers[peer.fileno()] = peer
            self._watch(peer.fileno(), lambda: self._hear(peer))

    def _hear(self, peer: Peer) -> None:
        messages, is_open = peer.receive()
        for message in messages:
            try:
                self._carry_out(message, peer)
            except Exception as error:  # the caller must get an answer, and the others their mounts
                if not isinstance(error, ChronicleError):
                    log.exception("%s failed", message.get("op"))
                peer.send(answer_error(error))
        if not is_open:
            self._unwatch(peer.fileno())
            del self._peers[peer.fileno()]
            for mount in self._mounts.values():
                mount.waiting = [other for other in mount.waiting if other is not peer]
                mount.leaving = [other for other in mount.leaving if other is not peer]
            self._leaving = [other for other in self._leaving if other is not peer]
            peer.close()

    def _carry_out(self, message: dict[str, Any], peer: Peer) -> None:
        op = message.get("op")
        if op == "mount":
            self._mount(message, peer)
        elif op == "unmount":
            mount = self._mounts.get(message["mountpoint"])
            if mount is None:
                raise NotFound(f"this zygote has nothing mounted at {message['mountpoint']}")
            mount.leaving.append(peer)
            self._close(mount)
        elif op == "list":
            peer.send(answer_ok([mount.describe() for mount in self._mounts.values()]))
        elif op == "ping":
            peer.send(answer_ok({"pid": os.getpid()}))
        elif op == "shutdown":
            self._leaving.append(peer)
            self._end()
        else:
            raise InvalidInput(f"a zygote has no operation {op!r}")

    # Mounts

    def _mount(self, message: dict[str, Any], peer: Peer) -> None:
        if self._ending:
            raise Unavailable("this zygote is ending")
        request = request_from_wire(message)
        spec = request.spec
        older = [
            mount
            for mount in self._mounts.values()
            if mount.request.mountpoint == request.mountpoint
            or (mount.request.spec.layers, mount.request.spec.workspace_id) == (spec.layers, spec.workspace_id)
        ]
        for mount in older:
            ours = mount.request.spec
            if ours.workspace_id == spec.workspace_id and ours.epoch > spec.epoch:
                raise StaleEpoch(spec.epoch, ours.epoch)
        if older:
            # One layer has one server, and one path one mount: the newcomer waits until the older one is cut off. Then
            # it looks again, as another newcomer may have come first.
            older[0].then.append(lambda: self._try_mount(message, peer))
            self._cut_off(older[0])
            return
        if os.fspath(request.mountpoint) not in self._guarded:
            if mounts.is_mounted(request.mountpoint):
                raise InvalidInput(
                    f"something is mounted at {request.mountpoint} already; unmount it or name another path"
                )
            mounts.make_mountpoint(request.mountpoint)
        self._serial += 1
        socket_path = self._directory / f"{self._socket_path.name}.{self._name}.{self._serial}.ctl"
        mount = Mounted(request, control.listen(socket_path), socket_path, waiting=[peer])
        if message.get("with_caller"):
            try:
                mount.owner_pidfd = os.pidfd_open(peer.pid())
            except OSError as error:
                mount.hang_up()
                if isinstance(error, ProcessLookupError):
                    raise Unavailable("the process that wants this mount is gone") from None
                raise
            self._watch(mount.owner_pidfd, lambda: self._let_go(mount))
        self._mounts[os.fspath(request.mountpoint)] = mount
        try:
            self._guard(mount)
        except (ChronicleError, OSError) as error:
            mount.failure = answer_error(error)["error"]
            self._forget(mount)
            return
        self._fork(mount)

    def _guard(self, mount: Mounted) -> None:
        """See to it that the directory below is not written to, whatever becomes of the server."""
        mounts.guard(mount.request.mountpoint, mount.request.source)
        self._guarded.add(os.fspath(mount.request.mountpoint))

    def _try_mount(self, message: dict[str, Any], peer: Peer) -> None:
        """Mount what had to wait for its predecessor's end."""
        if peer.fileno() not in self._peers:
            return
        try:
            self._mount(message, peer)
        except Exception as error:  # noqa: BLE001 - as in `_hear`: an answer in any case
            peer.send(answer_error(error))

    def _fork(self, mount: Mounted) -> None:
        """Have a server forked for a mount."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        except OSError as error:  # the others must not go with it
            mount.failure = answer_error(Unavailable(f"no mount server can be started: {error.strerror}"))["error"]
            self._watch_no_more(mount)
            self._give_up(mount)
            return
        channel = Peer(ours)
        mount.state = State.STARTING
        mount.pid, mount.ended, mount.channel = 0, None, channel
        self._watch(channel.fileno(), lambda: self._hear_server(mount, channel))
        self._ordered.append(mount)
        if mount.place is None:
            mount.place = self._pulses.take()
        if mount.place is not None:
            pulse = self._pulses.at(mount.place)
            pulse.cells[1] = OPENING
            mount.watcher = Watcher(pulse, self._request_deadline_s)
        order = {"request": request_to_wire(mount.request), "place": mount.place}
        self._template.order(control.pack(order), mount.listener, theirs)
        theirs.close()

    def _new_template(self) -> Template:
        template = Template(self._serve)
        self._watch(template.fileno(), self._hear_template)
        return template

    def _serve(self, order: bytes, listener: socket.socket, channel: socket.socket) -> int:
        """Be a mount server; called in its process."""
        told = control.unpack(order)
        pulse = self._pulses.at(told["place"]) if told["place"] is not None else unwatched()
        code = serve(request_from_wire(told["request"]), self._opener, self._transport, pulse, listener, channel)
        Peer(channel).send({"ended": int(code)})
        return int(code)

    def _hear_template(self) -> None:
        forked = self._template.answer()
        if forked is None:
            self._replace_template()
            return
        mount = self._ordered.popleft()
        mount.pid, mount.pidfd = forked
        if forked.pidfd < 0:
            self._server_ended(mount)
            return
        self._watch(forked.pidfd, lambda: self._server_ended(mount))
        if mount.state is State.ENDING:
            mount.kill_at = time.monotonic() + _CLOSE_DEADLINE_S

    def _replace_template(self) -> None:
        """Fork another template, from this process as it is now, and order again what it did not get to."""
        log.error("the template is dead; forking another one")
        self._unwatch(self._template.fileno())
        self._template.close()
        self._template = self._new_template()
        ordered, self._ordered = self._ordered, deque()
        for mount in ordered:
            # Its server may have been forked: then the channel's end makes it go.
            if mount.channel is not None:
                self._unwatch(mount.channel.fileno())
                mount.channel.close()
                mount.channel = None
            if mount.state is State.ENDING:
                self._forget(mount)
            else:
                self._fork(mount)

    def _hear_server(self, mount: Mounted, channel: Peer) -> None:
        messages, is_open = channel.receive()
        for message in messages:
            if "up" in message:
                mount.base = message["up"]["base"]
                if mount.recovered is None:
                    mount.recovered = message["up"]["recovered"]
                if mount.state is State.STARTING:
                    mount.state = State.UP
                for peer in mount.waiting:
                    peer.send(answer_ok(mount.opened()))
                mount.waiting = []
            elif "state" in message:
                base, turn = control.ref_from_wire(message["state"]["base"]), message["state"]["turn"]
                spec = mount.request.spec
                mount.request = replace(
                    mount.request, spec=replace(spec, base=base, turn=spec.turn if turn is None else turn)
                )
            elif "failed" in message:
                mount.failure = message["failed"]
            elif "ended" in message:
                mount.ended = message["ended"]
        if not is_open:
            self._unwatch(channel.fileno())

    def _let_go(self, mount: Mounted) -> None:
        """Close a mount whose owner is gone."""
        self._unwatch(mount.owner_pidfd)
        self._close(mount)

    def _close(self, mount: Mounted) -> None:
        """Let a server close its layer and end; kill it if it does not. Forget a mount that has none."""
        if mount.state is State.FAILED:
            self._forget(mount)
        elif mount.state is not State.ENDING:
            # One that starts sees it as soon as it is mounted. It is not killed: a fusermount3 that it runs would go
            # on, and mount after the unmounting.
            mount.state = State.ENDING
            if mount.pidfd >= 0:  # else from when it is forked
                mount.kill_at = time.monotonic() + _CLOSE_DEADLINE_S
            if mount.channel is not None:
                self._unwatch(mount.channel.fileno())
                mount.channel.close()
                mount.channel = None

    def _cut_off(self, mount: Mounted) -> None:
        """End a server whose layer someone else takes over: who still uses the mount gets errors from now on."""
        if mount.state is State.UP and mount.channel is not None and mount.channel.send({"cut": True}):
            mount.state = State.ENDING
            mount.kill_at = time.monotonic() + _CLOSE_DEADLINE_S
        else:
            self._close(mount)

    def _server_ended(self, mount: Mounted) -> None:
        """Unmount what a server left, and mount again or forget it."""
        if mount.channel is not None:
            self._hear_server(mount, mount.channel)  # its last words
            self._unwatch(mount.channel.fileno())
            mount.channel.close()
            mount.channel = None
        if mount.pidfd >= 0:
            self._unwatch(mount.pidfd)
            os.close(mount.pidfd)
            mount.pidfd = -1
        mount.kill_at = None
        self._watch_no_more(mount)
        mountpoint, code = mount.request.mountpoint, mount.ended
        if code == Exit.CLOSED and mount.state is State.UP and mounts.is_served(mountpoint):
            code = Exit.FAILED  # nobody unmounted it: its connection was aborted
        try:
            mounts.detach(mountpoint)
        except ChronicleError:
            log.exception("unmounting failed: %s", mountpoint)
        if mount.state is State.ENDING or code == Exit.CLOSED:
            self._forget(mount)
        elif code == Exit.ROLLED_BACK:
            self._mount_again(mount)
        elif code != Exit.REFUSED and mount.may_restart():
            log.warning("mounting again: %s (exit code %s)", mountpoint, code)
            self._mount_again(mount)
        else:
            self._give_up(mount)

    def _mount_again(self, mount: Mounted) -> None:
        try:
            self._guard(mount)  # others than root have it anew for each server
        except (ChronicleError, OSError):
            log.exception("guarding failed: %s", mount.request.mountpoint)
        self._fork(mount)

    def _give_up(self, mount: Mounted) -> None:
        """Let whoever uses a mount have errors for good; what never was up is unmounted, as its caller is told."""
        log.error("gave up a mount: %s (exit code %s)", mount.request.mountpoint, mount.ended)
        if mount.base is None:
            self._forget(mount)
            return
        mount.state, mount.pid = State.FAILED, 0
        mount.hang_up()
        self._answer_waiting(mount)

    def _watch_no_more(self, mount: Mounted) -> None:
        mount.watcher = None
        if mount.place is not None:
            self._pulses.give_back(mount.place)
            mount.place = None

    def _answer_waiting(self, mount: Mounted) -> None:
        """Tell who waits for a mount that it will not come."""
        ended = answer_error(Unavailable(f"the mount at {mount.request.mountpoint} ended before it was up"))
        for peer in mount.waiting:
            peer.send(ended if mount.failure is None else {"error": mount.failure})
        mount.waiting = []

    def _forget(self, mount: Mounted) -> None:
        """Let go of a mount that nobody serves, and mount what waited for its end."""
        self._watch_no_more(mount)
        path = os.fspath(mount.request.mountpoint)
        del self._mounts[path]
        if mount.owner_pidfd >= 0:
            self._unwatch(mount.owner_pidfd)
            os.close(mount.owner_pidfd)
        mount.hang_up()
        for follow in mount.then:
            follow()
        if path not in self._mounts:  # else what follows is guarded by the same guard
            try:
                mounts.unmount(mount.request.mountpoint)
                self._guarded.discard(path)
            except ChronicleError:
                log.exception("unmounting failed: %s", mount.request.mountpoint)
        self._answer_waiting(mount)
        for peer in mount.leaving:
            peer.send(answer_ok())
        if self._until_idle and not self._mounts:
            self._end()
