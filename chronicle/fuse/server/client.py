"""The host's side of a mounted workspace: the workspace port over a Unix socket to the mount server.

No call hangs: each has a deadline, after which it fails with `Unavailable`. When the server dies during a call, the
zygote starts another one on the same layer, and the call is repeated: all calls are idempotent. The host must not serve
or wait for the mount in the calling thread, and never forks a server itself: a process that waits for its own mount
with the interpreter's lock held (a page fault, ``dlopen``) hangs for good.
"""

from __future__ import annotations

import io
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from chronicle.control.connections import ControlClient
from chronicle.control.messages import Ended
from chronicle.errors import ChronicleError, NotFound, Unavailable
from chronicle.fuse import wire
from chronicle.system.raw_file import RawFile
from chronicle.workspace.port import Opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.workspace.port import Iteration, LayerSpec, TreeRef

__all__ = ["FuseWorkspace", "attach_fuse_workspace", "list_mounts", "open_fuse_workspace", "unmount_workspace"]

_MOUNT_DEADLINE_S: Final = 60.0
"""Recovering a large layer takes longer than the 15 ms of a small one."""
_CALL_DEADLINE_S: Final = 30.0
_SEAL_DEADLINE_S: Final = 900.0
"""Compression and storage run at some 100 MB/s; a turn that wrote 50 GB may be sealed."""
_ATTEMPTS: Final = 3
"""Attempts at a call when servers die during it."""
_PIECE: Final = 1024 * 1024


def open_fuse_workspace(
    zygote_socket: Path,
    spec: LayerSpec,
    blobs_url: str,
    mountpoint: Path,
    *,
    with_caller: bool = True,
    source: str = "chronicle",
) -> Opened:
    """Mount a workspace and return it; its files are readable at once.

    Args:
        zygote_socket: where the node's zygote listens.
        spec: the workspace, its tree and the epoch. A mount of an older epoch is revoked first.
        blobs_url: the blob store, as fsspec names it.
        mountpoint: an empty directory, made if it is missing; the workspace's `root`.
        with_caller: unmount when the calling process ends, however it ends.
        source: the mount's device, as the system shows it; ASCII without commas.

    Raises:
        StaleEpoch: a newer epoch has it mounted here.
        InvalidInput: the mountpoint cannot be used.
        Conflict: another workspace is mounted there.
        Ended: there is no zygote, or it is ending, and this mount with it.
        Unavailable: the zygote or the new server does not answer, or mounting failed.
        ChronicleError: the layer could not be opened.
    """
    request = {
        "spec": wire.spec_to_wire(spec),
        "blobs_url": blobs_url,
        "mountpoint": os.fspath(mountpoint.absolute()),
        "with_caller": with_caller,
        "source": source,
    }
    answer = _ask_zygote(zygote_socket, "mount", _MOUNT_DEADLINE_S, **request)
    base = wire.ref_from_wire(answer["base"])
    if base is None:
        raise Unavailable("the mount server named no base")
    recovered = wire.ref_from_wire(answer["recovered"])
    workspace = FuseWorkspace(zygote_socket, Path(answer["control"]), mountpoint.absolute(), base, recovered)
    return Opened(workspace, recovered)


def attach_fuse_workspace(zygote_socket: Path, workspace_id: str) -> FuseWorkspace | None:
    """Return a workspace that a zygote has mounted already, to be used beside the process that mounted it.

    ``None`` if it is not mounted, or has failed.

    Raises:
        Ended: the zygote or the mount has ended, or is ending; it may be mounted again.
        Unavailable: the zygote or the mount server does not answer.
    """
    for mount in list_mounts(zygote_socket):
        if mount["workspace_id"] == workspace_id and mount["state"] != "failed":
            control_socket = Path(str(mount["control"]))
            caller = ControlClient(control_socket, _CALL_DEADLINE_S)
            try:
                state = caller.call("ping", _CALL_DEADLINE_S)
            except ConnectionError as error:
                raise Ended(f"the mount at {mount['mountpoint']} has ended") from error
            except OSError as error:
                raise Unavailable(f"the mount at {mount['mountpoint']} does not answer") from error
            finally:
                caller.close()
            base = wire.ref_from_wire(state["base"])
            if base is not None:
                root = Path(str(mount["mountpoint"]))
                recovered = wire.ref_from_wire(state["recovered"])
                return FuseWorkspace(zygote_socket, control_socket, root, base, recovered)
    return None


def unmount_workspace(zygote_socket: Path, mountpoint: Path) -> None:
    """Unmount a zygote's mount, and return when it is gone. The layer stays.

    Raises:
        NotFound: the zygote has nothing mounted there.
        Ended: there is no zygote, or it has ended meanwhile.
        Unavailable: the zygote does not answer.
    """
    _ask_zygote(zygote_socket, "unmount", _CALL_DEADLINE_S, mountpoint=os.fspath(mountpoint.absolute()))


def list_mounts(zygote_socket: Path) -> list[dict[str, object]]:
    """Return a zygote's mounts: ``mountpoint, control, workspace_id, epoch, state, pid, restarts`` each.

    ``pid`` is 0 while the serving process is unknown; the mount may be up for a moment by then.
    """
    mounts: list[dict[str, object]] = _ask_zygote(zygote_socket, "list", _CALL_DEADLINE_S)
    return mounts


