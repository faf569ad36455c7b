"""The root of a commit's metadata, all that is not content: the blob that `TreeRef.oplog_id` names.

One small blob a commit, linked to the previous one: this turn's operations, and the roots of the maps of the
attributes of every entry (inode numbers, times), the history of every path, the commits so far, and the names of
hard-linked files. All are maps of `chronicle.workspace.trees.nodes`, so a commit adds what changed and shares the rest.

The encoding is MessagePack, described in docs/internals/workspace.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.errors import Conflict, Corrupt, InvalidInput, UnsupportedFormat
from chronicle.workspace.paths import above
from chronicle.workspace.port import TreeRef, Usage
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.tree import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = [
    "ROOT_INO",
    "Attr",
    "Gap",
    "Operation",
    "OplogRoot",
    "add_root",
    "commit_at",
    "decode_attr",
    "encode_attr",
    "first_root",
    "operations",
    "put_commit",
    "read_root",
    "read_root_on",
    "storable_ns",
    "store_operations",
    "stored_operations",
]

FORMAT: Final = 1
"""Of operations and of commits."""
ROOT_INO: Final = 1
"""The inode number of every workspace's root, as in FUSE."""
OPERATIONS_PER_BLOB: Final = 1000
_TURN_KEY_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Attr:
    """The attributes of an entry besides its content: a value of a directory's map of attributes."""

    ino: int
    mtime_ns: int
    """Epoch nanoseconds."""
    ctime_ns: int
    links: int = 1
    """Its link count."""
    below: BlobId | None = None
    """Of a directory: the map of the attributes of its entries."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as ``.chronicle/log`` shows it."""

    seq: int
    timestamp_ms: int
    op: str
    turn: int
    path: bytes
    iteration: int
    size: int
    source: bytes | None = None


class Gap(NamedTuple):
    """Numbers that are skipped, because a rolled-back renaming of a directory gave them to paths below it."""

    directory: bytes
    """A path that was renamed, or renamed to."""
    seq: int
    """The sequence number of the rollback: paths whose last version is younger ignore the gap."""
    numbers: int
    """How many numbers each path below it may have been given."""


@dataclass(frozen=True, slots=True)
class OplogRoot:
    """A commit of a workspace."""

    turn: int
    tree_id: BlobId
    """Its content."""
    previous: BlobId | None
    """The commit before."""
    root: Attr
    """The root directory's own attributes; its `Attr.below` is the map of all others."""
    histories: BlobId | None
    """Path → `chronicle.workspace.history.path_histories.PathHistory`."""
    commits: BlobId | None
    """Turn → commit, this one not included; see `commit_at`."""
    links: BlobId | None
    """Inode number (8 bytes, big-endian) → the paths of a file that has several."""
    next_ino: int
    next_seq: int
    moved_seq: int
    """The seq of the last renaming of a directory; 0 if there never was one."""
    operations: tuple[BlobId, ...]
    """Blobs of this turn's operations, oldest first."""
    usage: Usage
    """The usage of its tree."""
    gaps: tuple[Gap, ...] = ()
    """See `Gap`; of all commits, oldest first."""
    kept_bytes: int = 0
    """Bytes of contents that all versions up to it have added, before compression; see `bytes_added_by`. It never
    falls, as no version is dropped, and a workspace that continues another one begins with its sum."""

    @property
    def is_first(self) -> bool:
        """Whether it is the empty state of a new workspace, which is not a commit."""
        return self.previous is None and self.tree_id == EMPTY

    @property
    def committed_turn(self) -> int:
        """The turn that it was committed at, 0 for none.

        The initial state of a new workspace is stored as of its first turn, but is not a commit.
        """
        return 0 if self.is_first else self.turn


def first_root(now_ns: int) -> OplogRoot:
    """Return the state before the first commit: an empty workspace."""
    root = Attr(ROOT_INO, now_ns, now_ns)
    return OplogRoot(0, EMPTY, None, root, None, None, None, ROOT_INO + 1, 1, 0, (), Usage(0, 0))


def add_root(buffer: nodes.NodeBuffer, root: OplogRoot) -> BlobId:
    """Add a commit to the buffer and return its id."""
    fields = (
        FORMAT,
        root.turn,
        to_raw(root.tree_id),
        _raw(root.previous),
        encode_attr(root.root),
        _raw(root.histories),
        _raw(root.commits),
        _raw(root.links),
        root.next_ino,
        root.next_seq,
        root.moved_seq,
        [to_raw(identifier) for identifier in root.operations],
        root.gaps,
        root.usage,
        root.kept_bytes,
    )
    return buffer.add(msgpack.packb(fields, use_bin_type=True))


