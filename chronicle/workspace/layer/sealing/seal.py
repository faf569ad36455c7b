"""One seal: contents, tree and histories, put at once.

A seal reads the dirty data files, the versions that are not stored yet and the changed directories; nothing else. It
changes nothing of the layer before the put has succeeded, so a failed seal can be retried.

A large seal takes long, so requests are interleaved with it: whenever a blob is added to the buffer, and while blobs
are put (`chronicle.blobs.buffer.Interleaving`). They must change nothing that a seal reads. What they may change: clean
nodes are loaded and evicted, files are opened and closed, and removed files drop data that no version needs. So a seal
holds no reference to such a node or file from one blob to the next: it does not iterate over `Names.by_ino` or
``children``, and opens data files again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chronicle.blobs.buffer import BlobBuffer
from chronicle.workspace.history.commit_builder import CommitBuilder
from chronicle.workspace.history.oplog import Attr, OplogRoot
from chronicle.workspace.layer.sealing.contents import put_contents
from chronicle.workspace.layer.sealing.histories import put_histories
from chronicle.workspace.layer.sealing.tree import SealedTree, put_links, put_tree

if TYPE_CHECKING:
    from chronicle.blobs.buffer import Interleaving
    from chronicle.blobs.port import BlobStore
    from chronicle.ids import BlobId
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.state.layer_state import LayerState
    from chronicle.workspace.port import TreeRef

__all__ = ["SealBase", "Sealed", "put_seal"]


@dataclass(frozen=True, slots=True)
class SealBase:
    """The commit that a seal follows."""

    ref: TreeRef | None
    """The last tree that was adopted; ``None`` for a new layer."""
    commit: OplogRoot
    """Its root."""
    operations: tuple[BlobId, ...]
    """The operation blobs of earlier seals since then."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of a seal, durable."""

    ref: TreeRef
    commit: OplogRoot
    tree: SealedTree
    numbers: dict[bytes, int]
    """The last number given out for each path whose history changed."""


def put_seal(
    store: BlobStore, files: LayerFiles, state: LayerState, base: SealBase, interleaving: Interleaving | None = None
) -> Sealed:
    """Store what changed in a layer.

    Args:
        store: takes the blobs.
        files: has the data files.
        state: the state of the layer; every dirty file has a version.
        base: what the seal follows.
        interleaving: serves requests that change nothing of ``state``.

    Raises:
        Unavailable: the store could not be reached, or took too long; nothing was changed.
        OSError: a data file could not be read.
    """
    buffer = BlobBuffer(store, interleaving=interleaving)
    names, pending = state.names, state.history
    stored = put_contents(buffer, files, pending.records.values())
    tree = put_tree(buffer, names, state.owner, stored)
    view = pending.new_view()
    builder = CommitBuilder(buffer, view, state.commit, base.ref, base.commit)
    put_histories(builder, view, pending, stored)
    root = names.root
    tree_id, attrs = tree.directories.get(root, (root.tree, root.attrs))
    content = replace(
        state.commit,
        turn=pending.turn,
        tree_id=tree_id,
        root=Attr(root.ino, root.mtime_ns, root.ctime_ns, root.nlink, attrs),
        links=put_links(buffer, names, state.commit.links),
        next_ino=names.next_ino,
        next_seq=pending.next_seq,
        moved_seq=pending.moved_seq,
        usage=state.usage.usage,
        gaps=(*state.commit.gaps, *pending.gaps),
    )
    ref, commit = builder.build(content, base.operations)
    buffer.flush()
    return Sealed(ref, commit, tree, builder.last_numbers)
