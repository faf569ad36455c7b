"""The port to a workspace: the common contract of its three presentations (fuse, dir, api).

A workspace is an immutable base tree and a writable *layer* over it. A turn ends by *sealing* the layer: its content
becomes a tree of blobs, durable in the blob store, while the layer continues to take writes. Only after the journal has
committed that tree is it *adopted* as the new base. If the turn failed, the layer is *rolled back* to the base.

    open ──► begin_turn(n) ──► (the agent reads and writes files) ──► seal() ──► journal commit ──► adopt(ref)
                 ▲                          │ exception                                               │
                 │                          └─► seal() as the failed tree ─► rollback()               │
                 └────────────────────────────────────────────────────────────────────────────────────┘

A layer belongs to one epoch. Opening under a newer epoch fences an older layer off, recovers its tree if it holds
anything uncommitted (``Opened.recovered``), and starts from the base.

Paths are relative to the workspace's root, ``str`` in the file system encoding with surrogate escapes, ``/`` between
components, no leading slash. Methods block; call them from a thread that may block.
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
    """A commit of a workspace."""

    tree_id: BlobId
    """The Merkle root of the content: names, kinds, modes, bytes. Equal content gives an equal id."""
    oplog_id: BlobId
    """The root of all metadata that is not content: operations, iterations, timestamps, inode numbers."""


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
    """The turn it belongs to; between turns, the turn whose commit will contain it."""
    source: str | None = None
    """For ``rename`` and ``link``, the path it came from."""
    mode: int | None = None
    """Permission bits; ``None`` for a deletion."""

    def as_json(self) -> dict[str, object]:
        """Return it as an object for JSON, as ``.chronicle/query`` shows it. Unknown fields are left out."""
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
    """The usage of a workspace: its working tree, without its history."""

    bytes: int
    """The sum of all files' sizes as of `stat`; a file of several names counts once."""
    files: int
    """Files, directories, symlinks and special files, without the root; a file of several names counts once."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a workspace; ``None`` is no limit.

    An operation that exceeds a limit is refused: EDQUOT, and EFBIG for a file above its own limit. One that reduces
    usage is not, even in a workspace that exceeded its quota when it got it. A removed file counts its bytes while it
    is open.
    """

    bytes: int | None = None
    """Of the working tree; see `Usage`."""
    files: int | None = None
    """See `Usage`."""
    file_bytes: int | None = None
    """Of the largest file."""

    def exceeded(self, now: Usage, before: Usage) -> str | None:
        """Return which limit a workspace exceeds by more than it did before; ``None`` for none."""
        if self.bytes is not None and now.bytes > max(self.bytes, before.bytes):
            return f"it holds {now.bytes} bytes and may hold {self.bytes}"
        if self.files is not None and now.files > max(self.files, before.files):
            return f"it holds {now.files} files and directories and may hold {self.files}"
        return None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The arguments of opening a workspace, for every presentation."""

    workspace_id: str
    """Names the layers of one workspace on a node; 1–128 characters of ``[A-Za-z0-9_.-]``, not starting with a dot."""
    layers: Path
    """The node's directory of layers; one subdirectory a workspace."""
    base: TreeRef | None
    """The last committed tree; ``None`` for a workspace that has none yet (it starts empty)."""
    epoch: int
    """The lease's epoch. Layers of older epochs are fenced off and recovered."""
    turn: int
    """The turn that changes belong to until `Workspace.begin_turn` says otherwise."""
    quota: Quota | None = None
    """Its limits while it is open; ``None`` is the disk's size."""
    gives_up_when_full: bool = False
    """Whether an older epoch's uncommitted changes are discarded if the disk is too full to seal them. Only for
    workspaces whose users rely on committed content alone; otherwise opening fails."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of opening a workspace."""

    workspace: Workspace
    recovered: TreeRef | None
    """Content of an earlier epoch's layer beyond `LayerSpec.base`, durable in the blob store; ``None`` for nothing.
    It may be the tree of a committed turn that the journal has lost, so that `LayerSpec.turn` is that turn, or an
    earlier one. Every opening reports it again until `Workspace.begin_turn` is called: so record it first."""


class Workspace(Protocol):
    """One epoch's open workspace."""

    @property
    def root(self) -> Path:
        """The directory that holds the files."""

    @property
    def base(self) -> TreeRef:
        """The last adopted (or opened) tree."""

    def begin_turn(self, turn: int) -> None:
        """Set the turn that changes belong to from now on, and acknowledge what was recovered (`Opened`).

        Changes since the last seal belong to it too. A turn that is not after that of `base` is replaced by the one
        after it. Content that was sealed in one turn and is sealed again, unchanged, in a later one is a tree of the
        later one, while its versions keep the turn in which they were first sealed (`Iteration.turn`).
        """

    def seal(self) -> TreeRef:
        """Store the layer's content as a tree, durable in the blob store on return.

        The cost is proportional to the changes since the last `seal`; without any, `base` is returned. Files that are
        open for writing are included as they are now.
        """

    def adopt(self, ref: TreeRef) -> None:
        """Make a sealed tree the base, after the journal committed it.

        Changes since the seal stay and belong to the next turn.
        """

    def rollback(self) -> None:
        """Discard all changes since the base: handles and mappings of the old layer get an error, `root` has the base.

        Iteration numbers are never reused.
        """

    def move_to(self, ref: TreeRef) -> None:
        """Make the content that of a tree which was sealed on top of the base, or of the base, keeping its history.

        For an attempt that follows a lost one: what that one sealed is taken over instead of being made again. No
        iterations are added; those of the tree keep their numbers, and all changes since are discarded like those of a
        rollback. `base` stays, and a `seal` without further changes returns ``ref``. Several such moves may follow each
        other.

        Nothing else is disturbed: handles of files that the tree has too stay valid and have its content from now on; a
        file that is not in the tree has lost its name. A plain directory gives changed files anew, so handles of those
        keep the old content. The cost is proportional to the differing entries, not to the size of files; that of a
        plain directory is that of its `seal`. A quota that the tree exceeds does not prevent it.

        Raises:
            NotFound: blobs of the differing part of the tree are not in the store. Nothing was changed.
            Conflict: the tree was sealed on top of another commit. Nothing was changed.
        """

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations, oldest first, uncommitted ones included.

        Raises:
            NotFound: the path never existed.
        """

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open the content of a path at an iteration for reading.

        Raises:
            NotFound: no such path or iteration, or the iteration is a deletion.
        """

    def close(self) -> None:
        """Unmount and release the layer. It stays on the node as a warm cache; closing seals and loses nothing."""
