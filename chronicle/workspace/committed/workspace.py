"""A committed workspace: its histories and the versions of its files, from the blob store alone.

Nothing is opened, locked or created on this machine; uncommitted changes are not visible.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, BinaryIO

from chronicle.errors import NotFound
from chronicle.workspace.content import content
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.history.view import HistoryView
from chronicle.workspace.layer.history_reader import encode_path, iteration_of
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
        if ref is None:
            self._view = HistoryView(reader, None, 0, {}, {}, ())
        else:
            root = read_root(reader, ref.oplog_id)
            self._view = HistoryView(reader, root.histories, root.moved_seq, {}, {}, root.gaps)

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations; see `chronicle.workspace.port.Workspace.history`."""
        with self._lock:
            found = self._view.records(encode_path(path))
        if not found:
            raise NotFound(f"{path!r} never existed")
        return [iteration_of(record) for record in found]

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration; see `chronicle.workspace.port.Workspace.at`."""
        raw = encode_path(path)
        with self._lock:
            record = self._view.find(raw, iteration)
            if record is None or record.deleted:
                raise self._view.missing(raw, iteration)
        if record.content is not None:
            return content.open(self._reader, record.content)
        if record.target is not None:
            return io.BytesIO(record.target)
        raise NotFound("a version of a directory has no content of its own")
