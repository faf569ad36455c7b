"""The mounts of a node: the life of each, from the order to its end.

    mount ──► STARTING ──up──► UP ──unmount / owner gone / replaced──► ENDING ──exit──► (unmounted, forgotten)
                  │              └──exit: rolled back, failed, killed──► (unmounted) STARTING, on the same layer
                  └──failed──► (unmounted, forgotten; the caller is told why)
                       └──but was up before──► FAILED ──unmount / owner gone / replaced──► (unmounted, forgotten)

A server that dies again and again is given up (`MountRecord.may_restart`); its host's next call fails.

From the order to its end a mountpoint is guarded (`chronicle.fuse.mountpoints.guard`): while no server is there, and
after it was given up, whoever uses its path gets an error, and nobody reads or writes the directory below.

The servers' processes are those of `chronicle.fuse.zygote.processes`. Nothing here waits for one.
"""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.errors import ChronicleError, Conflict, InvalidInput, NotFound, StaleEpoch, Unavailable
from chronicle.fuse import control
from chronicle.fuse.control import Ended, answer_error, answer_ok
from chronicle.fuse.mountpoints import guard, mountinfo, mounts
from chronicle.fuse.mountpoints.claim import claim_mountpoint
from chronicle.fuse.server.server import Exit
from chronicle.fuse.zygote.mount_record import MountRecord, State
from chronicle.fuse.zygote.processes import ServerProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from chronicle.fuse.control import Connection, Message
    from chronicle.fuse.poll_loop import PollLoop
    from chronicle.fuse.server.server import MountRequest
    from chronicle.fuse.zygote.processes import ServerProcesses

__all__ = ["MountManager"]

log = logging.getLogger(__name__)


