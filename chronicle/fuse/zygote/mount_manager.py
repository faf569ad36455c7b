"""The mounts of a node: the life cycle of each, from the order to its end.

    mount ──► STARTING ──up──► UP ──unmount / owner gone / replaced──► ENDING ──exit──► (unmounted, forgotten)
                  │              └──exit: rolled back, failed, killed──► (unmounted) STARTING, on the same layer
                  └──failed──► (unmounted, forgotten; the client gets the error)
                       └──but was up before──► FAILED ──unmount / owner gone / replaced──► (unmounted, forgotten)

A mount whose servers die again and again fails for good (`MountRecord.may_restart`); its host's next call fails.

From the order to its end a mountpoint is guarded (`chronicle.fuse.mountpoints.guard`): while no server runs, and after
the mount has failed, its path answers errors, and the directory below is neither read nor written.

The servers' processes are those of `chronicle.fuse.zygote.processes`. Nothing here waits for one.
"""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.control import connections
from chronicle.control.messages import Ended, answer_error, answer_ok
from chronicle.errors import ChronicleError, Conflict, InvalidInput, NotFound, StaleEpoch, Unavailable
from chronicle.fuse import wire
from chronicle.fuse.mountpoints import guard, mountinfo, mounts
from chronicle.fuse.mountpoints.claim import claim_mountpoint
from chronicle.fuse.server.request import Exit
from chronicle.fuse.zygote.mount_record import MountRecord, State
from chronicle.fuse.zygote.processes import ServerProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from chronicle.control.connections import Connection
    from chronicle.control.messages import Message
    from chronicle.fuse.poll_loop import PollLoop
    from chronicle.fuse.server.request import MountRequest
    from chronicle.fuse.zygote.processes import ServerProcesses

__all__ = ["MountManager"]

log = logging.getLogger(__name__)


