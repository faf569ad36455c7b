"""Trees that are whole, and are not what their content calls for: content must have one id only."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.ident import to_raw
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, NotFound
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.check.verify_maps import MapChecker
from chronicle.workspace.content.chunking import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, chunks, first_cut
from chronicle.workspace.content.content import Content, chunk_list, store_bytes
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import EMPTY, ROOT_DEFAULT, Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.ids import BlobId

BIG = random.Random(1).randbytes(700_000)
NAMES = [b"name-%04d" % number for number in range(2000)]


@pytest.fixture
def buffer() -> BlobBuffer:
    return BlobBuffer(MemoryBlobStore())


def file(buffer: BlobBuffer, data: bytes) -> Entry:
    return Entry(Kind.FILE, 0o644, content=store_bytes(buffer, data))


def listing(buffer: BlobBuffer, *pieces: bytes) -> Content:
    """Store content in the given chunks."""
    entries: dict[bytes, bytes | None] = {}
    end = 0
    for piece in pieces:
        end += len(piece)
        entries[end.to_bytes(8, "big")] = len(piece).to_bytes(4, "big") + to_raw(buffer.add(piece))
    root = nodes.update(buffer, None, entries)
    assert root is not None
    return Content(root, end, chunked=True)


def holding(buffer: BlobBuffer, *contents: Content) -> BlobId:
    """Store a tree of files with these contents."""
    found = {b"%d" % at: Entry(Kind.FILE, 0o644, content=content) for at, content in enumerate(contents)}
    return tree.update_tree(buffer, EMPTY, found)


def check(buffer: BlobBuffer, root: BlobId | None) -> None:
    assert root is not None
    TreeChecker(buffer).check_tree(root)


# -- what is sound -----------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(st.binary(min_size=1, max_size=40), st.none() | st.binary(max_size=900), max_size=60)))
def test_a_map_is_sound_however_it_was_built(edits: list[dict[bytes, bytes | None]]) -> None:
    buffer, root = BlobBuffer(MemoryBlobStore()), None
    checker = MapChecker(buffer)  # it goes on with what earlier versions shared
    for edit in edits:
        root = nodes.update(buffer, root, edit)
        checker.check(root)
        MapChecker(buffer).check(root)


def test_versions_of_large_maps_and_files_are_sound_and_shared_parts_are_read_once(buffer: BlobBuffer) -> None:
    reads = Counting(buffer.get)
    checker, noise = TreeChecker(reads), random.Random(2)
    root, data = EMPTY, BIG
    for _ in range(30):
        at = noise.randrange(len(data))
        data = data[:at] + noise.randbytes(noise.randrange(9)) + data[at + noise.randrange(9) :]
        changes: dict[bytes, Entry | None] = dict.fromkeys(noise.sample(NAMES, 9))
        changes.update({name: file(buffer, noise.randbytes(9)) for name in noise.sample(NAMES, 200)})
        root = tree.update_tree(buffer, root, {**changes, b"big": file(buffer, data)})
        checker.check_tree(root)
    assert reads.count == checker.blobs
    check(buffer, root)
    checker.check_tree(root)
    assert reads.count == checker.blobs


class Counting:
    """A reader that counts."""

    def __init__(self, get: Callable[[BlobId], bytes]) -> None:
        self._get = get
        self.count = 0

    def get(self, blob_id: BlobId) -> bytes:
        self.count += 1
        return self._get(blob_id)


def test_the_root_of_another_mode_is_sound(buffer: BlobBuffer) -> None:
    check(buffer, tree.update_tree(buffer, EMPTY, {b"": Entry(Kind.DIR, 0o700), b"a": file(buffer, b"x")}))
    check(buffer, EMPTY)


@given(st.binary(max_size=200), st.integers(1, 400_000))
def test_a_cut_is_known_from_the_chunk_alone(salt: bytes, size: int) -> None:
    data = (salt + BIG)[:size]
    parts = iter([data])
    pieces = list(chunks(lambda _: next(parts, b"")))
    assert [first_cut(piece) for piece in pieces[:-1]] == [len(piece) for piece in pieces[:-1]]
    assert first_cut(pieces[-1]) in (None, len(pieces[-1]))
    assert first_cut(data) == (len(pieces[0]) if len(pieces) > 1 else first_cut(pieces[0]))


def test_bytes_without_a_boundary_are_cut_at_the_largest_size() -> None:
    assert first_cut(b"") is None
    assert first_cut(bytes(MIN_CHUNK_BYTES)) is None
    cut = first_cut(b"\1" * MAX_CHUNK_BYTES)
    assert cut is None or cut <= MAX_CHUNK_BYTES
    assert first_cut(b"\1" * (MAX_CHUNK_BYTES + 1)) is not None


# -- what is not -------------------------------------------------------------------------------------------------------


def test_nodes_not_cut_by_their_content(buffer: BlobBuffer) -> None:
    entry = tree.encode_entry(file(buffer, b"x"))
    too_large = buffer.add(nodes.encode_node(0, NAMES[:200], [entry] * 200))
    with pytest.raises(Corrupt, match=f"directory /: node {too_large} is not cut"):
        check(buffer, too_large)
    halves = [NAMES[:3], NAMES[3:6]]
    children = [buffer.add(nodes.encode_node(0, half, [entry] * 3)) for half in halves]
    too_small = nodes.encode_node(1, [half[-1] for half in halves], [to_raw(child) for child in children])
    with pytest.raises(Corrupt, match="end where their content does not"):
        check(buffer, buffer.add(too_small))


def test_a_node_cut_too_early_is_found_at_the_end_of_what_was_read_before(buffer: BlobBuffer) -> None:
    """A node may end its level anywhere; the same node in front of others may not."""
    entry = tree.encode_entry(file(buffer, b"x"))
    alone = nodes.update(buffer, None, dict.fromkeys(NAMES[:3], entry))
    assert alone is not None
    after = buffer.add(nodes.encode_node(0, NAMES[3:6], [entry] * 3))
    both = buffer.add(nodes.encode_node(1, [NAMES[2], NAMES[5]], [to_raw(alone), to_raw(after)]))
    checker = TreeChecker(buffer)
    checker.check_tree(alone)
    with pytest.raises(Corrupt, match="end where their content does not"):
        checker.check_tree(both)


def test_levels_and_keys_that_do_not_fit(buffer: BlobBuffer) -> None:
    root = nodes.update(buffer, None, dict.fromkeys(NAMES, b"x" * 20))
    assert root is not None
    top = nodes.decode_node(buffer.get(root))
    raw = to_raw(root)
    spoilt = {
        "a level too many": nodes.encode_node(top.level + 1, top.keys[-1:], [raw]),
        "its place of level": nodes.encode_node(top.level + 2, [*top.keys[-1:], b"z"], [raw, raw]),
        "names the keys": nodes.encode_node(top.level, [*top.keys[:-1], b"zzz"], top.values),
        "out of order": nodes.encode_node(0, [b"b", b"a"], [b"", b""]),
        "something else": nodes.encode_node(0, ["b"], [b""]),  # type: ignore[list-item]
        "or something": nodes.encode_node(300, top.keys, top.values),
        "not cut": nodes.encode_node(0, (), ()),
        "keys out of": nodes.encode_node(True, top.keys, top.values),
        "encoded": b"\1\xdc\x00\x03" + nodes.encode_node(0, [b"a"], [b"b"])[2:],
    }
    for message, data in spoilt.items():
        with pytest.raises(Corrupt, match=message):
            MapChecker(buffer).check(buffer.add(data))


def test_entries_not_in_their_canonical_form(buffer: BlobBuffer) -> None:
    entry = tree.encode_entry(file(buffer, b"x"))
    loose = entry[:1] + b"\xdc\x00" + bytes([entry[1] & 15]) + entry[2:]
    for name, value in [
        (b"a/b", entry),
        (b"..", entry),
        (b"a", loose),
        (b".", entry),
        (b".", tree.encode_entry(ROOT_DEFAULT)),
    ]:
        with pytest.raises(Corrupt, match="the entry of"):
            check(buffer, nodes.update(buffer, None, {name: value}))


def test_contents_that_are_not_of_their_size(buffer: BlobBuffer) -> None:
    four = Content(buffer.add(b"four"), 4, chunked=False)
    with pytest.raises(Corrupt, match="the content of 1: blob .* has 4 bytes and should have 5"):
        check(buffer, holding(buffer, four, Content(four.id, 5, chunked=False)))
    big = store_bytes(buffer, BIG)
    with pytest.raises(Corrupt, match="the content of 1: .*is not one of 700001 bytes"):
        check(buffer, holding(buffer, big, Content(big.id, 700_001, chunked=True)))


def test_contents_cut_elsewhere_than_their_bytes_say(buffer: BlobBuffer) -> None:
    pieces = [buffer.get(chunk.id) for chunk in chunk_list(buffer, store_bytes(buffer, BIG))]
    assert listing(buffer, *pieces) == store_bytes(buffer, BIG)
    for spoilt in (
        listing(buffer, *pieces[:2], pieces[2] + pieces[3], *pieces[4:]),
        listing(buffer, *pieces[:2], pieces[2][:20_000], pieces[2][20_000:], *pieces[3:]),
        listing(buffer, BIG),
        listing(buffer, *pieces[:-1], pieces[-1][:100], pieces[-1][100:]),
    ):
        with pytest.raises(Corrupt, match="the content of 0: "):
            check(buffer, holding(buffer, spoilt))


def test_a_last_chunk_is_found_in_front_of_others_though_it_was_read_before(buffer: BlobBuffer) -> None:
    whole = store_bytes(buffer, BIG)
    pieces = [buffer.get(chunk.id) for chunk in chunk_list(buffer, whole)]
    spoilt = listing(buffer, *pieces, pieces[0])
    with pytest.raises(Corrupt, match="the content of 1: "):
        check(buffer, holding(buffer, whole, spoilt))


def test_chunk_lists_with_gaps(buffer: BlobBuffer) -> None:
    whole = store_bytes(buffer, BIG)
    items = list(nodes.items(buffer, whole.id))
    without_first = nodes.update(buffer, whole.id, {items[0][0]: None})
    without_one = nodes.update(buffer, whole.id, {items[2][0]: None})
    for root in (without_first, without_one):
        assert root is not None
        with pytest.raises(Corrupt, match="the content of 0: "):
            check(buffer, holding(buffer, Content(root, whole.size, chunked=True)))


def test_gaps_between_the_nodes_of_a_long_list(buffer: BlobBuffer) -> None:
    pieces = [bytes([number]) * MAX_CHUNK_BYTES for number in range(256)]
    pieces = [piece[: first_cut(piece)] for piece in pieces]
    long = listing(buffer, *pieces, b"end")
    top = nodes.decode_node(buffer.get(long.id))
    assert top.level == 1
    check(buffer, holding(buffer, long))
    second = nodes.decode_node(buffer.get(top.child(1)))
    gap = nodes.update(buffer, long.id, {second.keys[0]: None})
    assert gap is not None
    with pytest.raises(Corrupt, match="does not begin where"):
        check(buffer, holding(buffer, Content(gap, long.size, chunked=True)))


def test_a_missing_blob_is_named(buffer: BlobBuffer) -> None:
    root = holding(buffer, store_bytes(buffer, BIG))
    first = next(chunk_list(buffer, store_bytes(buffer, BIG))).id

    class Lacking:
        def get(self, blob_id: BlobId) -> bytes:
            if blob_id == first:
                raise NotFound(f"no blob {blob_id}")
            return buffer.get(blob_id)

    with pytest.raises(Corrupt, match=f"the content of 0: no blob {first}"):
        TreeChecker(Lacking()).check_tree(root)
