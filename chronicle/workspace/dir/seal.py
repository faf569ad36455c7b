"""Makes a commit of the result of a scan: the tree, the attributes and the histories of a plain directory.

Versions are per turn: one for each path that differs from the last seal. A file whose inode is at another path now, and
no longer at the old one, was renamed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chronicle.workspace.history import attributes, link_map
from chronicle.workspace.history.commit_builder import CommitBuilder
from chronicle.workspace.history.oplog import Attr, OplogRoot
from chronicle.workspace.history.path_histories import Record
from chronicle.workspace.history.view import HistoryView
from chronicle.workspace.port import Usage
from chronicle.workspace.trees import tree
from chronicle.workspace.trees.tree import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.blobs.buffer import BlobBuffer
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.dir.scan import Index
    from chronicle.workspace.port import TreeRef

__all__ = ["DirState", "commit_scan", "known_inos", "usage_of"]


@dataclass(frozen=True, slots=True)
class DirState:
    """The state that a scan is compared with."""

    index: Index
    """The scan of the last seal."""
    inos: dict[bytes, int]
    """The inode number of each path in the workspace, not in the host's file system."""
    commit: OplogRoot
    """The last seal."""
    base: TreeRef | None
    base_commit: OplogRoot
    floors: dict[bytes, int]
    turn: int
    now_ns: int


def commit_scan(buffer: BlobBuffer, state: DirState, found: Index) -> tuple[TreeRef, OplogRoot, dict[bytes, int]]:
    """Add the commit of a scan's result, following a state, to the buffer.

    Returns:
        the tree, its commit, and the inode number of each path.
    """
    found = _with_links(found)
    before = _with_links(state.index)
    changes: dict[bytes, Entry | None] = {}
    for path in before:
        if path not in found:
            changes[path] = None
    for path, seen in found.items():
        if path not in before or before[path].entry != seen.entry:
            changes[path] = seen.entry
    tree_id = tree.update_tree(buffer, state.commit.tree_id, changes)
    renamed = _renames(before, found)
    inos, next_ino = _inos(state, found, renamed)
    records, next_seq = _records(state, before, found, renamed)
    builder = _with_versions(buffer, state, records)
    root = state.commit.root
    below = attributes.update(buffer, root.below, _attributes(state, found, inos))
    content = replace(
        state.commit,
        turn=state.turn,
        tree_id=tree_id,
        root=replace(root, mtime_ns=state.now_ns, below=below),
        links=_link_map(buffer, found, inos),
        next_ino=next_ino,
        next_seq=next_seq,
        usage=usage_of(found),
    )
    ref, commit = builder.build(content)
    return ref, commit, inos


def usage_of(found: Index) -> Usage:
    """Return the usage of a directory."""
    first = [seen for path, seen in _with_links(found).items() if seen.entry.link in (None, path)]
    return Usage(sum(seen.entry.content.size for seen in first if seen.entry.content is not None), len(first))


def _with_links(index: Index) -> Index:
    """Return the index with `Entry.link` set for the names of hard-linked files."""
    names: dict[int, list[bytes]] = {}
    for path, seen in index.items():
        if seen.links > 1 and seen.entry.kind is not Kind.DIR:
            names.setdefault(seen.host_ino, []).append(path)
    shared = {path: min(paths) for paths in names.values() if len(paths) > 1 for path in paths}
    if not shared:
        return index
    return {
        path: replace(seen, entry=replace(seen.entry, link=shared[path])) if path in shared else seen
        for path, seen in index.items()
    }


def _renames(before: Index, found: Index) -> dict[bytes, bytes]:
    """Return the former paths of renamed files.

    Inode numbers are soon reused after a file is removed, so the content must be equal as well.
    """
    gone = {seen.host_ino: path for path, seen in before.items() if path not in found and seen.entry.content}
    renamed = {}
    for path, seen in found.items():
        source = gone.get(seen.host_ino)
        if path not in before and source is not None and before[source].entry.content == seen.entry.content:
            renamed[path] = source
            del gone[seen.host_ino]
    return renamed


