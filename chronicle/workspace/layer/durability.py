"""Durability against a loss of power: syncing data files, their names, and the log, in this order.

What was logged survives the death of the process at once. A `SYNCED` record is written only after the bytes and the
name that it speaks of are on disk; the log comes last, and data files that it no longer names are removed after it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from chronicle.system.atomic_files import sync_directory

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.file_data import FileData
    from chronicle.workspace.layer.state.layer_state import LayerState
    from chronicle.workspace.layer.state.node import FileNode

__all__ = ["Durability"]


class Durability:
    """Syncs a layer.

    Args:
        directory: the layer's directory.
        state: says which files were changed.
        files: the layer's files on disk.
        log: the layer's log.
        data: logs what was synced.
    """

    def __init__(self, directory: Path, state: LayerState, files: LayerFiles, log: LayerLog, data: FileData) -> None:
        self._directory = directory
        self._state = state
        self._files = files
        self._log = log
        self._data = data
        self._is_named = False
        """Whether the names of the layer's directory and of the one above are on disk."""

    def fsync(self, node: FileNode | None) -> None:
        """Make everything that was logged, and the bytes of a file if one is given, survive the loss of power."""
        if node is not None and node.fd >= 0:
            os.fdatasync(node.fd)
            data = node.data
            if data is not None:
                data.synced = True
                for undo in data.undos:
                    undo.sync()
        self._files.sync_names()
        if node is not None and node.fd >= 0:
            self._data.note_synced(node)
        self.sync_log()

    def sync_all(self) -> None:
        """Make every change since the last seal survive the loss of power, as unmounting a disk does."""
        changed = [(node, node.data) for node in self._state.modified.values() if node.data is not None]
        for _, data in changed:
            self._files.sync_data(data)
        self._files.sync_names()
        for node, _ in changed:
            self._data.note_synced(node)
        self.sync_log()

    def sync_log(self) -> None:
        """Make what was logged survive the loss of power, the first time with the names of the layer's directories."""
        self._log.sync()
        self._files.after_log_sync()
        if not self._is_named:
            home = self._directory.parent
            sync_directory(home)
            sync_directory(home.parent)
            self._is_named = True

    def log_repair(self, records: list[bytes]) -> None:
        """Log and sync what was repaired after a loss of power, so that replay repeats it."""
        self._log.append_all(records)
        self._files.sync_names()
        self.sync_log()
