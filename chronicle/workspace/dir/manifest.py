"""The manifest of a plain directory, stored beside it: the result of its last scan, and its ownership.

On disk, in the workspace's directory of layers, each file put in place atomically and durably::

    dir     the scan of the last seal, and which commits are the base and the last seal
    owned   the directory's path, its epoch, and whether it was ever complete

The first only saves time and serves uncommitted changes: if it is lost or damaged, the second proves that the directory
belongs to the workspace, and it is scanned in full. A file is a version, a checksum of the body, and the body.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgpack

from chronicle.errors import Corrupt, UnsupportedFormat
from chronicle.system.atomic_files import replacing, sync_directory, write_all
from chronicle.system.boot import boot_id
from chronicle.workspace.dir.scan import Index, Seen, decode_index, encode_index
from chronicle.workspace.history import attributes
from chronicle.workspace.layer.disk.log_records import pack_ref, unpack_ref
from chronicle.workspace.trees import tree

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.history.oplog import OplogRoot
    from chronicle.workspace.port import TreeRef

__all__ = ["Manifest", "Ownership", "committed_index", "make_durably"]

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Ownership:
    """The ownership of a directory by the workspace."""

    root: bytes
    epoch: int
    complete: bool
    """See `Manifest`."""

    def save(self, home: Path) -> None:
        """Store it, durably."""
        _save(home / "owned", msgpack.packb((self.root, self.epoch, self.complete)))

    @classmethod
    def load(cls, home: Path) -> Ownership | None:
        """Return the stored ownership, None if there is none or it is damaged.

        Raises:
            UnsupportedFormat: written by a newer version.
        """
        try:
            fields = _load(home / "owned")
        except Corrupt:
            return None
        return cls(*fields) if fields is not None else None


@dataclass(slots=True)
class Manifest:
    """The manifest of the directory."""

    root: bytes
    epoch: int
    base: TreeRef | None
    sealed: TreeRef | None
    """The last seal, to which the index belongs."""
    complete: bool
    """Whether the directory was ever a complete copy of `sealed`; false while it is being restored."""
    index: Index = field(default_factory=dict)
    floors: dict[bytes, int] = field(default_factory=dict)
    """By path, the highest number of versions that were rolled back."""
    recovered: TreeRef | None = None
    """The uncommitted content that an opening replaced, until `Workspace.begin_turn` acknowledges it."""

    def save(self, home: Path) -> None:
        """Replace the stored manifest, durably."""
        fields = (
            self.root,
            self.epoch,
            pack_ref(self.base),
            pack_ref(self.sealed),
            self.complete,
            encode_index(self.index),
            self.floors,
            boot_id().encode(),
            pack_ref(self.recovered),
        )
        _save(home / "dir", msgpack.packb(fields))

    @classmethod
    def load(cls, home: Path) -> Manifest | None:
        """Return the stored manifest, None without one.

        Raises:
            UnsupportedFormat: written by a newer version.
            Corrupt: it cannot be read.
        """
        fields = _load(home / "dir")
        if fields is None:
            return None
        try:
            root, epoch, base, sealed, complete, index, floors, boot, recovered = fields
            seen = decode_index(index)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise Corrupt(f"{home / 'dir'} cannot be read") from error
        if boot != boot_id().encode():  # a file may have lost content, but not its times
            seen = {path: replace(one, racy=True) for path, one in seen.items()}
        return cls(root, epoch, unpack_ref(base), unpack_ref(sealed), complete, seen, floors, unpack_ref(recovered))


def _save(path: Path, body: bytes) -> None:
    with replacing(path, path.with_suffix(".new")) as fresh:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, msgpack.packb((FORMAT, zlib.crc32(body), body)))
            os.fsync(fd)
        finally:
            os.close(fd)
    sync_directory(path.parent)


def _load(path: Path) -> tuple[Any, ...] | None:
    try:
        version, *rest = msgpack.unpackb(path.read_bytes(), use_list=False)
        if version == FORMAT:
            check, body = rest
            if zlib.crc32(body) == check:
                fields: tuple[Any, ...] = msgpack.unpackb(body, use_list=False)
                return fields
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt(f"{path} cannot be read") from error
    if not isinstance(version, int) or version < FORMAT + 1:
        raise Corrupt(f"{path} is damaged")
    raise UnsupportedFormat(f"{path} has format {version}; this code reads up to {FORMAT}")


def committed_index(reader: BlobReader, commit: OplogRoot) -> Index:
    """Return the index of a complete copy of a commit; all entries are racy, so a scan reads every file."""
    attrs = dict(attributes.walk(reader, commit.root.below))
    index: Index = {}
    for path, entry in tree.walk(reader, commit.tree_id):
        attr = attrs[path]
        # Negative, so that no file of the directory matches.
        index[path] = Seen(
            replace(entry, subtree=None, link=None), -attr.ino, attr.links, attr.mtime_ns, attr.ctime_ns, racy=True
        )
    return index


def make_durably(directory: Path) -> None:
    """Create a directory and its parents, durable against a loss of power."""
    if not directory.is_dir():
        make_durably(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)