def read_root(reader: BlobReader, oplog_id: BlobId) -> OplogRoot:
    """Return a commit.

    Raises:
        NotFound: no such blob.
        Corrupt: it is not a commit.
        UnsupportedFormat: written by a newer version.
    """
    data = reader.get(oplog_id)
    try:
        version, *fields = msgpack.unpackb(data, use_list=False)
        if isinstance(version, int) and version > FORMAT:
            raise UnsupportedFormat(f"a workspace's log has format {version}; this code reads {FORMAT}")
        turn, tree, previous, attr, histories, commits, links, *counters, ops, gaps, usage, kept_bytes = fields
        next_ino, next_seq, moved_seq = counters
        return OplogRoot(
            turn,
            from_raw(tree),
            _id(previous),
            decode_attr(attr),
            _id(histories),
            _id(commits),
            _id(links),
            next_ino,
            next_seq,
            moved_seq,
            tuple(from_raw(raw) for raw in ops),
            Usage(*usage),
            tuple(Gap(*gap) for gap in gaps),
            kept_bytes,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt(f"blob {oplog_id} is not a workspace's log") from error


def read_root_on(reader: BlobReader, ref: TreeRef, base: TreeRef) -> OplogRoot:
    """Return the commit of a tree that was sealed on top of a base, or is the base.

    The empty trees with which a workspace begins are one base.

    Raises:
        NotFound: no such commit.
        InvalidInput: the two ids are not of one commit.
        Conflict: it was sealed on top of another one.
    """
    root = read_root(reader, ref.oplog_id)
    if root.tree_id != ref.tree_id:
        raise InvalidInput(f"commit {ref.oplog_id} has tree {root.tree_id}, not {ref.tree_id}")
    if ref == base or root.previous == base.oplog_id:
        return root
    first = root if root.previous is None else read_root(reader, root.previous)
    if not (first.is_first and read_root(reader, base.oplog_id).is_first):
        raise Conflict(f"tree {ref.tree_id} was sealed on top of another commit than the base, {base.oplog_id}")
    return root


def storable_ns(time_ns: int) -> int:
    """Return a time, epoch nanoseconds, or the nearest one that fits into an integer of MessagePack: 1677 to 2554."""
    return min(max(time_ns, -(1 << 63)), (1 << 64) - 1)


def encode_attr(attr: Attr) -> bytes:
    """Return the canonical bytes of an entry's attributes."""
    packed: bytes = msgpack.packb((attr.ino, attr.mtime_ns, attr.ctime_ns, attr.links, _raw(attr.below)))
    return packed


def decode_attr(data: bytes) -> Attr:
    """Decode an entry's attributes.

    Raises:
        Corrupt: they are malformed.
    """
    try:
        ino, mtime_ns, ctime_ns, links, below = msgpack.unpackb(data, use_list=False)
        return Attr(ino, mtime_ns, ctime_ns, links, _id(below))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt(f"not an entry's attributes: {data[:16].hex()}") from error


def store_operations(buffer: nodes.NodeBuffer, done: Sequence[Operation]) -> tuple[BlobId, ...]:
    """Add operations to the buffer, oldest first, and return the ids of their blobs."""
    blobs = []
    for start in range(0, len(done), OPERATIONS_PER_BLOB):
        part = [
            (op.seq, op.timestamp_ms, op.op, op.turn, op.path, op.iteration, op.size, op.source)
            for op in done[start : start + OPERATIONS_PER_BLOB]
        ]
        blobs.append(buffer.add(msgpack.packb((FORMAT, part), use_bin_type=True)))
    return tuple(blobs)


def operations(reader: BlobReader, oplog_id: BlobId | None) -> Iterator[Operation]:
    """Yield every operation up to a commit, oldest first. The roots are read first, operations as they are yielded.

    Renaming a directory is one operation for its new path and one for its old path. Derived ones of paths below it,
    stored by some writers when such a path gets a version of its own, are left out.
    """
    last = 0
    for seq, group in groupby(_stored_by_all(reader, oplog_id), key=attrgetter("seq")):
        if seq > last:
            last = seq
            yield from _named(list(group))


def _named(done: list[Operation]) -> list[Operation]:
    """Return the parts of one operation, without derived ones of paths below the paths that it named."""
    if len(done) == 1:
        return done
    paths = {operation.path for operation in done}
    return [operation for operation in done if not any(directory in paths for directory in above(operation.path))]


def _stored_by_all(reader: BlobReader, oplog_id: BlobId | None) -> Iterator[Operation]:
    chain: list[tuple[BlobId, ...]] = []
    while oplog_id is not None:
        root = read_root(reader, oplog_id)
        if root.operations:
            chain.append(tuple(root.operations))
        oplog_id = root.previous
    while chain:
        yield from _operations_in(reader, chain.pop())


def stored_operations(reader: BlobReader, root: OplogRoot) -> Iterator[Operation]:
    """Yield the operations of one commit, oldest first."""
    return _operations_in(reader, root.operations)


def _operations_in(reader: BlobReader, identifiers: Sequence[BlobId]) -> Iterator[Operation]:
    for identifier in identifiers:
        _, part = msgpack.unpackb(reader.get(identifier), use_list=False)
        for fields in part:
            yield Operation(*fields)


def put_commit(buffer: nodes.NodeBuffer, commits: BlobId | None, turn: int, ref: TreeRef) -> BlobId | None:
    """Return the map of commits with one more put."""
    return nodes.update(buffer, commits, {_turn_key(turn): to_raw(ref.tree_id) + to_raw(ref.oplog_id)})


def commit_at(reader: BlobReader, commits: BlobId | None, turn: int) -> tuple[int, TreeRef] | None:
    """Return the last commit at or before a turn, and its turn; a turn that changed no file has none."""
    found = next(nodes.items(reader, commits, after=_turn_key(turn + 1)), None)
    if found is None:
        return None
    key, value = found
    return _TURN_KEY_MAX - int.from_bytes(key, "big"), TreeRef(from_raw(value[:32]), from_raw(value[32:]))


def _turn_key(turn: int) -> bytes:
    """Later turns sort first, so that the last one before a turn follows its key."""
    return (_TURN_KEY_MAX - turn).to_bytes(8, "big")


def _raw(identifier: BlobId | None) -> bytes | None:
    return to_raw(identifier) if identifier is not None else None


def _id(raw: bytes | None) -> BlobId | None:
    return from_raw(raw) if raw is not None else None