def _inos(state: DirState, found: Index, renamed: Mapping[bytes, bytes]) -> tuple[dict[bytes, int], int]:
    """Assign every path its inode number: its former one, that of its former path, or a new one."""
    inos: dict[bytes, int] = {}
    by_link: dict[bytes, int] = {}
    moved = {state.inos[source] for source in renamed.values()}
    used: set[int] = set()
    next_ino = state.commit.next_ino
    for path, seen in found.items():
        link = seen.entry.link
        ino = by_link.get(link) if link is not None else None
        if ino is None:
            ino = state.inos.get(renamed.get(path, path))
            # Two files may come by one number: the replacement of a renamed file, a former link of it.
            if ino is None or ino in used or (ino in moved and path not in renamed):
                ino = next_ino
                next_ino += 1
        inos[path] = ino
        used.add(ino)
        if link is not None:
            by_link[link] = ino
    return inos, next_ino


def _attributes(state: DirState, found: Index, inos: Mapping[bytes, int]) -> dict[bytes, Attr | None]:
    """Return the changed attributes, by path."""
    changed: dict[bytes, Attr | None] = {path: None for path in state.index if path not in found}
    subdirs = Counter(path.rpartition(b"/")[0] for path, seen in found.items() if seen.entry.kind is Kind.DIR)
    names = Counter(seen.entry.link for seen in found.values())
    for path, seen in found.items():
        old = state.index.get(path)
        if old != seen or state.inos.get(path) != inos[path]:
            links = 2 + subdirs[path] if seen.entry.kind is Kind.DIR else 1
            if seen.entry.link is not None:
                links = names[seen.entry.link]
            changed[path] = Attr(inos[path], seen.mtime_ns, seen.ctime_ns, links)
    return changed


def _records(
    state: DirState, before: Index, found: Index, renamed: Mapping[bytes, bytes]
) -> tuple[dict[bytes, list[Record]], int]:
    """Return the new versions, by path, and the next sequence number."""
    records: dict[bytes, list[Record]] = {}
    seq = state.commit.next_seq
    now_ms = state.now_ns // 1_000_000
    for path, seen in found.items():
        old = before.get(path)
        op = _op(old.entry if old is not None else None, seen.entry, path, renamed, before)
        if op is None:
            continue
        source = renamed.get(path) if op == "rename" else None
        if op == "link":
            source = seen.entry.link
        target = seen.entry.target if seen.entry.kind is Kind.SYMLINK else None
        timestamp_ms = now_ms if op == "rename" else min(now_ms, seen.ctime_ns // 1_000_000)
        entry = seen.entry
        record = Record(
            0, seq, timestamp_ms, op, state.turn, entry.kind, entry.content, target, source, mode=entry.mode
        )
        records[path] = [record]
        seq += 1
    for path, seen in sorted(before.items(), reverse=True):  # the content of a directory before the directory
        if path not in found:
            records[path] = [Record(0, seq, now_ms, "delete", state.turn, seen.entry.kind)]
            seq += 1
    return records, seq


def _op(old: Entry | None, new: Entry, path: bytes, renamed: Mapping[bytes, bytes], before: Index) -> str | None:
    """Return the operation that explains a path's change, None if unchanged."""
    if old is None or old.kind is not new.kind:
        if path in renamed:
            return "rename"
        if new.link is not None and new.link != path and new.link in before:
            return "link"
        if new.kind is Kind.SYMLINK:
            return "symlink"
        if new.kind is Kind.DIR:
            return "mkdir"
        return "write" if new.content is not None and new.content.size else "create"
    if old.content != new.content:
        return "write"
    if old.target != new.target:
        return "symlink"
    if (old.mode, old.uid, old.gid) != (new.mode, new.uid, new.gid):
        return "mode"
    return "xattr" if old.xattrs != new.xattrs else None


def _with_versions(buffer: BlobBuffer, state: DirState, records: dict[bytes, list[Record]]) -> CommitBuilder:
    """Return a builder that has the new versions, and the floors of paths without any."""
    commit = state.commit
    view = HistoryView(buffer, commit, records, state.floors)
    builder = CommitBuilder(buffer, view, commit, state.base, state.base_commit)
    for path in records:
        builder.add_versions(path, view.unstored(path))
    for path, floor in state.floors.items():
        if path not in records:
            builder.add_versions(path, (), floor=floor)
    return builder


def _link_map(buffer: BlobBuffer, found: Index, inos: Mapping[bytes, int]) -> BlobId | None:
    names: dict[int, list[bytes]] = {}
    for path, seen in found.items():
        if seen.entry.link is not None:
            names.setdefault(inos[path], []).append(path)
    return link_map.update(buffer, None, names)


def known_inos(reader: BlobReader, commit: OplogRoot) -> dict[bytes, int]:
    """Return the inode number of every path in a commit."""
    return {path: attr.ino for path, attr in attributes.walk(reader, commit.root.below)}
