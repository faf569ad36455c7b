"""How many bytes and files the working tree holds, and the checks of the quota before it holds more."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from chronicle.workspace.layer.state.node import FileNode
from chronicle.workspace.port import Usage

if TYPE_CHECKING:
    from chronicle.workspace.history.oplog import OplogRoot
    from chronicle.workspace.layer.state.node import Node
    from chronicle.workspace.port import Quota

__all__ = ["UsageMeter"]


class UsageMeter:
    """The usage of a layer: that of its last seal, and the difference since.

    Args:
        commit: the last seal.
    """

    def __init__(self, commit: OplogRoot) -> None:
        self.quota: Quota | None = None
        """The limits; ``None`` refuses nothing."""
        self.reset(commit)

    def reset(self, commit: OplogRoot) -> None:
        """Take the usage of a commit; removed files that were open count no more."""
        self.note_seal(commit)
        self._unnamed_bytes = 0
        """Bytes of files that were removed while they were open."""

    def note_seal(self, commit: OplogRoot) -> None:
        """Take the usage of the commit that was just sealed."""
        self._sealed = commit.usage
        self._added_bytes = 0
        self._added_files = 0

    @property
    def usage(self) -> Usage:
        """The usage now."""
        return Usage(self._sealed.bytes + self._added_bytes, self._sealed.files + self._added_files)

    # -- what operations do -----------------------------------------------------------------------------------------

    def resize(self, node: FileNode, size: int) -> None:
        """Set a file's length, and count the difference."""
        if node.nlink:
            self._added_bytes += size - node.length
        else:
            self._unnamed_bytes += size - node.length
        node.length = size

    def add_file(self) -> None:
        """Count a new file, directory or the like."""
        self._added_files += 1

    def remove(self, node: Node) -> None:
        """Count what lost its last name; the bytes of an open file count until it is closed."""
        self._added_files -= 1
        if isinstance(node, FileNode):
            self._added_bytes -= node.length
        self.note_unnamed(node)

    def note_unnamed(self, node: Node) -> None:
        """Count the bytes of an open file that has lost its last name, and is not in the tree any more."""
        if isinstance(node, FileNode) and node.opens:
            self._unnamed_bytes += node.length

    def close_unnamed(self, node: FileNode) -> None:
        """Count the last close of a file without a name."""
        self._unnamed_bytes -= node.length

    # -- limits -----------------------------------------------------------------------------------------------------

    def check_size(self, node: FileNode, size: int) -> None:
        """Refuse a file size above the quota.

        Raises:
            OSError: EFBIG: the file would exceed its own limit. EDQUOT: the workspace would exceed its limit.
        """
        quota = self.quota
        if quota is None or size <= node.length:
            return
        if quota.file_bytes is not None and size > quota.file_bytes:
            raise OSError(errno.EFBIG, f"a file of this workspace may have {quota.file_bytes} bytes")
        if quota.bytes is not None and self.usage.bytes + self._unnamed_bytes + size - node.length > quota.bytes:
            raise OSError(errno.EDQUOT, f"the workspace may hold {quota.bytes} bytes")

    def check_new_file(self) -> None:
        """Refuse one more file, directory or the like above the quota.

        Raises:
            OSError: EDQUOT.
        """
        quota = self.quota
        if quota is not None and quota.files is not None and self.usage.files >= quota.files:
            raise OSError(errno.EDQUOT, f"the workspace may hold {quota.files} files and directories")

    def check_replaced(self, after: Usage, largest: int) -> None:
        """Refuse a usage that is above the quota and above the usage now.

        Args:
            after: the usage that is wanted.
            largest: size of the largest file that would be written, bytes.

        Raises:
            OSError: EFBIG, EDQUOT.
        """
        quota = self.quota
        if quota is None:
            return
        if quota.file_bytes is not None and largest > quota.file_bytes:
            raise OSError(errno.EFBIG, f"a file of this workspace may have {quota.file_bytes} bytes, not {largest}")
        reason = quota.exceeded(after, self.usage)
        if reason is not None:
            raise OSError(errno.EDQUOT, f"the workspace would be over its quota: {reason}")
