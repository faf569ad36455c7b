"""What a commit reads of the large files that changed: in proportion to the changes, not to the files."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from chronicle.workspace.layer.disk import data_file
from tests.unit.chronicle.workspace.layer.partial_node import CountingStore, Node, bytes_read

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.workspace.port import TreeRef

MIB = 1024 * 1024
SIZE = 24 * MIB
CONTENT = random.Random(5).randbytes(SIZE)
CHANGE_BYTES = 2 * MIB
"""What one change may cost: the chunks around it, as they are read ahead, and the list's nodes."""


def test_one_change_in_a_large_file_that_is_here(tmp_path: Path) -> None:
    node = _node(tmp_path)
    node.write(10 * MIB, b"x" * 4096)
    ref, read_bytes = _commit(node)
    assert read_bytes < CHANGE_BYTES
    assert _expected(node, ref) == CONTENT[: 10 * MIB] + b"x" * 4096 + CONTENT[10 * MIB + 4096 :]


def test_each_version_costs_what_it_changed(tmp_path: Path) -> None:
    node = _node(tmp_path)
    expected = [CONTENT]
    for number in range(8):
        data = bytes([number]) * 5000
        at = number * 3 * MIB - number
        node.write(at, data)
        expected.append(expected[-1][:at] + data + expected[-1][at + 5000 :])
    _, read_bytes = _commit(node)
    assert read_bytes < 8 * CHANGE_BYTES
    assert node.versions() == expected


def test_versions_of_a_file_that_is_new(tmp_path: Path) -> None:
    node = Node(tmp_path / "new", CountingStore(), None)
    node.close(node.layer.create(node.layer.root, b"large", 0o644, *node.layer.owner))
    expected = [b""]
    for number in range(8):
        data = bytes([number]) * (SIZE if number == 0 else 5000)
        node.write(0, data)
        expected.append(data + expected[-1][len(data) :])
    _, read_bytes = _commit(node)
    assert read_bytes < SIZE + 8 * CHANGE_BYTES
    assert node.versions() == expected


def test_what_follows_a_death_is_read_whole_once(tmp_path: Path) -> None:
    node = _node(tmp_path)
    node.write(MIB, b"before")
    node.die()
    for number in range(8):
        node.write(number * 2 * MIB, b"after")
    ref, read_bytes = _commit(node)
    assert SIZE < read_bytes < SIZE + 8 * CHANGE_BYTES
    assert _expected(node, ref) == node.read()


def test_a_file_that_was_cut_and_grew_again(tmp_path: Path) -> None:
    node = _node(tmp_path)
    handle = node.handle()
    node.layer.truncate(handle.node, 20 * MIB, handle)
    node.layer.write(handle, 23 * MIB, b"end")
    node.close(handle)
    ref, read_bytes = _commit(node)
    assert read_bytes < 4 * MIB + CHANGE_BYTES
    assert _expected(node, ref) == CONTENT[: 20 * MIB] + bytes(3 * MIB) + b"end"


def test_a_file_that_is_changed_all_over_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "_MAX_RANGES", 100)
    node = _node(tmp_path)
    handle = node.handle()
    expected = bytearray(CONTENT)
    for at in range(0, SIZE, 64 * 1024):
        node.layer.write(handle, at, b"!")
        expected[at] = ord("!")
    data = handle.node.data
    assert data is not None
    assert data.changes is None, "no more is remembered of it"
    node.close(handle)
    ref, read_bytes = _commit(node)
    assert read_bytes > SIZE
    assert _expected(node, ref) == expected


def _node(tmp_path: Path) -> Node:
    """Return a node that has all of a large, committed file on its disk."""
    node = Node(tmp_path / "node", CountingStore(), None)
    handle = node.layer.create(node.layer.root, b"large", 0o644, *node.layer.owner)
    node.layer.write(handle, 0, CONTENT)
    node.close(handle)
    node.commit()
    return node


def _commit(node: Node) -> tuple[TreeRef, int]:
    """Return the commit and how many bytes were read from files meanwhile."""
    before = bytes_read()
    return node.commit(), bytes_read() - before


def _expected(node: Node, ref: TreeRef) -> bytes:
    """Return what another node reads of the large file."""
    other = Node(node.directory.with_name("other"), node.store, ref)
    return other.read()
