"""Large files whose content is elsewhere, or was fetched, in random stories of writes, holes, deaths, commits and moves
to other nodes.

`tests/unit/chronicle/workspace/layer/test_partial_files.py` and `tests/unit/chronicle/workspace/test_seal_costs.py`
have the cases one by one.
"""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.system import boot as system_boot
from chronicle.system.fallocate import KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.content.content import store_bytes
from chronicle.workspace.content.ranges import Ranges
from chronicle.workspace.layer import file_data
from tests.layers import abandon
from tests.unit.chronicle.workspace.layer.partial_node import Node, stored_elsewhere

SMALL = random.Random(3).randbytes(300_000)
BEGINS = st.sampled_from([0, 1, 4096, 50_000, 70_001, 131_072, 299_990, 300_000, 310_000])
LENGTHS = st.sampled_from([1, 10, 4096, 5000, 40_000, 200_000])
ACTS = st.one_of(
    st.tuples(st.just("write"), BEGINS, LENGTHS),
    st.tuples(st.just("write"), BEGINS, LENGTHS),
    st.tuples(st.just("truncate"), st.sampled_from([1, 5000, 80_000, 299_999, 300_001, 400_000]), st.just(0)),
    st.tuples(st.sampled_from(["punch", "zero", "zero and keep", "allocate"]), BEGINS, LENGTHS),
    st.tuples(
        st.sampled_from(["flush", "flush", "die", "close", "sync", "commit", "seal", "elsewhere"]),
        st.just(0),
        st.just(0),
    ),
)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9))), st.integers(0, 70))
def test_ranges_are_a_set_of_offsets(added: list[tuple[int, int]], offset: int) -> None:
    ranges, offsets = Ranges(), set()
    for start, length in added:
        ranges.add(start, start + length)
        offsets |= set(range(start, start + length))
    pairs = list(ranges)
    assert {one for start, end in pairs for one in range(start, end)} == offsets
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(pairs)), "none touch"
    stop, inside = ranges.run(offset)
    assert inside == (offset in offsets)
    assert all((one in offsets) == inside for one in range(offset, min(stop, 100)))
    assert stop > 100 or (stop in offsets) != inside
    assert list(Ranges(ranges)) == pairs


@pytest.mark.parametrize("fetched_bytes", [100_000, 1_000_000], ids=["in part", "whole"])
@settings(max_examples=150, deadline=None)
@given(acts=st.lists(ACTS, min_size=3, max_size=25))
def test_whatever_is_done_every_version_is_what_it_was(fetched_bytes: int, acts: list[tuple[str, int, int]]) -> None:
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_data, "_FETCHED_BYTES", fetched_bytes)
        store, base = stored_elsewhere(Path(home, "there"), SMALL)
        story = _Story(Node(Path(home, "node 0"), store, base), Path(home))
        for number, (act, offset, length) in enumerate(acts):
            story.do(act, offset, bytes([1 + number]) * length)
            story.look()
        story.do("flush", 0, b"")
        ref = story.node.commit()
        assert files_in(store, ref.tree_id)["large"] == story.content
        story.look()
        story.node.layer.close()


@pytest.mark.parametrize("fetched_bytes", [100_000, 1_000_000], ids=["in part", "whole"])
@settings(max_examples=100, deadline=None)
@given(acts=st.lists(ACTS, min_size=2, max_size=12), left=st.integers(0, 400_000))
def test_a_loss_of_power_leaves_what_can_be_committed(
    fetched_bytes: int, acts: list[tuple[str, int, int]], left: int
) -> None:
    """Whatever is lost of the data files: versions are as long as they were, and all that is committed is there."""
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_data, "_FETCHED_BYTES", fetched_bytes)
        store, base = stored_elsewhere(Path(home, "there"), SMALL)
        story = _Story(Node(Path(home, "node 0"), store, base), Path(home))
        for number, (act, offset, length) in enumerate(acts):
            story.do(act, offset, bytes([1 + number]) * length)
        node = story.node
        abandon(node.layer)
        for path in (node.directory / "w" / str(node.epoch) / "data").iterdir():
            os.truncate(path, min(path.stat().st_size, left))
        patch.setattr(system_boot, "_BOOT_ID", Path(home, "boot"))
        Path(home, "boot").write_text("another boot")
        node.open()
        ref = node.commit()
        TreeChecker(store).check(ref)
        assert files_in(store, ref.tree_id)["large"] == node.read()
        expected = [len(version) for version in story.versions]
        assert [len(version) for version in node.versions()][: len(expected)] == expected
        node.layer.close()


class _Story:
    def __init__(self, node: Node, home: Path) -> None:
        self.node, self.home = node, home
        self.content = SMALL
        self.versions = [SMALL]
        self.unversioned = False
        self.nodes = 1
        self.handle = node.handle()

    def look(self) -> None:
        layer, handle = self.node.layer, self.handle
        assert layer.read(handle, 0, 1 << 20) == self.content
        assert layer.read(handle, 60_000, 100_000) == self.content[60_000:160_000]
        assert handle.node.size == len(self.content)
        assert self.node.versions() == self.versions

    def settle(self) -> None:
        if self.unversioned:
            self.versions.append(self.content)
            self.unversioned = False

    def put(self, offset: int, data: bytes) -> None:
        before = self.content.ljust(offset, b"\0")
        self.content = before[:offset] + data + before[offset + len(data) :]
        self.unversioned = True

    def do(self, act: str, offset: int, data: bytes) -> None:
        node, layer = self.node, self.node.layer
        match act:
            case "write":
                layer.write(self.handle, offset, data)
                self.put(offset, data)
            case "truncate":
                layer.truncate(self.handle.node, offset, self.handle)
                if offset != len(self.content):
                    self.content = self.content[:offset].ljust(offset, b"\0")
                    self.unversioned = True
            case "punch" | "zero and keep":
                mode = KEEP_SIZE | (PUNCH_HOLE if act == "punch" else ZERO_RANGE)
                layer.allocate(self.handle, mode, offset, len(data))
                if offset < len(self.content):
                    self.put(offset, bytes(min(len(data), len(self.content) - offset)))
            case "zero" | "allocate":
                layer.allocate(self.handle, ZERO_RANGE if act == "zero" else 0, offset, len(data))
                if act == "zero" and offset < len(self.content):
                    self.put(offset, bytes(len(data)))
                elif offset + len(data) > len(self.content):
                    self.put(offset + len(data), b"")
            case "flush":
                layer.flush(self.handle)
                self.settle()
            case "sync":
                layer.fsync(self.handle.node)
            case "close":
                node.close(self.handle)
                self.settle()
                layer.close()
                node.open()
                self.handle = node.handle()
            case "die":
                node.die()
                self.handle = node.handle()
                # What was written and not closed is a version of its own from then on.
                self.handle.wrote = self.unversioned
            case "commit" | "seal" | "elsewhere":
                ref = layer.seal()
                self.settle()
                assert files_in(node.store, ref.tree_id)["large"] == self.content
                assert self.handle.node.content == store_bytes(BlobBuffer(MemoryBlobStore()), self.content)
                if act != "seal":
                    node.base = ref
                    layer.adopt(ref)
                if act == "elsewhere":
                    node.close(self.handle)
                    layer.close()
                    self.node = Node(self.home / f"node {self.nodes}", node.store, ref)
                    self.nodes += 1
                    self.handle = self.node.handle()
