"""What two trees changed of a third, against a model of paths and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.workspace.content.content import store_bytes
from chronicle.workspace.trees.three_way import Divergence, Side, three_way
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind, update_tree

if TYPE_CHECKING:
    from chronicle.ids import BlobId

Tree = dict[str, "str | int"]
"""Path → a file's text, or a directory's mode."""
MODES = (0o755, 0o700)
names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
edits = st.lists(st.tuples(paths, st.sampled_from([None, "1", "2", 0o755, 0o700])), max_size=8)


def edited(tree: Tree, changes: list[tuple[str, str | int | None]]) -> Tree:
    """Make changes as a file system lets them be made: what is below goes with a directory, parents are made."""
    tree = dict(tree)
    for path, value in changes:
        if isinstance(value, int) and isinstance(tree.get(path), int):
            tree[path] = value
            continue
        tree = {other: kept for other, kept in tree.items() if other != path and not other.startswith(path + "/")}
        parents = [path[:at] for at in range(len(path)) if path[at] == "/"]
        if value is None or any(isinstance(tree.get(parent), str) for parent in parents):
            continue
        tree.update({parent: tree.get(parent, 0o755) for parent in parents})
        tree[path] = value
    return tree


def stored(buffer: BlobBuffer, tree: Tree) -> BlobId:
    return update_tree(buffer, EMPTY, {path.encode(): entry(buffer, value) for path, value in tree.items()})


def entry(buffer: BlobBuffer, value: str | int) -> Entry:
    if isinstance(value, int):
        return Entry(Kind.DIR, value)
    return Entry(Kind.FILE, 0o644, store_bytes(buffer, value.encode()))


def value_of(buffer: BlobBuffer, found: Entry | None) -> str | int | None:
    if found is None:
        return None
    return found.mode if found.content is None else buffer.get(found.content.id).decode()


def naive(base: Tree, ours: Tree, theirs: Tree) -> dict[str, Side]:
    """The definition, path by path."""
    sides = {}
    for path in base.keys() | ours.keys() | theirs.keys():
        was, one, other = base.get(path), ours.get(path), theirs.get(path)
        if one == other == was:
            continue
        parents = [path[:at] for at in range(len(path)) if path[at] == "/"]

        def closed(tree: Tree, parents: list[str] = parents) -> bool:
            return any(tree.get(up) != base.get(up) and not isinstance(tree.get(up), int) for up in parents)

        if was not in (one, other):
            sides[path] = Side.BOTH if one == other else Side.CONFLICT
        elif one != was:
            sides[path] = Side.CONFLICT if one is not None and closed(theirs) else Side.OURS
        else:
            sides[path] = Side.CONFLICT if other is not None and closed(ours) else Side.THEIRS
    return sides


@settings(max_examples=400)
@given(edits, edits, edits)
def test_against_the_definition(
    first: list[tuple[str, str | int | None]],
    second: list[tuple[str, str | int | None]],
    third: list[tuple[str, str | int | None]],
) -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    base = edited({}, first)
    ours, theirs = edited(base, second), edited(base, third)
    ids = [stored(buffer, tree) for tree in (base, ours, theirs)]
    found = three_way(buffer, *ids)
    assert {item.path.decode(): item.side for item in found} == naive(base, ours, theirs)
    assert [item.path for item in found] == sorted((item.path for item in found), key=lambda path: path.split(b"/"))
    for item in found:
        path = item.path.decode()
        shown = [value_of(buffer, one) for one in (item.base, item.ours, item.theirs)]
        assert shown == [base.get(path), ours.get(path), theirs.get(path)]
    mirrored = {Side.OURS: Side.THEIRS, Side.THEIRS: Side.OURS}
    turned = three_way(buffer, ids[0], ids[2], ids[1])
    assert [(item.path, mirrored.get(item.side, item.side)) for item in turned] == [
        (item.path, item.side) for item in found
    ]
    if all(item.side is not Side.CONFLICT for item in found):
        # Both sides' changes make a tree, the same from wherever one begins.
        merged = dict(base)
        for item in found:
            value = value_of(buffer, item.merged)
            if value is None:
                merged.pop(item.path.decode(), None)
            else:
                merged[item.path.decode()] = value
        for path in merged:
            assert all(isinstance(merged[path[:at]], int) for at in range(len(path)) if path[at] == "/")
        expected = stored(buffer, merged)
        for start in ids:
            assert applied(buffer, start, found) == expected


def applied(buffer: BlobBuffer, start: BlobId, found: list[Divergence]) -> BlobId:
    changes: dict[bytes, Entry | None] = {}
    for item in found:
        made = item.merged
        changes[item.path] = Entry(Kind.DIR, made.mode) if made is not None and made.kind is Kind.DIR else made
    return update_tree(buffer, start, changes)


def test_only_what_differs_is_read() -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    base: Tree = {f"d{number}": 0o755 for number in range(300)}
    base |= {f"d{number}/f{other}": "x" for number in range(300) for other in range(20)}
    ids = [stored(buffer, tree) for tree in (base, base | {"d7/f1": "y"}, base | {"d8/new": "z"})]
    read: set[BlobId] = set()

    class Counting:
        def get(self, blob_id: BlobId) -> bytes:
            read.add(blob_id)
            return buffer.get(blob_id)

    found = three_way(Counting(), *ids)
    assert [(item.path, item.side) for item in found] == [(b"d7/f1", Side.OURS), (b"d8/new", Side.THEIRS)]
    assert len(read) < 30


def test_a_conflict_has_no_merge() -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    ids = [stored(buffer, {"a": value}) for value in ("0", "1", "2")]
    (found,) = three_way(buffer, *ids)
    assert found.side is Side.CONFLICT
    with pytest.raises(ValueError, match="in conflict"):
        _ = found.merged
