"""Directory trees: encodings, updates of a few paths, differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, InvalidInput, UnsupportedFormat
from chronicle.ids import BlobId
from chronicle.workspace.content.content import Content, store_bytes
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.nodes.boundaries import MAX_NODE_BYTES
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind

DIR = Entry(Kind.DIR, 0o755)


@pytest.fixture
def buffer() -> BlobBuffer:
    return BlobBuffer(MemoryBlobStore())


def file(buffer: BlobBuffer, data: bytes = b"", mode: int = 0o644) -> Entry:
    return Entry(Kind.FILE, mode, content=store_bytes(buffer, data))


def paths(buffer: BlobBuffer, tree_id: BlobId) -> list[bytes]:
    return [path for path, _ in tree.walk(buffer, tree_id)]


# -- entries -----------------------------------------------------------------------------------------------------------

ids = st.binary(min_size=32, max_size=32).map(lambda raw: BlobId(raw.hex()))
modes = st.integers(0, 0o7777)
owners = st.none() | st.integers(0, 2**32 - 1)
xattrs = st.dictionaries(st.binary(min_size=1, max_size=20), st.binary(max_size=40), max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
sizes = st.integers(0, 2**50)
entries = st.one_of(
    st.builds(
        lambda identifier, size, mode, link, uid, gid, attrs: Entry(
            Kind.FILE,
            mode,
            content=Content(identifier, size, chunked=size > 65_536),
            link=link,
            uid=uid,
            gid=gid,
            xattrs=attrs,
        ),
        ids,
        sizes,
        modes,
        st.none() | st.binary(min_size=1, max_size=30),
        owners,
        owners,
        xattrs,
    ),
    st.builds(
        lambda sub, mode, uid, attrs: Entry(Kind.DIR, mode, subtree=sub, uid=uid, xattrs=attrs),
        ids,
        modes,
        owners,
        xattrs,
    ),
    st.builds(
        lambda target, gid: Entry(Kind.SYMLINK, 0o777, target=target, gid=gid),
        st.binary(min_size=1, max_size=50),
        owners,
    ),
    st.builds(Entry, st.sampled_from([Kind.FIFO, Kind.SOCKET]), modes, uid=owners, xattrs=xattrs),
    st.builds(Entry, st.sampled_from([Kind.CHAR, Kind.BLOCK]), modes, gid=owners, device=st.integers(0, (1 << 64) - 1)),
)


@given(entries, entries)
def test_entries_round_trip_and_are_canonical(one: Entry, other: Entry) -> None:
    assert tree.decode_entry(tree.encode_entry(one)) == one
    assert (tree.encode_entry(one) == tree.encode_entry(other)) == (one == other)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_entry_are_refused(data: bytes) -> None:
    try:
        entry = tree.decode_entry(data)
    except (Corrupt, UnsupportedFormat):
        return
    assert tree.decode_entry(tree.encode_entry(entry)) == entry


SOME_ID = BlobId("00112233445566778899aabbccddeeff" * 2)


@pytest.mark.parametrize(
    ("entry", "encoded"),
    [
        (
            Entry(Kind.FILE, 0o644, content=Content(SOME_ID, 5, chunked=False)),
            "019401cd01a405c42000112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        ),
        (
            Entry(Kind.FILE, 0o4755, content=Content(SOME_ID, 1 << 30, chunked=True), uid=1000, gid=0, link=b"a/b"),
            "019502cd09edce40000000c42000112233445566778899aabbccddeeff00112233445566778899aabbccddeeff8301cd03e8020003c403612f62",
        ),
        (
            Entry(Kind.DIR, 0o1777, subtree=SOME_ID),
            "019303cd03ffc42000112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        ),
        (Entry(Kind.SYMLINK, 0o777, target=b"../x"), "019304cd01ffc4042e2e2f78"),
        (Entry(Kind.FIFO, 0o600), "019205cd0180"),
        (
            Entry(Kind.SOCKET, 0o700, xattrs=((b"user.a", b"1"), (b"user.b", b""))),
            "019306cd01c081049292c406757365722e61c4013192c406757365722e62c400",
        ),
        (Entry(Kind.CHAR, 0o600, device=0x103), "019307cd0180cd0103"),
        (Entry(Kind.BLOCK, 0o660, gid=6, device=0x700), "019408cd01b0cd07008102" + "06"),
    ],
    ids=["file", "chunked", "dir", "symlink", "fifo", "socket", "char", "block"],
)
def test_golden_entries(entry: Entry, encoded: str) -> None:
    """These bytes are part of every tree id: a change here is a new format."""
    assert tree.encode_entry(entry).hex() == encoded
    assert tree.decode_entry(bytes.fromhex(encoded)) == entry


def test_a_newer_entry_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="this code reads"):
        tree.decode_entry(b"\x02\x92\x05\x00")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Entry(Kind.FILE, 0o644),
        lambda: Entry(Kind.FILE, 0o100644, content=Content(SOME_ID, 5, chunked=False)),
        lambda: Entry(Kind.DIR, -1),
        lambda: Entry(Kind.DIR, 0o755, target=b"x"),
        lambda: Entry(Kind.DIR, 0o755, link=b"x"),
        lambda: Entry(Kind.SYMLINK, 0o777),
        lambda: Entry(Kind.SYMLINK, 0o644, target=b"x"),
        lambda: Entry(Kind.FIFO, 0o644, subtree=SOME_ID),
        lambda: Entry(Kind.FIFO, 0o644, xattrs=((b"b", b""), (b"a", b""))),
        lambda: Entry(Kind.FIFO, 0o644, xattrs=((b"a", b""), (b"a", b""))),
        lambda: Entry(Kind.FIFO, 0o644, device=1),
        lambda: Entry(Kind.CHAR, 0o644),
        lambda: Entry(Kind.BLOCK, 0o644, device=-1),
    ],
    ids=range(13),
)
def test_entries_that_cannot_be_are_refused(make: Callable[[], Entry]) -> None:
    with pytest.raises(InvalidInput):
        make()


# -- trees -------------------------------------------------------------------------------------------------------------


def test_the_empty_tree(buffer: BlobBuffer) -> None:
    assert tree.update_tree(buffer, EMPTY, {}) == EMPTY
    assert list(tree.walk(buffer, EMPTY)) == []
    assert tree.entry_at(buffer, EMPTY, b"") == tree.ROOT_DEFAULT
    assert tree.entry_at(buffer, EMPTY, b"x") is None
    assert buffer.pending_bytes == 0


def test_golden_tree(buffer: BlobBuffer) -> None:
    made = tree.update_tree(
        buffer,
        EMPTY,
        {
            b"": Entry(Kind.DIR, 0o700),
            b"bin": DIR,
            b"bin/run": file(buffer, b"#!/bin/sh\n", 0o755),
            b"link": Entry(Kind.SYMLINK, 0o777, target=b"bin/run"),
            b"empty": DIR,
            b"big": file(buffer, bytes(1_000_000)),
        },
    )
    assert EMPTY == "202f3ed8e6704f5928c7b30bed14abddc8551e52f3e902a26a44768fd983b103"
    assert made == "fe337b228199e39df4fd1cab8483f8a57fa5b45ff74f111f374730abb46f88e3"


def test_changes_deep_down(buffer: BlobBuffer) -> None:
    one = tree.update_tree(buffer, EMPTY, {b"a": DIR, b"a/b": DIR, b"a/b/c": file(buffer, b"1"), b"z": file(buffer)})
    two = tree.update_tree(buffer, one, {b"a/b/c": file(buffer, b"2"), b"a/b/d": file(buffer, b"3")})
    assert paths(buffer, two) == [b"a", b"a/b", b"a/b/c", b"a/b/d", b"z"]
    assert tree.entry_at(buffer, two, b"a/b/c") == file(buffer, b"2")
    assert tree.entry_at(buffer, two, b"a/b/c/d") is None
    assert tree.entry_at(buffer, two, b"a/nope/c") is None
    assert tree.update_tree(buffer, two, {b"a/b/c": file(buffer, b"1"), b"a/b/d": None}) == one
    assert tree.update_tree(buffer, one, {b"a": None, b"z": None}) == EMPTY
    assert [name for name, _ in tree.list_dir(buffer, two, after=b"a")] == [b"z"]


def test_a_directory_moves_with_its_entry(buffer: BlobBuffer) -> None:
    old = tree.update_tree(
        buffer, EMPTY, {b"d": DIR, **{b"d/%d" % number: file(buffer, b"%d" % number) for number in range(1_000)}}
    )
    buffer.flush()
    moved = tree.entry_at(buffer, old, b"d")
    new = tree.update_tree(buffer, old, {b"d": None, b"e": moved, b"e/7": None, b"e/new": file(buffer)})
    assert buffer.pending_bytes < 20_000
    assert len(paths(buffer, new)) == 1_001
    assert tree.entry_at(buffer, new, b"e/8") == file(buffer, b"8")
    assert tree.entry_at(buffer, new, b"e/7") is None


def test_a_directory_without_a_subtree_keeps_what_is_below(buffer: BlobBuffer) -> None:
    old = tree.update_tree(buffer, EMPTY, {b"d": DIR, b"d/x": file(buffer)})
    chmodded = tree.update_tree(buffer, old, {b"d": Entry(Kind.DIR, 0o700)})
    assert paths(buffer, chmodded) == [b"d", b"d/x"]
    found = tree.entry_at(buffer, chmodded, b"d")
    assert found is not None
    assert found.mode == 0o700
    emptied = tree.update_tree(buffer, old, {b"d": replace(DIR, subtree=EMPTY), b"d/y": file(buffer)})
    assert paths(buffer, emptied) == [b"d", b"d/y"]
    was_file = tree.update_tree(buffer, old, {b"d/x": DIR, b"d/x/y": file(buffer)})
    assert paths(buffer, was_file) == [b"d", b"d/x", b"d/x/y"]


def test_removals_below_what_goes_anyway(buffer: BlobBuffer) -> None:
    old = tree.update_tree(buffer, EMPTY, {b"d": DIR, b"d/x": file(buffer)})
    assert tree.update_tree(buffer, old, {b"d": None, b"d/x": None, b"nope/x/y": None, b"nope": None}) == EMPTY
    replaced = tree.update_tree(buffer, old, {b"d": file(buffer), b"d/x": None})
    assert paths(buffer, replaced) == [b"d"]


@pytest.mark.parametrize("path", [b"nope/x", b"f/x", b"gone/x", b"nope/a/b"])
def test_nothing_is_put_where_no_directory_is(buffer: BlobBuffer, path: bytes) -> None:
    old = tree.update_tree(buffer, EMPTY, {b"f": file(buffer), b"gone": DIR})
    with pytest.raises(InvalidInput, match="no directory"):
        tree.update_tree(buffer, old, {b"gone": None, path: file(buffer)})


@pytest.mark.parametrize("path", [b"/", b"/a", b"a/", b"a//b", b".", b"..", b"a/../b", b"a/./b", b"a\0b", b"n" * 256])
def test_paths_that_cannot_be_are_refused(buffer: BlobBuffer, path: bytes) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name"):
        tree.update_tree(buffer, EMPTY, {b"a": DIR, path: file(buffer)})
    assert tree.entry_at(buffer, EMPTY, path) is None


def test_names_that_can_be(buffer: BlobBuffer) -> None:
    names = [b"n" * 255, b"\xff\xfe not utf-8", b"...", b" ", b"new\nline", b".chronicle"]
    made = tree.update_tree(buffer, EMPTY, {name: file(buffer, name) for name in names})
    assert paths(buffer, made) == sorted(names)


def test_the_root_has_attributes_of_its_own(buffer: BlobBuffer) -> None:
    plain = tree.update_tree(buffer, EMPTY, {b"x": file(buffer)})
    changed = tree.update_tree(buffer, plain, {b"": Entry(Kind.DIR, 0o700, xattrs=((b"user.k", b"v"),))})
    assert tree.entry_at(buffer, changed, b"") == Entry(Kind.DIR, 0o700, subtree=changed, xattrs=((b"user.k", b"v"),))
    assert paths(buffer, changed) == [b"x"]
    assert tree.entry_at(buffer, changed, b".") is None
    kept = tree.update_tree(buffer, changed, {b"y": file(buffer)})
    root = tree.entry_at(buffer, kept, b"")
    assert root is not None
    assert root.mode == 0o700
    assert tree.update_tree(buffer, changed, {b"": DIR}) == plain
    assert tree.update_tree(buffer, changed, {b"": replace(DIR, subtree=EMPTY)}) == EMPTY
    assert [path for path, _, _ in tree.diff_trees(buffer, plain, changed)] == [b""]
    for wrong in (None, file(buffer)):
        with pytest.raises(InvalidInput, match="root"):
            tree.update_tree(buffer, plain, {b"": wrong})


def test_very_deep_directories(buffer: BlobBuffer) -> None:
    changes: dict[bytes, Entry | None] = {}
    path = b""
    for _ in range(3_000):
        path = path + b"/d" if path else b"d"
        changes[path] = DIR
    changes[path + b"/f"] = file(buffer)
    deep = tree.update_tree(buffer, EMPTY, changes)
    assert tree.entry_at(buffer, deep, path + b"/f") == file(buffer)
    assert len(paths(buffer, deep)) == 3_001
    assert len(list(tree.diff_trees(buffer, EMPTY, deep))) == 3_001


def test_a_difference(buffer: BlobBuffer) -> None:
    old = tree.update_tree(
        buffer,
        EMPTY,
        {
            b"d": DIR,
            b"d/same": file(buffer),
            b"d/x": file(buffer, b"1"),
            b"gone": DIR,
            b"gone/y": file(buffer),
            b"t": DIR,
            b"t/z": file(buffer),
        },
    )
    changes = {b"d/x": file(buffer, b"2"), b"gone": None, b"new": DIR, b"new/n": file(buffer), b"t": file(buffer)}
    new = tree.update_tree(buffer, old, changes)
    differing = [
        (path, was and was.kind.value, now and now.kind.value) for path, was, now in tree.diff_trees(buffer, old, new)
    ]
    assert differing == [
        (b"d/x", "file", "file"),
        (b"gone", "dir", None),
        (b"gone/y", "file", None),
        (b"new", None, "dir"),
        (b"new/n", None, "file"),
        (b"t", "dir", "file"),
        (b"t/z", "file", None),
    ]


def test_a_batch_in_a_big_directory_touches_little() -> None:
    store = MemoryBlobStore()
    buffer = BlobBuffer(store)
    content = store_bytes(buffer, b"x")
    entry = Entry(Kind.FILE, 0o644, content=content)
    changes: dict[bytes, Entry | None] = {b"big": DIR}
    changes.update({b"big/name-%06d" % number: entry for number in range(20_000)})
    old = tree.update_tree(buffer, EMPTY, changes)
    buffer.flush()
    new = tree.update_tree(
        buffer, old, {b"big/name-%06d" % number: replace(entry, mode=0o600) for number in range(0, 20_000, 5_000)}
    )
    assert buffer.pending_bytes < 4 * 3 * MAX_NODE_BYTES
    assert len(list(tree.diff_trees(buffer, old, new))) == 4


def test_what_is_no_tree_is_corrupt(buffer: BlobBuffer) -> None:
    with pytest.raises(Corrupt):
        tree.entry_at(buffer, buffer.add(b"a file"), b"x")
    broken = nodes.update(buffer, None, {b"x": b"no entry"})
    assert broken is not None
    with pytest.raises(Corrupt, match="not a directory entry"):
        tree.entry_at(buffer, broken, b"x")
    assert blob_id(b"a file") != broken
