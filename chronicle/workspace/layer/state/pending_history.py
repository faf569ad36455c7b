"""Versions that are not sealed yet: their records, and the counters that number them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from chronicle.workspace.history.path_histories import Record
from chronicle.workspace.history.view import HistoryView
from chronicle.workspace.layer.state.node import FileNode, LinkNode, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.history.oplog import Gap, OplogRoot
    from chronicle.workspace.layer.state.node import Node

__all__ = ["NS_PER_MS", "PendingHistory"]

NS_PER_MS: Final = 1_000_000


class PendingHistory:
    """The versions of a layer since its last seal.

    Args:
        reader: reads stored histories.
        commit: the last seal.
        turn: the turn that new versions belong to.
    """

    beat: Callable[[], None] = staticmethod(lambda: None)
    """Progress callback of long reads."""

    def __init__(self, reader: BlobReader, commit: OplogRoot, turn: int) -> None:
        self._reader = reader
        self.turn = turn
        self.next_seq = 1
        self.reset(commit)

    def reset(self, commit: OplogRoot) -> None:
        """Start after a commit, with no pending version. Cannot fail."""
        self._commit = commit
        self.next_seq = max(self.next_seq, commit.next_seq)
        self.moved_seq = commit.moved_seq
        """The seq of the last renaming of a directory."""
        self.moves: list[bytes] = []
        """Old and new paths of directories that were renamed."""
        self.records: dict[bytes, list[Record]] = {}
        """By path, oldest first."""
        self.floors: dict[bytes, int] = {}
        """By path, the highest number of a version that was rolled back; numbers are not reused."""
        self.gaps: list[Gap] = []
        """The same for paths below directories whose renaming was rolled back."""
        self._view: HistoryView | None = None

    def set_turn(self, turn: int) -> None:
        """Assign pending and later versions to a turn."""
        self.turn = turn
        for known in self.records.values():
            known[:] = [replace(record, turn=turn) for record in known]
        self._view = None

    def take_seq(self) -> int:
        """Return the next sequence number, and advance the counter."""
        seq = self.next_seq
        self.next_seq = seq + 1
        return seq

    def add(
        self, path: bytes, node: Node, op: str, ts_ns: int, source: bytes | None = None, *, seq: int | None = None
    ) -> None:
        """Add a version of a path: the node as it is now, or its deletion.

        Args:
            path: whose version.
            node: what is at the path, or was until now.
            op: as in `chronicle.workspace.port.Iteration.op`.
            ts_ns: epoch nanoseconds.
            source: where a renamed or linked file came from.
            seq: by default the next one.
        """
        if seq is None:
            seq = self.take_seq()
        content = target = held = None
        if op != "delete":
            node.versioned = True
            if isinstance(node, FileNode):
                if node.dirty:
                    assert node.data is not None
                    held = node.data.pin(node.length)
                    node.guarded = True
                else:
                    content = node.content
            elif isinstance(node, LinkNode):
                target = node.target
        mode = node.mode & 0o7777 if op != "delete" else None
        record = Record(0, seq, ts_ns // NS_PER_MS, op, self.turn, kind_of(node), content, target, source, held, mode)
        known = self.records.get(path)
        if known is None:
            self.records[path] = [record]
        else:
            known.append(record)

    def add_move(self, seq: int, new_path: bytes, old_path: bytes) -> None:
        """Record that a directory was renamed."""
        self.moved_seq = seq
        if self._view is not None:
            self._view.moved(seq)
        self.moves += [new_path, old_path]

    def view(self) -> HistoryView:
        """Return the histories as they are now. The view is shared until the pending versions are reset."""
        if self._view is None:
            self._view = self.new_view()
        return self._view

    def new_view(self) -> HistoryView:
        """Return a view of its own, for a seal: other readers may use the shared one while it runs."""
        return HistoryView(
            self._reader,
            replace(self._commit, moved_seq=self.moved_seq, gaps=(*self._commit.gaps, *self.gaps)),
            self.records,
            self.floors,
            lambda: self.beat(),  # noqa: PLW0108 - it may be set after the first view was made
        )
