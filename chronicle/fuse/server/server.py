"""A mount server: one workspace's layer, its mount, and the commands of the workspace port, in one thread.

A server lives in a process forked by the zygote. It has three descriptors besides its layer's: the FUSE device, a
listening socket on which its host connects (it belongs to the zygote and outlives this process, so that connection
attempts wait while a server is replaced), and the channel to the zygote:

    server ─► zygote   {"up": {"base", "recovered"}} once mounted, or {"failed": {"type", "message"}};
                       {"state": {"base", "turn"}} before the command that changed it is answered;
                       {"ended": code} as its last message
    zygote ─► server   {"cut"}: revoke the mount and end;
                       {"hear"}: a probe without content; handling it is a heartbeat;
                       {"close"} and end of file: close in order; end of file alone: the zygote is dead

A server never unmounts while the zygote lives: one process knows the state of all mounts. When the zygote is dead, the
server closes its layer, unmounts and exits.

Commands run between requests; a seal interleaves requests that change nothing (`chronicle.fuse.transport.interleave`).
A host must not wait for the mount in the thread that waits for a command; the client guarantees that.
"""

from __future__ import annotations

import io
import logging
import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import MSG_DONTWAIT, MSG_PEEK
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from chronicle.control.connections import Acceptor, Connection
from chronicle.control.messages import answer_error, answer_ok
from chronicle.errors import ChronicleError, Conflict, InvalidInput, StorageRefused
from chronicle.fuse import wire
from chronicle.fuse.mountpoints import guard, stray_files
from chronicle.fuse.mountpoints.claim import claim_mountpoint
from chronicle.fuse.mountpoints.mounts import detach, unmount
from chronicle.fuse.server.request import Exit
from chronicle.fuse.transport.choice import make_session
from chronicle.workspace.history.oplog import ROOT_INO

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.server.engine import Served
    from chronicle.fuse.server.request import MountRequest
    from chronicle.fuse.transport.session import Session
    from chronicle.fuse.watchdog import Heartbeat
    from chronicle.workspace.layer.state.touched import Touched
    from chronicle.workspace.port import TreeRef

__all__ = ["serve"]

log = logging.getLogger(__name__)

_OPEN_VERSIONS: Final = 8
"""Old versions that are kept open for clients that read them piece by piece."""
_PIECE_LIMIT: Final = 4 * 1024 * 1024
_LAST_CLAIM_S: Final = 2.0
"""Wait for a dead zygote's claim on the mountpoint. The kernel may release it a moment after the zygote's connections.
In an orderly close there is no wait."""
_PEEK: Final = int(MSG_PEEK | MSG_DONTWAIT)
"""A plain number: arithmetic with enum members would cost each forked server memory of its own."""
_LAST_CLAIM_POLL_S: Final = 0.005


def serve(
    request: MountRequest,
    opener: Callable[[MountRequest, Heartbeat], Served],
    transport: Transport,
    heartbeat: Heartbeat,
    listener: socket.socket,
    channel: socket.socket,
) -> Exit:
    """Open a layer, mount it and serve it to the end of the mount.

    Returns:
        The exit code of the process.
    """
    zygote = Connection(channel)
    try:
        served = opener(request, heartbeat)
        session = make_session(
            transport,
            served.filesystem,
            request.mountpoint,
            heartbeat,
            source=request.source,
            allow_other=os.geteuid() == 0,
        )
        if _is_closed(channel):  # the zygote that claimed the mountpoint is gone
            return Exit.REFUSED
        if os.geteuid() == 0:
            session.mount()
        else:
            move = partial(stray_files.move_stray_files, filesystem=served.filesystem)
            with guard.opened(request.mountpoint, move):
                session.mount()
    except Exception as error:  # the host that waits gets any error
        if not isinstance(error, ChronicleError):
            log.exception("opening failed: %s", request.mountpoint)
        zygote.send({"failed": answer_error(error)["error"]})
        return Exit.REFUSED
    server = _Server(request.mountpoint, served, session, listener, zygote)
    return server.run()


def _is_closed(channel: socket.socket) -> bool:
    """Whether the other end of a connection is closed; sent data can still be received."""
    try:
        return not channel.recv(1, _PEEK)
    except BlockingIOError:
        return False


