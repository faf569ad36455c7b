"""The port between a mount server and the layer that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.buffer import Interleaving
    from chronicle.fuse.served.filesystem import FileSystem
    from chronicle.workspace.layer.state.touched import Touched
    from chronicle.workspace.port import Iteration, TreeRef

__all__ = ["Engine", "Served"]


class Engine(Protocol):
    """The operations of a served layer: the workspace port without its root."""

    @property
    def base(self) -> TreeRef | None:
        """The last adopted (or opened) tree."""

    @property
    def sealed(self) -> TreeRef | None:
        """The last sealed tree, which alone can be adopted; the base if there is none since."""

    @property
    def unreported(self) -> TreeRef | None:
        """The recovered tree, until a host has begun a turn since it was reported."""

    def begin_turn(self, turn: int) -> None:
        """See `Workspace.begin_turn`."""

    def seal(self, interleaving: Interleaving, /) -> TreeRef:
        """See `Workspace.seal`; requests that change nothing are served meanwhile."""

    def adopt(self, ref: TreeRef) -> None:
        """See `Workspace.adopt`."""

    def move_to(self, ref: TreeRef) -> Touched:
        """See `Workspace.move_to`."""

    def rollback(self) -> object:
        """See `Workspace.rollback`. The mount has stopped answering requests."""

    def history(self, path: str) -> Sequence[Iteration]:
        """See `Workspace.history`."""

    def at(self, path: str, iteration: int) -> BinaryIO:
        """See `Workspace.at`."""

    def restore(self, then: TreeRef | None, path: bytes) -> Touched:
        """Restore a path, or everything, from a commit; see `chronicle.workspace.layer.restore`."""

    def close(self) -> None:
        """Close the layer's files."""


@dataclass(frozen=True, slots=True)
class Served:
    """A layer opened for a mount."""

    engine: Engine
    filesystem: FileSystem
