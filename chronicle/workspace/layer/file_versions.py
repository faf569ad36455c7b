"""Versions of files that were written: what a close adds to a file's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log_records import pack
from chronicle.workspace.layer.state.node import FileNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.state.apply import Applier
    from chronicle.workspace.layer.state.node import Node

__all__ = ["FileVersions"]


class FileVersions:
    """Logs and adds versions of files.

    Args:
        applier: changes the state.
        log: the layer's log.
        now: gives the time, epoch nanoseconds.
    """

    def __init__(self, applier: Applier, log: LayerLog, now: Callable[[], int]) -> None:
        self._applier = applier
        self._state = applier.state
        self._log = log
        self._now = now

    def add_missing(self, node: Node) -> None:
        """Add a version of a file whose present content has none. Removed files get none."""
        if isinstance(node, FileNode) and node.parent is not None and (node.unversioned or not node.versioned):
            self._add(node)

    def add_missing_to_versioned(self, node: Node) -> None:
        """As `add_missing`, but a file that has no version at all stays without."""
        if node.versioned:
            self.add_missing(node)

    def _add(self, node: FileNode) -> None:
        names = self._state.names
        names.load_links(node)
        ts_ns = self._now()
        op = "write" if node.unversioned else "create"
        self._log.append(pack((records.VERSION, ts_ns, names.path_of(node), op, node.length, node.mtime_ns)))
        self._applier.add_version(node, op, node.length, node.mtime_ns, ts_ns)
