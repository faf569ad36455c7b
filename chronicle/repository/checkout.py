"""Checkout: writes a commit's files into a plain directory, and reports progress."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from chronicle.blobs.readers import CachingReader
from chronicle.errors import InvalidInput
from chronicle.workspace.dir.restore import restore
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.trees.tree import Kind, entry_at, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.workspace.dir.restore import LeftOut
    from chronicle.workspace.port import TreeRef

__all__ = ["Amount", "Progress", "checkout", "count"]


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of files and bytes."""

    files: int = 0
    size_bytes: int = 0


class Progress(Protocol):
    """Receives the progress of a checkout."""

    def start(self, total: Amount) -> None:
        """Begin; ``total`` is what will be written."""

    def advance(self, size_bytes: int, files: int) -> None:
        """Record that so much more is written."""


def checkout(blobs: BlobStore, ref: TreeRef, target: Path, report: Callable[[int, int], None]) -> list[LeftOut]:
    """Write a commit's files into a new directory, with times, modes, links, attributes and owners.

    The directory appears when it is complete; after a failure or an interrupt nothing is left. Owners and devices are
    left out unless the user is root.

    Args:
        blobs: has the commit.
        ref: the commit.
        target: a missing or empty directory.
        report: called with the numbers of bytes and files that were written since its last call.

    Returns:
        the properties that were left out.

    Raises:
        InvalidInput: the target exists and is not an empty directory.
        NotFound, Corrupt, Unavailable: a blob could not be read.
        OSError: a file could not be written; its message is a sentence.
    """
    target = target.expanduser().absolute()
    target = target.resolve() if target.name == ".." else target.parent.resolve() / target.name
    if os.path.lexists(target) and not (target.is_dir() and not target.is_symlink() and not any(target.iterdir())):
        raise InvalidInput(f"{target} is there already and not an empty directory; name another one")
    reader = CachingReader(blobs)
    commit = read_root(reader, ref.oplog_id)
    left_out: list[LeftOut] = []
    temporary = target.parent / f".{target.name[:200]}.{secrets.token_hex(6)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        owner = os.geteuid(), os.getegid()
        restore(os.fsencode(temporary), reader, ref.tree_id, commit.root, {}, owner, report, left_out)
        root = entry_at(reader, ref.tree_id, b"")
        assert root is not None
        temporary.chmod(root.mode)
        os.utime(temporary, ns=(commit.root.mtime_ns, commit.root.mtime_ns))
        temporary.rename(target)
    except OSError as error:
        _remove(temporary)
        raise OSError(f"{target} cannot be made: {error.strerror or error}; make room, or name another one") from error
    except BaseException:
        _remove(temporary)
        raise
    return left_out


def count(blobs: BlobStore, ref: TreeRef) -> Amount:
    """Count the files and bytes of a commit."""
    files = size_bytes = 0
    for _, entry in walk(CachingReader(blobs), ref.tree_id):
        if entry.kind is Kind.FILE and entry.content is not None:
            files += 1
            size_bytes += entry.content.size
    return Amount(files, size_bytes)


def _remove(directory: Path) -> None:
    for path, _, _ in os.walk(directory):
        os.chmod(path, 0o700)  # noqa: PTH101 - a directory without write permission cannot be emptied
    shutil.rmtree(directory, ignore_errors=True)
