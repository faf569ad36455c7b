"""The api presentation: a workspace that is used by calls in the process, without a mount or a directory of files.

It is a layer (`chronicle.workspace.layer.layer`) with paths for names: writes survive the death of the process, each
close makes a version, and trees, histories and ids are those of the other presentations. A process has no other users,
so modes are stored and not enforced. Symlinks are followed within the workspace.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Self

from chronicle.clock import SystemClock
from chronicle.errors import Unavailable
from chronicle.workspace.api.file import LayerFile, Mode, wrapped
from chronicle.workspace.dir.scan import HIDDEN
from chronicle.workspace.layer.history_reader import encode_path
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.apply import RENAME_EXCHANGE, RENAME_NOREPLACE
from chronicle.workspace.layer.state.node import DeviceNode, DirNode, FileNode, LinkNode, kind_of
from chronicle.workspace.paths import follow
from chronicle.workspace.trees.tree import EMPTY, MAX_NAME_BYTES, Kind, check_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.clock import Clock
    from chronicle.workspace.layer.layer import Layer
    from chronicle.workspace.layer.state.node import Node
    from chronicle.workspace.port import Iteration, LayerSpec, TreeRef, Usage

__all__ = ["ApiWorkspace", "Status", "open_api_workspace"]

_FILE_MODE: Final = 0o644
_DIR_MODE: Final = 0o755


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an entry, as of stat(2)."""

    kind: Kind
    mode: int
    """Permission bits with setuid, setgid and sticky."""
    size: int
    """Bytes, as in ``st_size``."""
    ino: int
    links: int
    uid: int
    gid: int
    mtime_ns: int
    """Epoch nanoseconds."""
    target: str | None = None
    """Of a symlink."""
    device: int = 0
    """Of a device: its number, as in ``st_rdev``."""


def open_api_workspace(spec: LayerSpec, blobs: BlobStore, clock: Clock | None = None) -> ApiWorkspace:
    """Open a workspace for use by calls. This process holds its lock until it is closed.

    Args:
        spec: which workspace, from which base, under which epoch.
        blobs: the blob store.
        clock: tells the time.

    Raises:
        InvalidInput, StaleEpoch, Conflict, Corrupt, UnsupportedFormat, Unavailable: as `open_layer` says.
    """
    layer, recovered = open_layer(spec, blobs, clock if clock is not None else SystemClock())
    return ApiWorkspace(layer, recovered)


