"""Rewind: builds the commit after a workspace's last one that has the content of an earlier one.

No history is lost: each path that differs gets one more version, ``restore`` or ``delete``, with the next number, and
later versions stay in its history. The cost is proportional to the difference. Pure but for the buffer, which the
caller flushes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.workspace.history.commit_builder import CommitBuilder
from chronicle.workspace.history.oplog import first_root, read_root
from chronicle.workspace.history.path_histories import Record
from chronicle.workspace.history.view import HistoryView, floors_of
from chronicle.workspace.trees import tree
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.port import TreeRef
    from chronicle.workspace.trees.nodes import NodeBuffer
    from chronicle.workspace.trees.tree import Entry

__all__ = ["rewound"]

_MILLION = 1_000_000


def rewound(
    buffer: NodeBuffer, now: TreeRef, then: TreeRef | None, turn: int, now_ms: int, given_up: Sequence[TreeRef] = ()
) -> TreeRef:
    """Add the commit that restores an earlier one to the buffer, and return it.

    Names, contents, modes, owners, attributes, times and inode numbers are those of the earlier commit.

    Args:
        buffer: takes the new blobs.
        now: the workspace's last commit.
        then: an earlier commit of it, or of what it was forked from; ``None`` for the time before the first one.
        turn: the turn of the new commit.
        now_ms: epoch milliseconds; dates the versions.
        given_up: seals on top of ``now`` that were rolled back. Their numbers are not reused.

    Returns:
        ``now`` itself if the content is the same.

    Raises:
        NotFound, Corrupt, Unavailable: a differing part could not be read.
    """
    last = read_root(buffer, now.oplog_id)
    target = read_root(buffer, then.oplog_id) if then is not None else first_root(now_ms * _MILLION)
    if target.tree_id == now.tree_id:
        return now
    abandoned = [read_root(buffer, ref.oplog_id) for ref in given_up]
    seq = max(root.next_seq for root in (last, *abandoned))
    pending = {
        path: [_record(entry, was, seq + at, turn, now_ms)]
        for at, (path, was, entry) in enumerate(_differences(buffer, now.tree_id, target.tree_id))
    }
    view = HistoryView(buffer, last, pending, floors_of(buffer, abandoned, pending))
    builder = CommitBuilder(buffer, view, last, now, last)
    for path in pending:
        builder.add_versions(path, view.unstored(path))
    content = replace(
        last,
        turn=turn,
        tree_id=target.tree_id,
        root=target.root,
        links=target.links,
        next_ino=max(root.next_ino for root in (last, target, *abandoned)),
        next_seq=seq + len(pending),
        usage=target.usage,
    )
    ref, _ = builder.build(content)
    return ref


def _differences(reader: BlobReader, old: BlobId, new: BlobId) -> Iterator[tuple[bytes, Entry | None, Entry | None]]:
    """Yield the differences in an order that could be executed: a directory is removed after its content."""
    found = [difference for difference in tree.diff_trees(reader, old, new) if difference[0]]
    yield from reversed([difference for difference in found if difference[2] is None])
    yield from (difference for difference in found if difference[2] is not None)


def _record(entry: Entry | None, was: Entry | None, seq: int, turn: int, now_ms: int) -> Record:
    if entry is None:
        assert was is not None
        return Record(0, seq, now_ms, "delete", turn, was.kind)
    target = entry.target if entry.kind is Kind.SYMLINK else None
    return Record(0, seq, now_ms, "restore", turn, entry.kind, entry.content, target, mode=entry.mode)
