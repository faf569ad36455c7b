"""Removing data files of committed content beyond the limit; the blob store has what they hold.

`chronicle.workspace.layer.disk.warm_files` says which go first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.workspace.layer.state.node import FileNode

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.state.handle import Handle
    from chronicle.workspace.layer.state.layer_state import LayerState

__all__ = ["WarmCache"]


class WarmCache:
    """The clean data files of an open layer.

    Args:
        state: says which files are clean.
        files: the layer's files on disk.
        handles: the open handles, a live set.
    """

    def __init__(self, state: LayerState, files: LayerFiles, handles: AbstractSet[Handle]) -> None:
        self._state = state
        self._files = files
        self._handles = handles
        self.limit_bytes: int | None = None
        """Bytes of committed content that may be kept in data files; ``None`` keeps everything."""

    def trim(self) -> None:
        """Remove clean data files beyond the limit, except those of open files."""
        limit = self.limit_bytes
        if limit is None or self._files.warm.taken_bytes <= limit:
            return
        busy = {*self._state.modified, *(handle.node.ino for handle in self._handles)}
        self._drop(self._files.warm.surplus(limit, busy))

    def closed(self, node: FileNode) -> None:
        """After the last close of a file: remove its data file if it is large and the cache is over its limit."""
        limit = self.limit_bytes
        warm = self._files.warm
        if limit is not None and warm.taken_bytes > limit and warm.is_large(node.ino, limit):
            self._drop([node.ino])

    def _drop(self, inodes: list[int]) -> None:
        """Remove the data files of clean files that are closed; of others nothing.

        A file that was changed in place and then removed may still have an entry, and versions that need its data file.
        """
        state = self._state
        needed = {data.number for data in state.retired}
        dropped = []
        for ino in inodes:
            known = self._files.warm.get(ino)
            if known is None or known[0] in needed:
                continue
            node = state.names.by_ino.get(ino)
            if isinstance(node, FileNode):
                if node.dirty or node.opens or ino in state.modified:
                    continue
                node.data, node.sparse_blocks = None, None
            dropped.append(ino)
        self._files.drop_clean(dropped)