class MountManager:
    """Makes mounts, keeps them served, and takes them away.

    Args:
        loop: where to wait for the mounts' owners.
        processes: have servers forked.
        socket_path: the zygote's; each mount's control socket is made beside it.
        emptied: called each time the last mount is gone.
    """

    def __init__(
        self, loop: PollLoop, processes: ServerProcesses, socket_path: Path, emptied: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._processes = processes
        self._emptied = emptied
        self._mounts: dict[str, MountRecord] = {}
        self._claims: dict[str, socket.socket] = {}
        """By mountpoint, what keeps others from it until it is unmounted: see
        `chronicle.fuse.mountpoints.mounts.claim`."""
        # The name's random part: a host whose zygote died must never reach another one's mount by it.
        self._sockets = f"{socket_path}.{secrets.token_hex(4)}"
        self._serial = 0
        self._ending = False

    def mount(self, request: MountRequest, peer: Connection, *, with_caller: bool) -> None:
        """Mount, and answer when it is up or has failed.

        What serves the same workspace goes first, as a newer epoch takes it over; what was given up, or is ending, in
        its place does, too. A path where another workspace is in use is not taken away from those who use it.

        Args:
            request: what is to be mounted where.
            peer: who is to get the answer.
            with_caller: the mount ends with the peer's process.

        Raises:
            StaleEpoch: a newer epoch has mounted the workspace.
            Conflict: another workspace is mounted there, of this store or another one.
            InvalidInput: the mountpoint cannot be one, or something else is mounted there.
            Ended: everything is being closed.
            Unavailable: the peer's process is gone.
        """
        if self._ending:
            raise Ended("the mount service is ending")
        spec = request.spec
        older = []
        for mount in self._mounts.values():
            ours = mount.request.spec
            if (ours.layers, ours.workspace_id) == (spec.layers, spec.workspace_id):
                if ours.epoch > spec.epoch:
                    raise StaleEpoch(spec.epoch, ours.epoch)
                older.append(mount)
            elif mount.request.mountpoint == request.mountpoint:
                if mount.state in {State.STARTING, State.UP}:
                    raise Conflict(
                        f"workspace {ours.workspace_id!r} is mounted at {request.mountpoint} already; unmount it first "
                        "or name another directory"
                    )
                older.append(mount)
        if older:
            # One layer has one server, and one path one mount: the newcomer waits until the older one is cut off. Then
            # it looks again, as another newcomer may have come first.
            older[0].then.append(lambda: self._mount_after(request, peer, with_caller=with_caller))
            self._cut_off(older[0])
            return
        self._serial += 1
        socket_path = Path(f"{self._sockets}.{self._serial}.ctl")
        mount = MountRecord(request, control.listen(socket_path), socket_path, waiting=[peer])
        try:
            if with_caller:
                mount.owner_pidfd = os.pidfd_open(peer.pid())
            self._claim(request.mountpoint)
        except BaseException as error:
            mount.hang_up()
            if mount.owner_pidfd >= 0:
                os.close(mount.owner_pidfd)
            if isinstance(error, ProcessLookupError):
                raise Unavailable("the process that wants this mount is gone") from None
            raise
        if with_caller:
            self._loop.watch(mount.owner_pidfd, lambda: self._let_go(mount))
        self._mounts[os.fspath(request.mountpoint)] = mount
        try:
            self._guard(mount)
        except (ChronicleError, OSError) as error:
            mount.failure = answer_error(error)["error"]
            self._forget(mount)
            return
        self._serve(mount)

    def unmount(self, mountpoint: str, peer: Connection) -> None:
        """Close a mount in order, and answer when it is gone.

        Raises:
            NotFound: there is none.
        """
        mount = self._mounts.get(mountpoint)
        if mount is None:
            raise NotFound(f"this zygote has nothing mounted at {mountpoint}")
        mount.leaving.append(peer)
        self._close(mount)

    def describe(self) -> list[dict[str, object]]:
        """Return what ``list`` says of each mount."""
        return [mount.describe() for mount in self._mounts.values()]

    def end(self) -> None:
        """Close every mount, and make no more."""
        self._ending = True
        for mount in list(self._mounts.values()):
            self._close(mount)

    def is_empty(self) -> bool:
        """Say whether there is no mount, in no state of its life."""
        return not self._mounts

    def has_ended(self) -> bool:
        """Say whether `end` was called and the last mount is gone since."""
        return self._ending and not self._mounts

    def forget_peer(self, peer: Connection) -> None:
        """Answer a peer no more."""
        for mount in self._mounts.values():
            mount.waiting = [other for other in mount.waiting if other is not peer]
            mount.leaving = [other for other in mount.leaving if other is not peer]

    # From the order to being up

    def _mount_after(self, request: MountRequest, peer: Connection, *, with_caller: bool) -> None:
        """Mount what had to wait for its predecessor's end."""
        if peer.fileno() < 0:  # it hung up meanwhile
            return
        try:
            self.mount(request, peer, with_caller=with_caller)
        except Exception as error:  # noqa: BLE001 - as for any caller: an answer in any case
            peer.send(answer_error(error))

    def _claim(self, mountpoint: Path) -> None:
        """Have a mountpoint, free and fit to be one. Nothing to do if a mount that it follows had it."""
        path = os.fspath(mountpoint)
        if path in self._claims:
            return
        held = claim_mountpoint(mountpoint)
        try:
            if mountinfo.is_mounted(mountpoint):
                raise InvalidInput(f"something is mounted at {mountpoint} already; unmount it or name another path")
            mounts.make_mountpoint(mountpoint)
        except BaseException:
            held.close()
            raise
        self._claims[path] = held

    def _guard(self, mount: MountRecord) -> None:
        """See to it that the directory below is not written to, whatever becomes of the server."""
        guard.guard_mountpoint(mount.request.mountpoint, mount.request.source)

    def _serve(self, mount: MountRecord) -> None:
        """Have a server started for a mount."""
        mount.state = State.STARTING
        process = mount.process = ServerProcess(
            mount.request,
            mount.listener,
            on_message=lambda message: self._hear(mount, message),
            on_exit=lambda: self._server_gone(mount, process),
        )
        self._processes.start(process)

    def _hear(self, mount: MountRecord, message: Message) -> None:
        """Take in what a mount's server says."""
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

    # To its end

    def _let_go(self, mount: MountRecord) -> None:
        """Close a mount whose owner is gone."""
        self._loop.unwatch(mount.owner_pidfd)
        self._close(mount)

    def _close(self, mount: MountRecord) -> None:
        """Let a mount's server close its layer and end. Forget a mount that has none."""
        if mount.process is None:
            self._forget(mount)
        elif mount.state is not State.ENDING:
            mount.state = State.ENDING
            self._processes.close(mount.process)

    def _cut_off(self, mount: MountRecord) -> None:
        """End a server whose layer someone else takes over: who still uses the mount gets errors from now on."""
        if mount.process is not None and mount.state is State.UP:
            mount.state = State.ENDING
            self._processes.cut(mount.process)
        else:
            self._close(mount)

    def _server_gone(self, mount: MountRecord, process: ServerProcess) -> None:
        """Unmount what a server left, and mount again or forget it."""
        mountpoint, code = mount.request.mountpoint, process.code
        if code == Exit.CLOSED and mount.state is State.UP and mountinfo.is_served(mountpoint):
            code = Exit.FAILED  # nobody unmounted it: its connection was aborted
        try:
            mounts.detach(mountpoint)
        except ChronicleError:
            log.exception("unmounting failed: %s", mountpoint)
        if mount.state is State.ENDING or code == Exit.CLOSED:
            self._forget(mount)
        elif code == Exit.ROLLED_BACK or process.lost:
            self._mount_again(mount)
        elif code != Exit.REFUSED and mount.may_restart():
            log.warning("mounting again: %s (exit code %s)", mountpoint, code)
            self._mount_again(mount)
        else:
            log.error("gave up a mount: %s (exit code %s)", mountpoint, code)
            self._give_up(mount)

    def _mount_again(self, mount: MountRecord) -> None:
        try:
            self._guard(mount)  # others than root have it anew for each server
        except (ChronicleError, OSError):
            log.exception("guarding failed: %s", mount.request.mountpoint)
        self._serve(mount)

    def _give_up(self, mount: MountRecord) -> None:
        """Let whoever uses a mount have errors for good; what never was up is unmounted, as its caller is told."""
        if mount.base is None:
            self._forget(mount)
            return
        mount.state, mount.process = State.FAILED, None
        mount.hang_up()
        self._answer_waiting(mount)

    def _answer_waiting(self, mount: MountRecord) -> None:
        """Tell who waits for a mount that it will not come."""
        ended = answer_error(Unavailable(f"the mount at {mount.request.mountpoint} ended before it was up"))
        for peer in mount.waiting:
            peer.send(ended if mount.failure is None else {"error": mount.failure})
        mount.waiting = []

    def _forget(self, mount: MountRecord) -> None:
        """Let go of a mount that nobody serves, and mount what waited for its end."""
        path = os.fspath(mount.request.mountpoint)
        del self._mounts[path]
        if mount.owner_pidfd >= 0:
            self._loop.unwatch(mount.owner_pidfd)
            os.close(mount.owner_pidfd)
        mount.hang_up()
        for follow in mount.then:
            follow()
        # Else what follows has the same guard and the same claim, or has failed and let go of both.
        if path not in self._mounts and path in self._claims:
            try:
                mounts.unmount(mount.request.mountpoint)
                self._claims.pop(path).close()
            except ChronicleError:  # it stays claimed, and may be mounted anew
                log.exception("unmounting failed: %s", mount.request.mountpoint)
        self._answer_waiting(mount)
        for peer in mount.leaving:
            peer.send(answer_ok())
        if not self._mounts:
            self._emptied()