def _unmount_alone(mountpoint: Path, patience_s: float) -> None:
    """Unmount without a zygote, unless another process holds the claim for so long."""
    until = time.monotonic() + patience_s
    while True:
        with suppress(Conflict), claim_mountpoint(mountpoint):
            unmount(mountpoint)
            return
        if time.monotonic() >= until:
            return
        time.sleep(_LAST_CLAIM_POLL_S)


class _Server:
    """The mount's session, the host's connections and the channel to the zygote."""

    def __init__(
        self, mountpoint: Path, served: Served, session: Session[Any], listener: socket.socket, zygote: Connection
    ) -> None:
        self._mountpoint = mountpoint
        self._served = served
        self._engine = served.engine
        self._session = session
        self._acceptor = Acceptor(listener)
        self._zygote = zygote
        self._turn: int | None = None
        self._exit = Exit.CLOSED
        self._revoked: list[int] | None = None
        """The inodes whose cached pages must not be readable any more."""
        self._closing = False
        """Whether the zygote closes the mount in order, and unmounts."""
        self._orphaned = False
        self._versions: dict[tuple[str, int], BinaryIO] = {}
        self._commands: dict[str, Callable[[dict[str, Any]], object]] = {
            "ping": lambda _: self._state(),
            "begin_turn": self._begin_turn,
            "seal": lambda _: wire.ref_to_wire(self._engine.seal(self._session.interleave())),
            "adopt": self._adopt,
            "rollback": self._roll_back,
            "history": lambda arguments: [
                wire.iteration_to_wire(item) for item in self._engine.history(arguments["path"])
            ],
            "size": lambda arguments: self._version(arguments).seek(0, io.SEEK_END),
            "read": self._read,
        }
        self._changes = {"restore": self._restore, "move_to": self._move}
        """Commands that change files, and are answered when the kernel knows."""

    def run(self) -> Exit:
        """Serve until closed, revoked, rolled back, unmounted or failed."""
        self._session.watch(self._acceptor.fileno(), self._accept)
        self._session.watch(self._zygote.fileno(), self._hear_zygote)
        self._zygote.send({"up": self._state()})
        try:
            self._session.run()
        except Exception:  # noqa: BLE001 - logged by the session; the zygote mounts again
            self._exit = Exit.FAILED
        if self._revoked is not None:
            self._drop_caches(self._revoked)
        self._session.close()
        try:
            self._engine.close()
        except Exception:
            log.exception("closing the layer failed: %s", self._mountpoint)
        if self._orphaned:
            _unmount_alone(self._mountpoint, 0 if self._closing else _LAST_CLAIM_S)
        return self._exit

    def _state(self) -> dict[str, object]:
        """Return the base, and the recovered tree until the host is known to have it."""
        refs = {"base": self._engine.base, "recovered": self._engine.unreported}
        return {name: wire.ref_to_wire(ref) for name, ref in refs.items()}

    def _accept(self) -> None:
        peer = self._acceptor.accept()
        if peer is not None:
            self._session.watch(peer.fileno(), lambda: self._hear(peer))

    def _hear(self, peer: Connection) -> None:
        messages, is_open = peer.receive()
        for message in messages:
            if message.get("op") in self._changes:
                self._change(message, peer)
            elif not peer.send(self._answer(message)):
                is_open = False
        if not is_open:
            self._session.unwatch(peer.fileno())
            peer.close()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        command = self._commands.get(message.get("op", ""))
        if command is None:
            return answer_error(InvalidInput(f"a mount server has no operation {message.get('op')!r}"))
        try:
            return answer_ok(command(message))
        except Exception as error:  # noqa: BLE001 - logged if it is a bug, and answered
            return self._failed(message, error)

    def _failed(self, message: dict[str, Any], error: Exception) -> dict[str, Any]:
        if not isinstance(error, ChronicleError):
            log.error("%s failed: %s", message["op"], self._mountpoint, exc_info=error)
        return answer_error(error)

    def _hear_zygote(self) -> None:
        messages, is_open = self._zygote.receive()
        if any("cut" in message for message in messages):
            self._revoked = self._served.filesystem.known_inodes()
            self._session.stop()
            return
        self._closing = self._closing or any("close" in message for message in messages)
        if not is_open:
            # In an orderly close the zygote unmounts, but it may die before it has.
            self._orphaned = True
            self._session.stop()

    def _begin_turn(self, arguments: dict[str, Any]) -> None:
        self._engine.begin_turn(arguments["turn"])
        self._turn = arguments["turn"]
        self._report_state(self._engine.base)

    def _adopt(self, arguments: dict[str, Any]) -> None:
        ref = wire.ref_from_wire(arguments["ref"])
        if ref is None:
            raise InvalidInput("only a tree can be adopted")
        if ref == self._engine.sealed:
            # Reported before it is done. A server that opens this layer with the new base adopts the tree then; with
            # the old base it would take the adopted tree for one that was never committed. A tree that will be refused
            # is not reported: a server that opens the layer with an unknown base discards the layer's content.
            self._report_state(ref)
        try:
            self._engine.adopt(ref)
        except BaseException:
            self._report_state(self._engine.base)
            raise

    def _report_state(self, base: TreeRef | None) -> None:
        """Report to the zygote the base and turn for a restart after this process dies."""
        self._zygote.send({"state": {"base": wire.ref_to_wire(base), "turn": self._turn}})

    def _roll_back(self, _: dict[str, Any]) -> None:
        # No request is served from here on: nothing can be written until the end of the mount.
        self._revoked = self._served.filesystem.known_inodes()
        self._exit = Exit.FAILED  # unless it succeeds: after a restart the log tells the state of the layer
        self._session.stop()
        self._engine.rollback()
        self._exit = Exit.ROLLED_BACK

    def _change(self, message: dict[str, Any], peer: Connection) -> None:
        """Change files by a command, and answer when the kernel has dropped its caches."""
        try:
            touched = self._changes[message["op"]](message)
        except OSError as error:  # the disk or the quota
            peer.send(answer_error(StorageRefused(f"{message['op']} was refused: {error.strerror}")))
        except Exception as error:  # noqa: BLE001 - logged if it is a bug, and answered
            peer.send(self._failed(message, error))
        else:
            self._invalidate(touched, peer)

    def _restore(self, arguments: dict[str, Any]) -> Touched:
        self._engine.seal(self._session.interleave())  # the first part of a restore, and nearly all of its time
        return self._engine.restore(wire.ref_from_wire(arguments["then"]), os.fsencode(arguments["path"]))

    def _move(self, arguments: dict[str, Any]) -> Touched:
        ref = wire.ref_from_wire(arguments["ref"])
        if ref is None:
            raise InvalidInput("the content can be made that of a tree only")
        return self._engine.move_to(ref)

    def _invalidate(self, touched: Touched, peer: Connection) -> None:
        """Make the kernel drop what it has cached of what changed; then answer with `Touched.open_files`."""

        def answer() -> None:
            peer.send(answer_ok(list(touched.open_files)))  # does nothing if the peer is gone

        known = {ROOT_INO, *self._served.filesystem.known_inodes()}  # the kernel knows none of the new inodes
        names = [name for name in touched.names if name[0] in known]
        self._session.invalidate(names, [inode for inode in touched.inodes if inode in known], answer)

    def _version(self, arguments: dict[str, Any]) -> BinaryIO:
        """Return an old version, open; the next request is most likely for its next piece."""
        key = (arguments["path"], arguments["iteration"])
        version = self._versions.pop(key, None)
        if version is None:
            version = self._engine.at(*key)
            if len(self._versions) >= _OPEN_VERSIONS:
                self._versions.pop(next(iter(self._versions))).close()
        self._versions[key] = version
        return version

    def _read(self, arguments: dict[str, Any]) -> bytes:
        version = self._version(arguments)
        version.seek(arguments["offset"])
        return version.read(min(arguments["size"], _PIECE_LIMIT))

    def _drop_caches(self, inodes: list[int]) -> None:
        """Fail every handle and mapping of this mount, and drop the pages that the kernel has cached."""
        try:
            detach(self._mountpoint)
        except ChronicleError:
            log.exception("unmounting failed: %s", self._mountpoint)
        self._session.drop_pages(inodes)
