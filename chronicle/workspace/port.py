"""The port to a workspace: what its three presentations (fuse, dir, api) promise alike.

A workspace is an immutable base tree and a writable *layer* over it. A turn ends by *sealing* the layer: its content
becomes a tree of blobs, durable in the blob store, while the layer goes on taking writes. Only when the journal has
committed that tree is it *adopted* as the new base. If the turn failed, the layer is *rolled back* to the base.

    open ──► begin_turn(n) ──► (the agent reads and writes files) ──► seal() ──► journal commit ──► adopt(ref)
                 ▲                          │ exception                                               │
                 │                          └─► seal() as the failed tree ─► rollback()               │
                 └────────────────────────────────────────────────────────────────────────────────────┘

A layer belongs to one epoch. Opening under a newer epoch cuts an older layer off, keeps its tree if it holds anything
that was not committed (``Opened.recovered``), and starts from the base.

Paths are relative to the workspace's root, ``str`` in the file system encoding with surrogate escapes, ``/`` between
components, no leading slash. Methods block; call them from a thread that may wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.ids import BlobId

__all__ = ["Iteration", "LayerSpec", "Opened", "Quota", "TreeRef", "Usage", "Workspace"]


@dataclass(frozen=True, slots=True)
class TreeRef:
    """A workspace at a moment."""

    tree_id: BlobId
    """The Merkle root of the content: names, kinds, modes, bytes. Equal content gives an equal id."""
    oplog_id: BlobId
    """The root of everything that is not content: operations, iterations, timestamps, inode numbers."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One version of one path."""

    iteration: int
    """From 1, growing by one for each version of this path, never reused, not even after a rollback."""
    timestamp: int
    """Epoch milliseconds."""
    size: int
    """Bytes; 0 for a deletion."""
    hash: str
    """The content's id in the tree; empty for a deletion."""
    op: str
    """``write``, ``create``, ``mkdir``, ``rename``, ``delete``, ``mode``, ``link``, ``xattr``, ``symlink``,
    ``restore``."""
    turn: int
    """The turn it happened in; between turns, the turn whose commit it will be part of."""
    source: str | None = None
    """For ``rename`` and ``link``, the path it came from."""
    mode: int | None = None
    """Permission bits; ``None`` for a deletion, and for versions from before they were recorded."""

    def as_json(self) -> dict[str, object]:
        """Return it as an object for JSON, as ``.chronicle/query`` shows it. What is not known is not in it."""
        shown: dict[str, object] = {
            "iteration": self.iteration,
            "timestamp": self.timestamp,
            "size": self.size,
            "hash": self.hash,
            "op": self.op,
            "turn": self.turn,
        }
        if self.mode is not None:
            shown["mode"] = f"{self.mode:04o}"
        if self.source is not None:
            shown["source"] = self.source
        return shown


class Usage(NamedTuple):
    """How much a workspace holds: its working tree, not its history."""

    bytes: int
    """Of all files' contents as `stat` tells their sizes; a file of several names counts once."""
    files: int
    """Files, directories, symlinks and the like, but for the root; what has several names counts once."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How much a workspace may hold; ``None`` is no limit.

    What makes it hold more is refused: EDQUOT, and EFBIG for a file above its own limit. What makes it hold less is
    not, also in a workspace that held more before it got its quota. A file that was removed counts its bytes while it
    is open.
    """

    bytes: int | None = None
    """Of the working tree; see `Usage`."""
    files: int | None = None
    """See `Usage`."""
    file_bytes: int | None = None
    """Of the largest file."""

    def exceeded(self, now: Usage, before: Usage) -> str | None:
        """Say in which way a workspace holds more than it may and more than it did; ``None`` if it does not."""
        if self.bytes is not None and now.bytes > max(self.bytes, before.bytes):
            return f"it holds {now.bytes} bytes and may hold {self.bytes}"
        if self.files is not None and now.files > max(self.files, before.files):
            return f"it holds {now.files} files and directories and may hold {self.files}"
        return None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What opening a workspace takes, whatever the presentation."""

    workspace_id: str
    """Names the layers of one workspace on a node; 1–128 characters of ``[A-Za-z0-9_.-]``, not starting with a dot."""
    layers: Path
    """The node's directory of layers; one subdirectory a workspace."""
    base: TreeRef | None
    """The last committed tree; ``None`` for a workspace that has none yet (it starts empty)."""
    epoch: int
    """The lease's epoch. Layers of other epochs are cut off and recovered from."""
    turn: int
    """The turn that changes belong to until `Workspace.begin_turn` says otherwise."""
    quota: Quota | None = None
    """How much it may hold while it is open; ``None`` is as much as the disk."""
    gives_up_when_full: bool = False
    """What an older epoch's layer holds beyond the base is removed if the disk is too full to seal it. Only for
    workspaces of which nobody counts on more than what is committed; otherwise opening fails then."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A workspace, opened."""

    workspace: Workspace
    recovered: TreeRef | None
    """What an earlier epoch's layer held beyond `LayerSpec.base`, durable in the blob store; ``None`` if nothing. It is
    told again whenever the workspace is opened, until `Workspace.begin_turn` is called: so note it first."""


class Workspace(Protocol):
    """One epoch's open workspace."""

    @property
    def root(self) -> Path:
        """The directory in which the files are."""
        ...

    @property
    def base(self) -> TreeRef:
        """The last adopted (or opened) tree."""
        ...

    def begin_turn(self, turn: int) -> None:
        """Say which turn the changes from now on belong to; and that what was recovered (`Opened`) was heard of.

        What changed since the last seal belongs to it, too. A turn that is not after that of `base` is taken for the
        one after it. What was sealed in one turn and is sealed again, unchanged, in a later one is a tree of the later
        one, while its versions keep the turn in which they were first sealed (`Iteration.turn`).
        """
        ...

    def seal(self) -> TreeRef:
        """Make the layer's content a tree, durable in the blob store when this returns.

        Costs in proportion to what changed since the last `seal`; returns `base` when nothing did. Files that are open
        for writing are included as they are now.
        """
        ...

    def adopt(self, ref: TreeRef) -> None:
        """Make a sealed tree the base, after the journal committed it.

        What changed since the seal stays changed, and belongs to the next turn.
        """
        ...

    def rollback(self) -> None:
        """Give up everything since the base: handles and mappings of the old layer get an error, `root` shows the base.

        Iteration numbers that were given out are not given out again.
        """
        ...

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations, oldest first, those not yet committed included.

        Raises:
            NotFound: the path never existed.
        """
        ...

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration for reading.

        Raises:
            NotFound: no such path or iteration, or the iteration is a deletion.
        """
        ...

    def close(self) -> None:
        """Unmount and let go. The layer stays on the node as a warm cache; nothing is sealed or lost by closing."""
        ...
