"""Builds the commit that follows another one: the one place where the root of a commit is put together.

The caller puts the tree and the attributes of its entries into the buffer. The builder adds the histories of the paths
that have new versions, this turn's operations, the map of earlier commits, and the root that names all of them. Sealing
a layer, sealing a plain directory and rewinding use it alike. Pure but for the buffer, which the caller flushes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.workspace.history import oplog, path_histories
from chronicle.workspace.history.growth import bytes_added_by
from chronicle.workspace.history.oplog import Operation, OplogRoot
from chronicle.workspace.port import TreeRef

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from chronicle.ids import BlobId
    from chronicle.workspace.history.path_histories import PathHistory, Record
    from chronicle.workspace.history.view import HistoryView
    from chronicle.workspace.trees.nodes import NodeBuffer

__all__ = ["CommitBuilder"]


class CommitBuilder:
    """Builds one commit.

    Args:
        buffer: takes the new blobs.
        view: the histories of the last seal, with the versions that are not stored yet.
        sealed: the last seal: the new versions are put into its histories.
        base: the commit that the new one follows; ``None`` for the first one.
        base_root: the root of ``base``; of an empty workspace if there is none.
    """

    def __init__(
        self, buffer: NodeBuffer, view: HistoryView, sealed: OplogRoot, base: TreeRef | None, base_root: OplogRoot
    ) -> None:
        self._buffer = buffer
        self._view = view
        self._sealed = sealed
        self._base = base
        self._base_root = base_root
        self._versions: dict[bytes, Sequence[Record]] = {}
        self._changed: dict[bytes, PathHistory] = {}
        self._operations: list[Operation] = []

    def add_versions(
        self, path: bytes, versions: Sequence[Record], *, floor: int = 0, logged: Container[int] | None = None
    ) -> None:
        """Append versions to a path's history, and their operations to the log. Once for each path.

        Args:
            path: whose.
            versions: not stored yet, oldest first, with their final numbers.
            floor: the highest number that the path was ever given, if versions were rolled back.
            logged: the sequence numbers of the versions whose operations are logged; ``None`` for all.
        """
        self._versions[path] = versions
        history = path_histories.append(self._buffer, self._view.stored(path), versions)
        self._changed[path] = replace(history, last=max(history.last, floor))
        self._operations.extend(
            Operation(
                version.seq,
                version.timestamp_ms,
                version.op,
                version.turn,
                path,
                version.number,
                version.size,
                version.source,
            )
            for version in versions
            if logged is None or version.seq in logged
        )

    @property
    def last_numbers(self) -> dict[bytes, int]:
        """The last number given out for each path whose history changed."""
        return {path: history.last for path, history in self._changed.items()}

    def build(self, content: OplogRoot, earlier_operations: tuple[BlobId, ...] = ()) -> tuple[TreeRef, OplogRoot]:
        """Put the histories, the operations and the root into the buffer; return the commit and its root.

        Args:
            content: the last seal with the new turn, tree, attributes, links, counters, gaps and usage; the builder
                sets its other fields.
            earlier_operations: the operation blobs of earlier seals since ``base``.
        """
        self._operations.sort(key=lambda operation: operation.seq)
        base = self._base
        histories = path_histories.update(self._buffer, self._sealed.histories, self._changed)
        commits = self._base_root.commits
        if base is not None:
            commits = oplog.put_commit(self._buffer, commits, self._base_root.turn, base)
        commit = replace(
            content,
            previous=base.oplog_id if base is not None else None,
            histories=histories,
            commits=commits,
            operations=earlier_operations + oplog.store_operations(self._buffer, self._operations),
            kept_bytes=self._sealed.kept_bytes + bytes_added_by(self._buffer, self._versions, self._view.stored),
        )
        return TreeRef(content.tree_id, oplog.add_root(self._buffer, commit)), commit
