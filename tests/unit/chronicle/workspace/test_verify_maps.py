"""Reading back what a workspace's moments reach: nothing that they need may be missing unseen."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Corrupt, NotFound
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, TreeRef

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId


class Lacking:
    """A reader without one blob."""

    def __init__(self, reader: BlobReader, blob_id: BlobId) -> None:
        self._reader = reader
        self._blob_id = blob_id

    def get(self, blob_id: BlobId) -> bytes:
        if blob_id == self._blob_id:
            raise NotFound(f"no blob {blob_id}")
        return self._reader.get(blob_id)


class Counting:
    """A reader that counts what is asked of it."""

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self.asked = 0

    def get(self, blob_id: BlobId) -> bytes:
        self.asked += 1
        return self._reader.get(blob_id)


@pytest.fixture
def stored(tmp_path: Path) -> tuple[MemoryBlobStore, list[TreeRef]]:
    """Three turns of a workspace with everything in it, and the blobs they are kept in."""
    blobs, clock = MemoryBlobStore(), ManualClock()
    root = tmp_path / "work"
    root.mkdir()
    spec = LayerSpec("w", tmp_path / "layers", None, epoch=1, turn=1)
    workspace = open_dir_workspace(spec, blobs, root, clock).workspace
    refs = []
    noise = random.Random(5)

    def commit(turn: int) -> None:
        ref = workspace.seal()
        workspace.adopt(ref)
        refs.append(ref)
        clock.advance(10)
        workspace.begin_turn(turn + 1)

    big = noise.randbytes(400_000)
    (root / "big").write_bytes(big)
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/file").write_text("one")
    (root / "deep/link").symlink_to("er/file")
    for number in range(60):
        (root / f"many-{number:02}").write_text(str(number))
    commit(1)
    with (root / "big").open("r+b") as file:
        file.seek(200_000)
        file.write(b"changed")
    (root / "deep/er/file").write_text("two")
    (root / "many-07").unlink()
    os.link(root / "deep/er/file", root / "hard")
    commit(2)
    (root / "deep").rename(root / "moved")
    for number in range(20):
        (root / "often").write_text(f"version {number}")
        commit(3 + number)
    workspace.close()
    return blobs, refs


def check_all(reader: BlobReader, refs: list[TreeRef]) -> TreeChecker:
    checker = TreeChecker(reader)
    for ref in refs:
        checker.check(ref)
    return checker


def test_it_reads_every_blob_that_was_kept(stored: tuple[MemoryBlobStore, list[TreeRef]]) -> None:
    blobs, refs = stored
    assert check_all(blobs, refs).blobs == len(set(blobs.blob_ids()))


def test_it_misses_no_blob_and_says_what_it_was_part_of(stored: tuple[MemoryBlobStore, list[TreeRef]]) -> None:
    blobs, refs = stored
    reasons = set()
    for blob_id in blobs.blob_ids():
        with pytest.raises(Corrupt, match=blob_id) as caught:
            check_all(Lacking(blobs, blob_id), refs)
        reasons.add(str(caught.value).partition(":")[0])
    assert {"directory /", "the content of big", "the operation log", "the history of paths"} <= reasons
    assert {"the content of deep/er/file", "the history of often"} <= reasons


def test_what_was_read_once_is_not_read_again(stored: tuple[MemoryBlobStore, list[TreeRef]]) -> None:
    blobs, refs = stored
    counting = Counting(blobs)
    checker = check_all(counting, refs)
    first = counting.asked
    assert first < 2 * checker.blobs
    for ref in refs:
        checker.check(ref)
    assert counting.asked == first
