"""Open handles of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.workspace.content.lazy_reader import LazyFile
    from chronicle.workspace.layer.state.node import FileNode

__all__ = ["Handle"]


class Handle:
    """An open file."""

    __slots__ = ("fresh", "node", "stale", "stored", "wrote")

    def __init__(self, node: FileNode, *, fresh: bool) -> None:
        self.node = node
        self.fresh = fresh
        """Whether opening it created or emptied the file. That alone is a version only if nothing is written until the
        release: a shell's ``echo x > file`` closes a copy of the descriptor before it writes."""
        self.wrote = False
        """Whether it wrote since its last flush."""
        self.stale = False
        """Whether the layer was rolled back since it was opened: it answers ESTALE from then on."""
        self.stored: LazyFile | None = None
        """Reads what is not on this node, after the first read."""
