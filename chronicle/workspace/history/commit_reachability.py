"""Computes the blobs that are reachable from commits: their trees, logs and histories.

Contents of files are not read; each node of a tree, map or history is read about once, however many commits share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.readers import RecordingReader
from chronicle.workspace.history import path_histories
from chronicle.workspace.history.oplog import decode_attr, read_root
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.reachability import Reach

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.port import TreeRef

__all__ = ["CommitReach"]


class CommitReach:
    """The set of blobs that commits refer to.

    Args:
        reader: reads them.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = RecordingReader(reader)
        self._reach = Reach(self._reader)
        self._roots: set[BlobId] = set()
        self._attributes: set[BlobId] = set()
        self._histories: set[BlobId] = set()
        self._blocks: set[BlobId] = set()

    def ids(self) -> set[BlobId]:
        """Return all ids reached so far."""
        return self._reach.ids() | self._reader.seen

    def add_blob(self, identifier: BlobId) -> None:
        """Add one blob of plain bytes."""
        self._reach.add_blob(identifier)

    def add_content(self, content: Content) -> None:
        """Add the blobs of one file's content.

        Raises:
            NotFound, Corrupt, Unavailable: a node of its list could not be read; it is added in part.
        """
        self._reach.add_content(content)

    def add(self, ref: TreeRef) -> None:
        """Add a commit and its predecessors.

        Raises:
            NotFound, Corrupt, Unavailable: a blob could not be read; the commit is added in part.
        """
        self._reach.add_tree(ref.tree_id)
        oplog_id: BlobId | None = ref.oplog_id
        while oplog_id is not None and oplog_id not in self._roots:
            self._roots.add(oplog_id)
            root = read_root(self._reader, oplog_id)
            self._reach.add_tree(root.tree_id)
            for operations in root.operations:
                self._reach.add_blob(operations)
            self._reach.add_map(root.commits)
            self._reach.add_map(root.links)
            self._add_attributes(root.root.below)
            self._add_histories(root.histories)
            oplog_id = root.previous

    def _add_attributes(self, below: BlobId | None) -> None:
        todo = [below]
        while todo:
            for _, node in nodes.walk(self._reader, todo.pop(), self._attributes):
                if node.level == 0:
                    todo.extend(decode_attr(value).below for value in node.values)

    def _add_histories(self, histories: BlobId | None) -> None:
        for _, node in nodes.walk(self._reader, histories, self._histories):
            if node.level:
                continue
            for value in node.values:
                contents, head = path_histories.contents_in(value)
                for content in contents:
                    self._reach.add_content(content)
                if head is not None and head not in self._blocks:
                    self._blocks.add(head)
                    for record in path_histories.newest_first(self._reader, path_histories.PathHistory(0, head)):
                        if record.content is not None:
                            self._reach.add_content(record.content)
