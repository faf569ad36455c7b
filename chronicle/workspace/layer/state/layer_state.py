"""The state of a layer in memory: its names, pending versions, usage, and the data files that differ from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.workspace.history.oplog import first_root, read_root
from chronicle.workspace.layer.state.names import Names
from chronicle.workspace.layer.state.pending_history import PendingHistory
from chronicle.workspace.layer.state.usage_meter import UsageMeter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.history.oplog import OplogRoot
    from chronicle.workspace.layer.disk.data_file import DataFile
    from chronicle.workspace.layer.state.node import FileNode, Node
    from chronicle.workspace.port import TreeRef

__all__ = ["LayerState"]


class LayerState:
    """State of a layer that the blob store does not have.

    Args:
        reader: reads trees, attributes and histories.
        start: the commit to start from; None for an empty workspace.
        owner: user and group of entries that store none.
        turn: the turn that changes belong to.
    """

    def __init__(self, reader: BlobReader, start: TreeRef | None, owner: tuple[int, int], turn: int) -> None:
        self.reader = reader
        self.owner = owner
        commit = read_root(reader, start.oplog_id) if start is not None else first_root(0)
        self.sealed = start
        """The last seal; the base if there was none since."""
        self.commit = commit
        """The root of the last seal."""
        self.names = Names(reader, commit, owner)
        self.history = PendingHistory(reader, commit, turn)
        self.usage = UsageMeter(commit)
        self.modified: dict[int, FileNode] = {}
        """By inode, files whose data file changed since the last seal."""
        self.retired: list[DataFile] = []
        """Data files that only versions refer to."""

    def reset(self, start: TreeRef | None, commit: OplogRoot, names: Names) -> None:
        """Take the state of a commit, and drop all that came after it. Reads nothing, and cannot fail.

        Args:
            start: the commit.
            commit: its root.
            names: its names, unchanged.
        """
        self.sealed, self.commit, self.names = start, commit, names
        self.history.reset(commit)
        self.usage.reset(commit)
        self.modified = {}
        self.retired = []

    def move(self, ref: TreeRef, commit: OplogRoot, gone: Iterable[Node]) -> None:
        """Take a commit as the last seal; its names are in place. Reads nothing, and cannot fail.

        Args:
            ref: the commit.
            commit: its root.
            gone: the nodes that have no name any more.
        """
        self.note_seal(ref, commit)
        for node in gone:
            self.usage.note_unnamed(node)

    def note_seal(self, sealed: TreeRef, commit: OplogRoot) -> None:
        """Take the commit that was just sealed as the reference point; names are up to date."""
        self.sealed, self.commit = sealed, commit
        self.history.reset(commit)
        self.usage.note_seal(commit)
        self.modified = {}
        self.retired = []

    @property
    def changed(self) -> bool:
        """Whether anything differs from the last seal."""
        names = self.names
        return bool(names.root.changed or names.root_changed or self.history.records)
