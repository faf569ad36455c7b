"""The ordered map of blobs: equal content has an equal root, and edits cost what they touch."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, NotFound, UnsupportedFormat
from chronicle.ids import BlobId
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.nodes.boundaries import MAX_NODE_BYTES


class Counting(BlobBuffer):
    """A buffer that counts the nodes read and written through it."""

    def __init__(self) -> None:
        super().__init__(MemoryBlobStore())
        self.reads = 0
        self.writes = 0

    def get(self, blob_id: BlobId) -> bytes:
        self.reads += 1
        return super().get(blob_id)

    def add(self, data: bytes) -> BlobId:
        self.writes += 1
        return super().add(data)


def numbered(count: int) -> dict[bytes, bytes]:
    return {f"name-{number:06}".encode(): number.to_bytes(40, "big") for number in range(count)}


keys = st.one_of(
    st.integers(0, 3000).map(lambda number: b"%d" % number),
    st.binary(max_size=40),
    st.integers(0, 50).map(lambda number: b"long" * 200 + b"%d" % number),
)
values = st.one_of(st.binary(max_size=60), st.just(b"v" * 5_000), st.just(b"w" * 20_000))
maps = st.dictionaries(keys, values, max_size=150)


@given(maps, st.lists(st.dictionaries(keys, st.none() | values, max_size=60), max_size=6), st.randoms())
def test_the_root_depends_on_content_alone(
    start: dict[bytes, bytes], steps: list[dict[bytes, bytes | None]], rnd: random.Random
) -> None:
    buffer = Counting()
    model = dict(start)
    root = nodes.update(buffer, None, model)
    for edits in steps:
        before, old = dict(model), root
        root = nodes.update(buffer, root, edits)
        for key, value in edits.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        assert list(nodes.items(buffer, root)) == sorted(model.items())
        changed = {key: (before.get(key), model.get(key)) for key in {*before, *model}}
        expected = [(key, was, now) for key, (was, now) in sorted(changed.items()) if was != now]
        assert list(nodes.diff(buffer, old, root)) == expected
    assert root == nodes.update(buffer, None, model)
    one_by_one = None
    shuffled = list(model.items())
    rnd.shuffle(shuffled)
    for key, value in shuffled:
        one_by_one = nodes.update(buffer, one_by_one, {key: value})
    assert one_by_one == root
    assert nodes.update(buffer, root, dict.fromkeys(model)) is None


@given(maps, st.lists(keys, max_size=20))
def test_nodes_that_are_kept_say_the_same(content: dict[bytes, bytes], wanted: list[bytes]) -> None:
    buffer = Counting()
    root = nodes.update(buffer, None, content)
    kept = nodes.NodeCache(buffer, most=64)
    asked = [*wanted, *content, b""]
    assert [kept.lookup(root, key) for key in asked] == [content.get(key) for key in asked]
    assert [kept.after(root, key) for key in asked] == [next(nodes.items(buffer, root, key), None) for key in asked]
    reads = buffer.reads
    for key in asked:
        kept.lookup(root, key)
    assert buffer.reads == reads, "so few nodes are all kept"


@given(maps, st.lists(keys, max_size=20))
def test_lookups(content: dict[bytes, bytes], wanted: list[bytes]) -> None:
    buffer = Counting()
    root = nodes.update(buffer, None, content)
    asked = [*wanted, *content]
    assert {key: nodes.lookup(buffer, root, key) for key in asked} == {key: content.get(key) for key in asked}
    assert nodes.lookup_many(buffer, root, asked) == content
    for after in wanted:
        assert list(nodes.items(buffer, root, after)) == sorted(item for item in content.items() if item[0] > after)


@given(st.dictionaries(st.integers(0, 100_000).map(lambda number: b"%06d" % number), st.binary(max_size=80)))
def test_nodes_keep_to_their_sizes(content: dict[bytes, bytes]) -> None:
    buffer = Counting()
    root = nodes.update(buffer, None, content)
    for _, node in nodes.walk(buffer, root, set()):
        size = len(nodes.encode_node(node.level, node.keys, node.values))
        assert len(node.keys) >= 1
        assert list(node.keys) == sorted(set(node.keys))
        assert size < MAX_NODE_BYTES + 300


def test_an_edit_costs_a_path() -> None:
    buffer = Counting()
    root = nodes.update(buffer, None, numbered(100_000))
    assert root is not None
    height = nodes.decode_node(buffer.get(root)).level + 1
    assert height <= 4
    chosen = random.Random(7).sample(range(100_000), 10)
    for number in chosen:
        buffer.reads = buffer.writes = 0
        key = f"name-{number:06}".encode()
        root = nodes.update(buffer, root, {key: b"replaced, and longer than it was before"})
        root = nodes.update(buffer, root, {key: None})
        root = nodes.update(buffer, root, {key: number.to_bytes(40, "big")})
        assert buffer.writes <= 3 * 2 * height
        assert buffer.reads <= 3 * 3 * height
    assert root == nodes.update(Counting(), None, numbered(100_000))


def test_an_edit_that_changes_nothing_writes_nothing() -> None:
    buffer = Counting()
    content = numbered(5_000)
    root = nodes.update(buffer, None, content)
    buffer.writes = 0
    same: Mapping[bytes, bytes | None] = {key: content[key] for key in list(content)[::100]}
    assert nodes.update(buffer, root, {**same, b"not there": None}) == root
    assert nodes.update(buffer, root, {}) == root
    assert buffer.writes == 0


def test_only_nodes_of_the_new_map_are_written() -> None:
    buffer = Counting()
    content = numbered(5_000)
    root = nodes.update(buffer, None, content)
    for keep in (3_000, 100, 3, 1):
        store = MemoryBlobStore()
        shrunk = BlobBuffer(store)
        after = nodes.update(_Both(shrunk, buffer), root, dict.fromkeys(list(content)[keep:]))
        shrunk.flush()
        reachable = {identifier for identifier, _ in nodes.walk(_Both(shrunk, buffer), after, set())}
        assert set(store.blob_ids()) <= reachable


class _Both:
    """Adds to one buffer and reads from two."""

    def __init__(self, new: BlobBuffer, old: BlobBuffer) -> None:
        self._new = new
        self._old = old

    def add(self, data: bytes) -> BlobId:
        return self._new.add(data)

    def get(self, blob_id: BlobId) -> bytes:
        try:
            return self._old.get(blob_id)
        except NotFound:
            return self._new.get(blob_id)


def test_a_diff_reads_what_differs() -> None:
    buffer = Counting()
    content = numbered(100_000)
    old = nodes.update(buffer, None, content)
    new = nodes.update(buffer, old, {b"name-050000": b"x", b"name-070000": None, b"name-0700005": b"y"})
    buffer.reads = 0
    assert [key for key, _, _ in nodes.diff(buffer, old, new)] == [b"name-050000", b"name-070000", b"name-0700005"]
    assert buffer.reads < 30
    buffer.reads = 0
    assert list(nodes.diff(buffer, new, new)) == []
    assert buffer.reads == 0


def test_a_walk_skips_what_was_seen() -> None:
    buffer = Counting()
    old = nodes.update(buffer, None, numbered(20_000))
    seen: set[BlobId] = set()
    assert len(list(nodes.walk(buffer, old, seen))) > 100
    new = nodes.update(buffer, old, {b"name-010000": None})
    assert 1 <= len(list(nodes.walk(buffer, new, seen))) <= 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x93",
        b"\x01\x93\x00\x91\xc4\x01a\x90",
        b"\x01\xc0",
        b"some text",
        b"\x01\x93\x01\x91\xc4\x01a\x91\xc4\x01b",
    ],
)
def test_what_is_no_node_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt, match="not a tree node"):
        nodes.decode_node(data)


def test_a_newer_node_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="this code reads"):
        nodes.decode_node(b"\x02" + nodes.encode_node(0, [b"k"], [b"v"])[1:])


def test_golden_node() -> None:
    encoded = nodes.encode_node(0, [b"a", b"name"], [b"", b"\x00\xff"])
    assert encoded.hex() == "01930092c40161c4046e616d6592c400c40200ff"
    assert nodes.decode_node(encoded) == nodes.Node(0, (b"a", b"name"), (b"", b"\x00\xff"))


@pytest.mark.parametrize(
    ("count", "root", "node_count"),
    [
        (1, "629ee73a429168ebb384cefb086812198b5b28cf6a77c9e54233a2a20bf9390c", 1),
        (100, "8fecb80743bf6810e9437f9cd54c922b447212d8ac31c2cc2cd3952fcd53c522", 1),
        (10_000, "072ec46ca47531186b9ee6dd5fe663a885dc4d369fac69a4c618e020a46885f0", 207),
    ],
)
def test_golden_roots(count: int, root: str, node_count: int) -> None:
    """Boundaries and bytes are part of every tree id: a change here is a new format, not a new expectation."""
    buffer = Counting()
    made = nodes.update(buffer, None, numbered(count))
    assert (made, len(list(nodes.walk(buffer, made, set())))) == (root, node_count)