def _ask_zygote(zygote_socket: Path, op: str, deadline_s: float, **arguments: object) -> Any:
    try:
        caller = ControlClient(zygote_socket, deadline_s)
        try:
            return caller.call(op, deadline_s, **arguments)
        finally:
            caller.close()
    except OSError as error:  # TimeoutError and ConnectionError among them
        kind = Ended if isinstance(error, ConnectionError) else Unavailable
        raise kind(f"the mount service at {zygote_socket} did not answer {op!r} ({type(error).__name__})") from error


class FuseWorkspace:
    """A mounted workspace, as its host sees it. Calls from several threads wait for each other.

    `open_fuse_workspace` and `attach_fuse_workspace` make it.
    """

    def __init__(
        self, zygote_socket: Path, control_socket: Path, root: Path, base: TreeRef, recovered: TreeRef | None
    ) -> None:
        self._zygote_socket = zygote_socket
        self._control_socket = control_socket
        self._root = root
        self._base = base
        self.recovered = recovered
        """See `chronicle.workspace.port.Opened`."""
        self._caller: ControlClient | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def root(self) -> Path:
        """The mountpoint."""
        return self._root

    @property
    def base(self) -> TreeRef:
        """The last adopted (or opened) tree."""
        return self._base

    def begin_turn(self, turn: int) -> None:
        """Set the turn of the following changes."""
        self._call("begin_turn", turn=turn)

    def seal(self) -> TreeRef:
        """Make a tree of the layer's content, durable in the blob store when this returns."""
        ref = wire.ref_from_wire(self._call("seal", _SEAL_DEADLINE_S))
        if ref is None:
            raise Unavailable("the mount server did not name the tree it sealed")
        return ref

    def adopt(self, ref: TreeRef) -> None:
        """Make a sealed tree the base."""
        self._call("adopt", ref=wire.ref_to_wire(ref))
        self._base = ref

    def move_to(self, ref: TreeRef) -> None:
        """Make the content that of a tree which was sealed on top of the base, below all who use the mount."""
        self._ask_for_sizes(self._call("move_to", _SEAL_DEADLINE_S, ref=wire.ref_to_wire(ref)))

    def rollback(self) -> None:
        """Discard everything since the base. `root` is another mount when this returns; handles of the old one fail."""
        with self._lock:
            self._attempt("rollback", _SEAL_DEADLINE_S, {})
            # The old server is ending: a new connection waits for its successor.
            self._disconnect()
            self._attempt("ping", _MOUNT_DEADLINE_S, {})

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations, oldest first.

        Raises:
            NotFound: the path never existed.
        """
        return [wire.iteration_from_wire(item) for item in self._call("history", path=path)]

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration; it is fetched as it is read.

        Raises:
            NotFound: no such path or iteration, or the iteration is a deletion.
        """
        size = self._call("size", path=path, iteration=iteration)
        return cast("BinaryIO", io.BufferedReader(_OldVersion(self, path, iteration, size), _PIECE))

    def read_version(self, path: str, iteration: int, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes of an old version; fewer only at its end, or beyond some MiB at once."""
        data: bytes = self._call("read", path=path, iteration=iteration, offset=offset, size=size)
        return data

    def restore(self, then: TreeRef | None, path: bytes = b"") -> None:
        """Restore a path, or everything, from a commit; see `chronicle.workspace.layer.layer.Layer.restore`.

        Open files show the restored content.
        """
        arguments = {"then": wire.ref_to_wire(then), "path": os.fsdecode(path)}
        self._ask_for_sizes(self._call("restore", _SEAL_DEADLINE_S, **arguments))

    def _ask_for_sizes(self, paths: Sequence[bytes]) -> None:
        """Have the kernel learn the sizes of open files that changed: nothing else moves the place where it appends."""
        for path in paths:
            with suppress(OSError):  # the mount was replaced, and the open files with it
                os.lstat(os.fsencode(self._root) + b"/" + path)

    def detach(self) -> None:
        """Disconnect without unmounting. Does nothing after `close`."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def close(self) -> None:
        """Unmount and disconnect; the layer stays on the node. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._disconnect()
        try:
            unmount_workspace(self._zygote_socket, self._root)
        except NotFound:
            return

    def _call(self, op: str, deadline_s: float = _CALL_DEADLINE_S, **arguments: object) -> Any:
        with self._lock:
            return self._attempt(op, deadline_s, arguments)

    def _attempt(self, op: str, deadline_s: float, arguments: dict[str, object]) -> Any:
        """Make a call, with the lock held; repeat it if the server died and was replaced."""
        if self._closed:
            raise Unavailable("this workspace is closed")
        until = time.monotonic() + deadline_s
        reason: Exception | None = None
        for _ in range(_ATTEMPTS):
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                if self._caller is None:
                    self._caller = ControlClient(self._control_socket, left)
                return self._caller.call(op, left, **arguments)
            except ConnectionError as error:  # the server died
                self._disconnect()
                reason = error
            except OSError as error:  # no answer in time, or no socket: the mount is gone
                self._disconnect()
                reason = error
                break
            except ChronicleError:
                raise
        raise Unavailable(
            f"the mount at {self._root} did not answer {op!r} ({type(reason).__name__}: {reason})"
        ) from reason

    def _disconnect(self) -> None:
        if self._caller is not None:
            self._caller.close()
            self._caller = None


class _OldVersion(RawFile):
    """Reads an old version piece by piece over the control socket."""

    def __init__(self, workspace: FuseWorkspace, path: str, iteration: int, size: int) -> None:
        super().__init__()
        self._workspace = workspace
        self._path = path
        self._iteration = iteration
        self._length = size

    def _size(self) -> int:
        return self._length

    def _read(self, size: int) -> bytes:
        return self._workspace.read_version(self._path, self._iteration, self._at, size)