class MountManager:
    """Makes mounts, keeps them served, and removes them.

    Args:
        loop: where to wait for the mounts' owners.
        processes: starts the servers.
        socket_path: the zygote's socket; each mount's control socket is made beside it.
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
        """By mountpoint: `chronicle.fuse.mountpoints.claim`. A successor inherits the claim; the last unmount releases
        it."""
        # With a random part: the host of a dead zygote must never reach another zygote's mount by this name.
        self._sockets = f"{socket_path}.{secrets.token_hex(4)}"
        self._serial = 0
        self._ending = False

    def mount(self, request: MountRequest, client: Connection, *, with_caller: bool) -> None:
        """Mount, and answer when it is up or has failed.

        A mount of the same workspace ends first, as a newer epoch takes it over; so does a failed or ending one at the
        path. A path where another workspace is in use is refused.

        Args:
            request: the order.
            client: gets the answer.
            with_caller: the mount ends with the client's process.

        Raises:
            StaleEpoch: a newer epoch has mounted the workspace.
            Conflict: another workspace is mounted there, of this store or another one.
            InvalidInput: the mountpoint cannot be one, or something else is mounted there.
            Ended: the zygote is ending.
            Unavailable: the client's process is gone.
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
            # One layer has one server, and one path one mount: the new one waits until the older one is revoked. Then
            # it starts over, as another one may have come first.
            older[0].successors.append(lambda: self._mount_after(request, client, with_caller=with_caller))
            self._revoke(older[0])
            return
        self._serial += 1
        socket_path = Path(f"{self._sockets}.{self._serial}.ctl")
        mount = MountRecord(request, connections.listen(socket_path), socket_path, awaiting_up=[client])
        try:
            if with_caller:
                mount.owner_pidfd = os.pidfd_open(client.pid())
            self._claim(request.mountpoint)
        except BaseException as error:
            mount.close()
            if isinstance(error, ProcessLookupError):
                raise Unavailable("the process that ordered this mount is gone") from None
            raise
        if with_caller:
            self._loop.watch(mount.owner_pidfd, lambda: self._owner_gone(mount))
        self._mounts[os.fspath(request.mountpoint)] = mount
        try:
            self._guard(mount)
        except (ChronicleError, OSError) as error:
            mount.failure = answer_error(error)["error"]
            self._forget(mount)
            return
        self._serve(mount)

    def unmount(self, mountpoint: str, client: Connection) -> None:
        """Close a mount in order, and answer when it is gone.

        Raises:
            NotFound: there is none.
        """
        mount = self._mounts.get(mountpoint)
        if mount is None:
            raise NotFound(f"this zygote has nothing mounted at {mountpoint}")
        mount.awaiting_end.append(client)
        self._close(mount)

    def describe(self) -> list[dict[str, object]]:
        """Return the answer to ``list``."""
        return [mount.describe() for mount in self._mounts.values()]

    def end(self) -> None:
        """Close every mount, and refuse new ones."""
        self._ending = True
        for mount in list(self._mounts.values()):
            self._close(mount)

    def is_empty(self) -> bool:
        """Say whether there is no mount in any state."""
        return not self._mounts

    def has_ended(self) -> bool:
        """Say whether `end` was called and the last mount is gone."""
        return self._ending and not self._mounts

    def forget_client(self, client: Connection) -> None:
        """Do not answer a client that is gone."""
        for mount in self._mounts.values():
            mount.forget_client(client)

    # -- from the order to being up ---------------------------------------------------------------------------------

    def _mount_after(self, request: MountRequest, client: Connection, *, with_caller: bool) -> None:
        """Mount after the end of a predecessor."""
        if client.fileno() < 0:  # it has disconnected
            return
        try:
            self.mount(request, client, with_caller=with_caller)
        except Exception as error:  # noqa: BLE001 - every client gets an answer
            client.send(answer_error(error))

    def _claim(self, mountpoint: Path) -> None:
        """Claim a mountpoint and check that it can be one. Does nothing if a predecessor holds the claim."""
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
        """Guard the directory below, whatever happens to the server."""
        guard.guard_mountpoint(mount.request.mountpoint, mount.request.source)

    def _serve(self, mount: MountRecord) -> None:
        """Start a server for a mount."""
        mount.state = State.STARTING
        process = mount.process = ServerProcess(
            mount.request,
            mount.listener,
            on_message=lambda message: self._hear(mount, message),
            on_exit=lambda: self._server_gone(mount, process),
        )
        self._processes.start(process)

    def _hear(self, mount: MountRecord, message: Message) -> None:
        """Handle a message of a mount's server."""
        if "up" in message:
            mount.base = message["up"]["base"]
            if mount.recovered is None:
                mount.recovered = message["up"]["recovered"]
            if mount.state is State.STARTING:
                mount.state = State.UP
            for client in mount.awaiting_up:
                client.send(answer_ok(mount.opened()))
            mount.awaiting_up = []
        elif "state" in message:
            base, turn = wire.ref_from_wire(message["state"]["base"]), message["state"]["turn"]
            spec = mount.request.spec
            mount.request = replace(
                mount.request, spec=replace(spec, base=base, turn=spec.turn if turn is None else turn)
            )
        elif "failed" in message:
            mount.failure = message["failed"]

    # -- to its end -------------------------------------------------------------------------------------------------

    def _owner_gone(self, mount: MountRecord) -> None:
        """Close a mount whose owner is gone."""
        self._loop.unwatch(mount.owner_pidfd)
        self._close(mount)

    def _close(self, mount: MountRecord) -> None:
        """Let a mount's server close its layer and end. A mount without a server is forgotten at once."""
        if mount.process is None:
            self._forget(mount)
        elif mount.state is not State.ENDING:
            mount.state = State.ENDING
            self._processes.close(mount.process)

    def _revoke(self, mount: MountRecord) -> None:
        """End a server whose layer is taken over: remaining users of the mount get errors from now on."""
        if mount.process is not None and mount.state is State.UP:
            mount.state = State.ENDING
            self._processes.cut(mount.process)
        else:
            self._close(mount)

    def _server_gone(self, mount: MountRecord, process: ServerProcess) -> None:
        """Unmount after a server's end, and restart or forget the mount."""
        mountpoint, code = mount.request.mountpoint, process.code
        if code == Exit.CLOSED and mount.state is State.UP and mountinfo.is_served(mountpoint):
            code = Exit.FAILED  # it is still mounted: its connection was aborted
        try:
            mounts.detach(mountpoint)
        except ChronicleError:
            log.exception("unmounting failed: %s", mountpoint)
        if mount.state is State.ENDING or code == Exit.CLOSED:
            self._forget(mount)
        elif code == Exit.ROLLED_BACK or process.was_lost:
            self._mount_again(mount)
        elif code != Exit.REFUSED and mount.may_restart():
            log.warning("mounting again: %s (exit code %s)", mountpoint, code)
            self._mount_again(mount)
        else:
            log.error("a mount failed for good: %s (exit code %s)", mountpoint, code)
            self._give_up(mount)

    def _mount_again(self, mount: MountRecord) -> None:
        self._guard_again(mount)
        self._serve(mount)

    def _guard_again(self, mount: MountRecord) -> None:
        """Guard after the end of a server, which may have been killed while the directory was open for it."""
        try:
            self._guard(mount)
        except (ChronicleError, OSError):
            log.exception("guarding failed: %s", mount.request.mountpoint)

    def _give_up(self, mount: MountRecord) -> None:
        """Let a mount fail for good. One that never was up is unmounted, as its client gets the error."""
        if mount.base is None:
            self._forget(mount)
            return
        self._guard_again(mount)
        mount.state, mount.process = State.FAILED, None
        mount.close_socket()
        self._fail_awaiting(mount)

    def _fail_awaiting(self, mount: MountRecord) -> None:
        """Answer the clients of a mount that will not come up."""
        ended = answer_error(Unavailable(f"the mount at {mount.request.mountpoint} ended before it was up"))
        for client in mount.awaiting_up:
            client.send(ended if mount.failure is None else {"error": mount.failure})
        mount.awaiting_up = []

    def _forget(self, mount: MountRecord) -> None:
        """Release a mount without a server, and make its successors."""
        path = os.fspath(mount.request.mountpoint)
        del self._mounts[path]
        self._loop.unwatch(mount.owner_pidfd)
        mount.close()
        for follow in mount.successors:
            follow()
        # Otherwise a successor has inherited guard and claim, or has failed and released both.
        if path not in self._mounts and path in self._claims:
            try:
                mounts.unmount(mount.request.mountpoint)
                self._claims.pop(path).close()
            except ChronicleError:  # it stays claimed, and can be mounted again
                log.exception("unmounting failed: %s", mount.request.mountpoint)
        self._fail_awaiting(mount)
        for client in mount.awaiting_end:
            client.send(answer_ok())
        if not self._mounts:
            self._emptied()
