"""How snapshots share structure, and which are kept."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import Corrupt
from chronicle.journal.snapshot_bodies import Kept, Manifest, kept_seqs, open_pack, plan


class Shelf:
    """Keeps packs as a store does."""

    def __init__(self) -> None:
        self.packs: dict[int, tuple[int, bytes]] = {}
        self.newest: Kept | None = None

    def put(self, body: bytes) -> int:
        """Store a body, and return how many bytes that took."""
        made = plan(body, self.newest, max(self.packs, default=0) + 1)
        for pack in made.packs:
            assert pack.number not in self.packs
            self.packs[pack.number] = (pack.size, pack.data)
        manifest = Manifest.from_bytes(made.manifest.to_bytes())
        assert manifest.body(self.load) == body
        self.newest = Kept(body, manifest, {number: self.packs[number][0] for number in manifest.packs()})
        return sum(len(pack.data) for pack in made.packs) + len(made.manifest.to_bytes())

    def load(self, number: int) -> bytes:
        """Return a pack's content."""
        size, data = self.packs[number]
        content = open_pack(data)
        assert len(content) == size
        return content


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def test_a_body_that_grows_costs_its_growth() -> None:
    shelf = Shelf()
    body = noise(0, 500_000)
    shelf.put(body)
    for seed in range(1, 11):
        body = b"%d" % seed + body[1:] + noise(seed, 2_000)
        assert shelf.put(body) < 50_000


def test_the_same_body_costs_nothing() -> None:
    shelf = Shelf()
    shelf.put(noise(0, 300_000))
    assert shelf.put(noise(0, 300_000)) < 100


def test_packs_that_are_mostly_dead_die_out() -> None:
    shelf = Shelf()
    body = noise(0, 1_000_000)
    for seed in range(1, 200):
        at = random.Random(seed).randrange(0, 950_000)
        body = body[:at] + noise(seed, 50_000) + body[at + 50_000 :]
        shelf.put(body)
    assert shelf.newest is not None
    live = shelf.newest.manifest.packs()
    assert sum(shelf.packs[number][0] for number in live) < 3_000_000


def test_large_bodies_take_several_packs() -> None:
    shelf = Shelf()
    shelf.put(noise(0, 9_000_000))
    assert len(shelf.packs) == 3


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 20_000), st.integers(0, 20_000)), max_size=8))
@settings(max_examples=50)
def test_any_sequence_of_edits(edits: list[tuple[int, int, int]]) -> None:
    shelf = Shelf()
    body = noise(0, 30_000)
    shelf.put(body)
    for seed, (at, removed, added) in enumerate(edits, 1):
        body = body[:at] + noise(seed, added) + body[at + removed :]
        shelf.put(body)


@given(st.sets(st.integers(0, 5_000)))
def test_which_are_kept(seqs: set[int]) -> None:
    kept = sorted(kept_seqs(seqs))
    assert set(kept) <= seqs
    if seqs:
        newest = max(seqs)
        assert (kept[0], kept[-1]) == (min(seqs), newest)
        assert len(kept) <= 2 + 2 * max(newest - min(seqs), 1).bit_length()
        assert kept_seqs(kept) == set(kept)


def test_keeping_one_by_one_stays_near_and_few() -> None:
    kept: set[int] = set()
    for seq in range(1, 10_001):
        kept = kept_seqs({*kept, seq})
    ordered = sorted(kept, reverse=True)
    assert len(ordered) < 30
    for newer, older in pairwise(ordered):
        assert newer - older <= max(10_000 - newer, 1)


@pytest.mark.parametrize("data", [b"", b"\x07abc", b"\x01not zstd"])
def test_damaged_packs(data: bytes) -> None:
    with pytest.raises(Corrupt):
        open_pack(data)


def test_a_damaged_manifest() -> None:
    with pytest.raises(Corrupt):
        Manifest.from_bytes(b"12345")
