"""A committed workspace: its histories and the versions of its files, from the blob store alone.

Nothing is opened, locked or created on this machine; uncommitted changes are not visible.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, BinaryIO

from chronicle.workspace.history.oplog import first_root, read_root
from chronicle.workspace.history.view import HistoryView
from chronicle.workspace.layer.history_reader import iterations_of, open_at
from chronicle.workspace.trees.tree import EMPTY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.port import Iteration, TreeRef

__all__ = ["CommittedWorkspace"]


class CommittedWorkspace:
    """The reading half of `chronicle.workspace.port.Workspace`, of a commit. Safe to share between threads.

    Args:
        reader: reads the blobs.
        ref: the commit; ``None`` for a workspace without any.
    """

    def __init__(self, reader: BlobReader, ref: TreeRef | None) -> None:
        self.tree_id = ref.tree_id if ref is not None else EMPTY
        self._reader = reader
        self._lock = threading.Lock()  # a view caches what it has read, and belongs to one thread at a time
        self._view = HistoryView(reader, read_root(reader, ref.oplog_id) if ref is not None else first_root(0))

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations; see `chronicle.workspace.port.Workspace.history`."""
        with self._lock:
            return iterations_of(self._view, path)

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration; see `chronicle.workspace.port.Workspace.at`."""
        with self._lock:
            return open_at(self._reader, self._view, path, iteration)