class ApiWorkspace:
    """An open workspace. Paths are those of `chronicle.workspace.port`. Safe to share between threads.

    Errors of use are ``OSError`` with the errno that a file system gives. Made by `open_api_workspace`.
    """

    def __init__(self, layer: Layer, recovered: TreeRef | None) -> None:
        self._layer = layer
        self._lock = threading.RLock()
        self._closed = False
        self.recovered = recovered
        """See `chronicle.workspace.port.Opened`."""

    # -- files ----------------------------------------------------------------------------------------------------

    def open(
        self,
        path: str,
        mode: str = "rb",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open a file as Python's ``open`` does; text is UTF-8 by default. Closing it makes a version.

        Raises:
            InvalidInput: the mode is malformed.
            OSError: as of a file system.
        """
        wanted = Mode(mode)
        with self._lock:
            self._layer.evict_surplus()
            place, node = self._follow(path)
            if wanted.kind == "x" and node is not None:
                raise FileExistsError(errno.EEXIST, "exists", path)
            if node is None:
                if wanted.kind == "r":
                    raise _absent(path)
                handle = self._layer.create(*self._place(place, path), _FILE_MODE, *self._ids)
            elif isinstance(node, FileNode):
                handle = self._layer.open(node, truncate=wanted.kind == "w")
            elif isinstance(node, DirNode):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            else:
                raise OSError(errno.ENXIO, f"a {kind_of(node).value} cannot be opened here", path)
            raw = LayerFile(self._layer, handle, wanted, self._lock, path)
        return wrapped(raw, wanted, encoding, errors, newline)

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        with self.open(path) as file:
            data: bytes = file.read()
            return data

    def write(self, path: str, data: bytes) -> None:
        """Replace a file's content, or create the file."""
        with self.open(path, "wb") as file:
            file.write(data)

    def truncate(self, path: str, size: int) -> None:
        """Set a file's size."""
        with self._lock:
            node = self._node(path)
            if not isinstance(node, FileNode):
                raise OSError(errno.EISDIR if isinstance(node, DirNode) else errno.EINVAL, "not a file", path)
            self._layer.truncate(node, size)

    # -- names ----------------------------------------------------------------------------------------------------

    def status(self, path: str, *, follow_links: bool = True) -> Status:
        """Return the status of a path, ``""`` being the root."""
        with self._lock:
            self._layer.evict_surplus()
            return _status(self._node(path, last=follow_links))

    def exists(self, path: str) -> bool:
        """Whether a path exists, symlinks followed."""
        with self._lock:
            try:
                return self._follow(path)[1] is not None
            except OSError:
                return False

    def list(self, path: str = "") -> list[tuple[str, Status]]:
        """Return the entries of a directory, by name."""
        with self._lock:
            self._layer.evict_surplus()
            node = self._node(path)
            if not isinstance(node, DirNode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            return [(os.fsdecode(name), _status(below)) for name, below in self._layer.entries(node)]

    def walk(self, path: str = "") -> Iterator[tuple[str, Status]]:
        """Yield every path below a directory, each directory before its content. Symlinks are not followed."""
        for name, status in self.list(path):
            below = f"{path}/{name}" if path else name
            yield below, status
            if status.kind is Kind.DIR:
                yield from self.walk(below)

    def make_directory(self, path: str, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a directory, with ``parents`` its missing parents too."""
        with self._lock:
            parent = path.rpartition("/")[0]
            if parents and parent and not self.exists(parent):
                self.make_directory(parent, parents=True, exist_ok=True)
            place, node = self._follow(path)
            if node is None:
                self._layer.make(*self._place(place, path), stat.S_IFDIR | _DIR_MODE, *self._ids)
            elif not (exist_ok and isinstance(node, DirNode)):
                raise FileExistsError(errno.EEXIST, "exists", path)

    def remove(self, path: str) -> None:
        """Remove a file, symlink or special file."""
        with self._lock:
            place, _ = self._existing(path)
            self._layer.unlink(*self._place(place, path))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with self._lock:
            place, _ = self._existing(path)
            self._layer.rmdir(*self._place(place, path))

    def remove_tree(self, path: str) -> None:
        """Remove a path and its content."""
        with self._lock:
            _, node = self._existing(path)
            if not isinstance(node, DirNode):
                self.remove(path)
                return
            for below, status in reversed(list(self.walk(path))):
                self.remove_directory(below) if status.kind is Kind.DIR else self.remove(below)
            self.remove_directory(path)

    def rename(self, old: str, new: str, *, replace: bool = True, exchange: bool = False) -> None:
        """Rename an entry; an existing target is replaced, or exchanged with it.

        Raises:
            OSError: EEXIST: the target exists, and ``replace`` is false.
        """
        flags = RENAME_EXCHANGE if exchange else 0 if replace else RENAME_NOREPLACE
        with self._lock:
            source, _ = self._existing(old)
            target, _ = self._follow(new, last=False)
            self._layer.rename(*self._place(source, old), *self._place(target, new), flags)

    def link(self, old: str, new: str) -> None:
        """Create a hard link."""
        with self._lock:
            _, node = self._existing(old)
            place, _ = self._follow(new, last=False)
            self._layer.link(node, *self._place(place, new))

    def symlink(self, target: str, path: str) -> None:
        """Create a symlink."""
        with self._lock:
            place, _ = self._follow(path, last=False)
            mode = stat.S_IFLNK | 0o777
            self._layer.make(*self._place(place, path), mode, *self._ids, os.fsencode(target))

    def content_id(self, path: str) -> str | None:
        """Return the id of a file's content, of its last version while it is written; ``None`` without content."""
        with self._lock:
            place, node = self._follow(path)
            if node is None:
                raise _absent(path)
            if isinstance(node, FileNode):
                if node.content is not None and not node.dirty:
                    return node.content.id
                last = self._layer.history_view().last(place)
                return self._layer.histories.content_id(last) if last is not None else None
            return None

    def make_node(self, path: str, mode: int, device: int = 0) -> None:
        """Create a FIFO, a socket's name or a device, by the kind in ``mode``; see mknod(2)."""
        with self._lock:
            place, _ = self._follow(path, last=False)
            parent, name = self._place(place, path)
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                self._layer.make_device(parent, name, mode, *self._ids, device)
            elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                self._layer.make(parent, name, mode, *self._ids)
            else:
                raise OSError(errno.EINVAL, "files, directories and symlinks are made by calls of their own", path)

    # -- attributes -----------------------------------------------------------------------------------------------

    def set_mode(self, path: str, mode: int) -> None:
        """Set permission bits."""
        with self._lock:
            node = self._node(path)
            self._layer.set_mode(node, mode & 0o7777, node.uid, node.gid)

    def set_mtime(self, path: str, mtime_ns: int) -> None:
        """Set the time of modification, epoch nanoseconds."""
        with self._lock:
            node = self._node(path)
            self._layer.set_times(node, node.atime_ns, mtime_ns)

    def xattrs(self, path: str) -> dict[str, bytes]:
        """Return extended attributes."""
        with self._lock:
            return {os.fsdecode(name): value for name, value in self._node(path).xattrs.items()}

    def set_xattr(self, path: str, name: str, value: bytes | None) -> None:
        """Set an extended attribute, or remove it."""
        with self._lock:
            self._layer.set_xattr(self._node(path), os.fsencode(name), value)

    @property
    def usage(self) -> Usage:
        """Its usage."""
        with self._lock:
            return self._layer.usage

    # -- turns and history ----------------------------------------------------------------------------------------

    @property
    def base(self) -> TreeRef:
        """The last adopted (or opened) tree."""
        return self._layer.base

    @property
    def reader(self) -> BlobReader:
        """Reads its trees and histories."""
        return self._layer.reader

    def begin_turn(self, turn: int) -> None:
        """See `chronicle.workspace.port.Workspace.begin_turn`."""
        with self._lock:
            self._layer.begin_turn(turn)

    def seal(self) -> TreeRef:
        """See `chronicle.workspace.port.Workspace.seal`."""
        with self._lock:
            return self._layer.seal()

    def adopt(self, ref: TreeRef) -> None:
        """See `chronicle.workspace.port.Workspace.adopt`."""
        with self._lock:
            self._layer.adopt(ref)

    def move_to(self, ref: TreeRef) -> None:
        """See `chronicle.workspace.port.Workspace.move_to`."""
        with self._lock:
            self._layer.move_to(ref)

    def rollback(self) -> None:
        """Discard all changes since the base; open files answer ESTALE from then on."""
        with self._lock:
            self._layer.rollback()

    def restore(self, then: TreeRef | None, path: str = "") -> None:
        """Restore a path, or everything, from a commit; see `chronicle.workspace.layer.layer.Layer.restore`."""
        with self._lock:
            self._layer.restore(then, encode_path(path))

    def history(self, path: str) -> Sequence[Iteration]:
        """See `chronicle.workspace.port.Workspace.history`."""
        with self._lock:
            return self._layer.history(path)

    def at(self, path: str, iteration: int) -> BinaryIO:
        """See `chronicle.workspace.port.Workspace.at`."""
        with self._lock:
            return self._layer.at(path, iteration)

    def close(self) -> None:
        """Release the layer, which stays as a warm cache; nothing is sealed or lost. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._layer.close()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # -- internals ------------------------------------------------------------------------------------------------

    @property
    def _ids(self) -> tuple[int, int]:
        return os.geteuid(), os.getegid()

    def _follow(self, path: str, *, last: bool = True) -> tuple[bytes, Node | None]:
        if self._closed:
            raise Unavailable("this workspace is closed")
        root: Node = self._layer.root
        return follow(root, encode_path(path), self._child, _target, last=last)

    def _child(self, node: Node, name: bytes) -> Node | None:
        if not isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", os.fsdecode(name))
        return self._layer.lookup(node, name) if node.tree != EMPTY or name in node.children else None

    def _node(self, path: str, *, last: bool = True) -> Node:
        node = self._follow(path, last=last)[1]
        if node is None:
            raise _absent(path)
        return node

    def _existing(self, path: str) -> tuple[bytes, Node]:
        """Return an existing path without symlinks, a last one not followed, and its node."""
        place, node = self._follow(path, last=False)
        if node is None:
            raise _absent(path)
        if not place:
            raise OSError(errno.EBUSY, "the root of a workspace stays where it is", path)
        return place, node

    def _place(self, place: bytes, path: str) -> tuple[DirNode, bytes]:
        """Return the directory and the name of a path without symlinks."""
        directory, _, name = place.rpartition(b"/")
        parent = self._layer.resolve(directory)
        if not isinstance(parent, DirNode) or not name:
            raise FileExistsError(errno.EEXIST, "exists", path)
        if not directory and name == HIDDEN:
            raise OSError(errno.EROFS, "this name is kept for the history of mounted workspaces", path)
        if len(name) <= MAX_NAME_BYTES:  # the layer refuses longer ones with the errno that the kernel has
            check_name(name)
        return parent, name


def _status(node: Node) -> Status:
    target = os.fsdecode(node.target) if isinstance(node, LinkNode) else None
    return Status(
        kind_of(node),
        stat.S_IMODE(node.mode),
        node.size,
        node.ino,
        node.nlink,
        node.uid,
        node.gid,
        node.mtime_ns,
        target,
        node.device if isinstance(node, DeviceNode) else 0,
    )


def _target(node: Node) -> bytes | None:
    return node.target if isinstance(node, LinkNode) else None


def _absent(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such file or directory in the workspace", path)
