"""Modes, owners, times and extended attributes of a layer's nodes.

Each method reads what it needs of the blob store, appends a record to the log, and then applies it.
"""

from __future__ import annotations

import errno
import stat
from typing import TYPE_CHECKING

from chronicle.workspace.history.oplog import storable_ns
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log_records import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.file_versions import FileVersions
    from chronicle.workspace.layer.state.apply import Applier
    from chronicle.workspace.layer.state.node import Node

__all__ = ["Attributes"]


class Attributes:
    """Changes attributes.

    Args:
        applier: changes the state.
        log: the layer's log.
        now: gives the time, epoch nanoseconds.
        versions: adds the version of a written file that comes before a change of its attributes.
    """

    def __init__(self, applier: Applier, log: LayerLog, now: Callable[[], int], versions: FileVersions) -> None:
        self._applier = applier
        self._state = applier.state
        self._log = log
        self._now = now
        self._versions = versions

    def set_mode(self, node: Node, mode: int, uid: int, gid: int) -> None:
        """Set permission bits and owner. No version is added if they are as before."""
        ts_ns = self._now()
        if (stat.S_IMODE(node.mode), node.uid, node.gid) == (mode, uid, gid):
            node.ctime_ns = ts_ns
            return
        names = self._state.names
        names.load_links(node)
        self._versions.add_missing_to_versioned(node)
        path = names.path_of(node)
        if path is not None:
            self._log.append(pack((records.MODE, ts_ns, path, mode, uid, gid)))
        self._applier.set_mode(node, mode, uid, gid, ts_ns)

    def set_times(self, node: Node, atime_ns: int, mtime_ns: int) -> None:
        """Set the times, epoch nanoseconds; a disk clamps those that it cannot store, too. Adds no version."""
        atime_ns, mtime_ns = storable_ns(atime_ns), storable_ns(mtime_ns)
        names = self._state.names
        names.load_links(node)
        ts_ns = self._now()
        path = names.path_of(node)
        if path is not None:
            self._log.append(pack((records.TIMES, ts_ns, path, atime_ns, mtime_ns)))
        self._applier.set_times(node, atime_ns, mtime_ns, ts_ns)

    def set_xattr(self, node: Node, name: bytes, value: bytes | None) -> None:
        """Set an extended attribute, or remove it (``None``). Changes nothing if the value is as before.

        Raises:
            OSError: ENODATA: there is none to remove.
        """
        if value is None and name not in node.xattrs:
            raise OSError(errno.ENODATA, "no such attribute")
        if value is not None and node.xattrs.get(name) == value:
            return
        names = self._state.names
        names.load_links(node)
        self._versions.add_missing_to_versioned(node)
        ts_ns = self._now()
        path = names.path_of(node)
        if path is not None:
            self._log.append(pack((records.XATTR, ts_ns, path, name, value)))
        self._applier.set_xattr(node, name, value, ts_ns)
