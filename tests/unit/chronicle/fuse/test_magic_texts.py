"""Texts of ``.chronicle`` that are made while they are read: the log of operations, and diffs."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.fuse.served.magic import Magic
from chronicle.fuse.served.magic_text import GeneratedText
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer

MANY = 12_000
"""Operations of a log of 1.5 MB."""


class Counting(MemoryBlobStore):
    """A store that counts what is read, and can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.away_after = -1

    def get(self, blob_id: BlobId) -> bytes:
        self.reads += 1
        if self.away_after >= 0:
            self.away_after -= 1
            if self.away_after < 0:
                raise Unavailable("made to fail")
        return super().get(blob_id)


@pytest.fixture
def blobs() -> Counting:
    return Counting()


@pytest.fixture
def layer(tmp_path: Path, blobs: Counting) -> Iterator[Layer]:
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), blobs, ManualClock())
    yield layer
    layer.close()


def make(layer: Layer, name: str) -> None:
    layer.make(layer.root, name.encode(), 0o40755, *layer.owner)


def log(layer: Layer) -> Any:
    magic = Magic(layer)
    entry = magic.lookup(magic.root().ino, b"log")
    assert entry is not None
    return magic.open(entry)


def whole(file: Any) -> bytes:
    file.seek(0)
    parts = []
    while part := file.read(100_000):
        parts.append(part)
    return b"".join(parts)


def read_on(file: Any, into: bytearray) -> None:
    while part := file.read(100_000):
        into += part


def paths(text: bytes | bytearray) -> list[str]:
    return [json.loads(line)["path"] for line in text.splitlines()]


def fill(layer: Layer) -> list[str]:
    """Make a log of which the end is not sealed yet."""
    names = [f"directory-{number}" for number in range(MANY)]
    for number, name in enumerate(names, start=1):
        make(layer, name)
        if number % (MANY // 4) == 0 and number < MANY:
            layer.adopt(layer.seal())
    return names


def test_a_log_is_of_the_moment_at_which_it_was_opened(layer: Layer) -> None:
    make(layer, "a")
    layer.adopt(layer.seal())
    make(layer, "b")
    make(layer, "c")
    opened = log(layer)
    layer.adopt(layer.seal())
    make(layer, "d")
    for _ in range(2):
        assert paths(whole(opened)) == ["a", "b", "c"]
    layer.rollback()
    assert paths(whole(log(layer))) == ["a", "b", "c"]
    assert [json.loads(line)["seq"] for line in whole(opened).splitlines()] == [1, 2, 3]


def test_any_part_of_a_long_log_is_read_in_any_order(layer: Layer, blobs: Counting) -> None:
    names = fill(layer)
    file = log(layer)
    reads = blobs.reads
    file.seek(0)
    assert file.read(50).startswith(b'{"seq": 1,')
    assert blobs.reads - reads < 10, "the beginning does not need the rest"
    text = whole(file)
    assert paths(text) == names
    rng = random.Random(1)
    for _ in range(30):
        at, size = rng.randrange(len(text) + 10), rng.randrange(200_000)
        file.seek(at)
        assert file.read(size) == text[at : at + size]
    file.seek(len(text) + 1)
    assert file.read(10) == b""


def test_a_log_that_is_read_through_is_not_kept() -> None:
    line = b"x" * 999 + b"\n"
    file = GeneratedText(lambda: (line for _ in range(10_000)))
    text = whole(file)
    assert text == line * 10_000
    assert len(file._window) < len(text) / 3
    assert file._window_at + len(file._window) == len(text)


def test_what_failed_is_no_end_of_the_log(layer: Layer, blobs: Counting) -> None:
    names = fill(layer)
    file = log(layer)
    file.seek(0)
    blobs.away_after = 8
    got = bytearray()
    with pytest.raises(Unavailable):
        read_on(file, got)
    assert len(got) > 100_000
    assert paths(got[: got.rindex(b"\n")]) != names
    read_on(file, got)
    assert paths(got) == names
