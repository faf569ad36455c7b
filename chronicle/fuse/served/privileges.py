"""Set-user-id bits, set-group-id bits and capabilities of files, which a write by another user drops."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from chronicle.workspace.layer.state.node import DirNode

if TYPE_CHECKING:
    from chronicle.fuse.served.filesystem import Caller
    from chronicle.workspace.layer.layer import Layer
    from chronicle.workspace.layer.state.node import Node

__all__ = ["drop_privileges", "may_change_mode"]

_CAPABILITIES: Final = b"security.capability"


def drop_privileges(layer: Layer, node: Node, caller: Caller | None) -> bool:
    """Drop the privileges that a write drops from a program of another user; say if the mode changed.

    Args:
        layer: of the node. node: the file that changes. caller: the writer, if set-user-id is dropped too, and set-
        group-id if its group may run it or the writer is not of
            its group.
    """
    if isinstance(node, DirNode):
        return False
    if _CAPABILITIES in node.xattrs:
        layer.set_xattr(node, _CAPABILITIES, None)
    if caller is None or not node.mode & (stat.S_ISUID | stat.S_ISGID):
        return False
    dropped = stat.S_ISUID
    if node.mode & stat.S_ISGID and (node.mode & stat.S_IXGRP or not _is_of_group(caller, node.gid)):
        dropped |= stat.S_ISGID
    if not node.mode & dropped:
        return False
    layer.set_mode(node, stat.S_IMODE(node.mode) & ~dropped, node.uid, node.gid)
    return True


def may_change_mode(caller: Caller | None, node: Node) -> bool:
    """Say whether a caller may change a mode. Before a write the kernel sends no chown; the write drops the bits."""
    return caller is not None and caller[0] in {0, node.uid}


def _is_of_group(caller: Caller, gid: int) -> bool:
    """Say whether a caller other than root is in a group; False if that is unknown."""
    uid, primary, pid = caller
    if uid == 0 or primary == gid:
        return True
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            groups = next(line for line in status if line.startswith(b"Groups:"))
    except (OSError, StopIteration):
        return False
    return str(gid).encode() in groups.split()
