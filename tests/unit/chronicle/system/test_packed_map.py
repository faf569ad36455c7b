"""A map in arrays is what a dictionary is."""

from __future__ import annotations

import random

import pytest

from chronicle import packed_map
from chronicle.packed_map import PackedMap


@pytest.mark.parametrize("seed", range(6))
def test_it_is_a_dictionary(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(packed_map, "_FRESH", seed * 3)
    rng = random.Random(seed)
    packed, model = PackedMap(), dict[int, bytes]()
    span = 10 ** rng.randint(1, 3)
    for step in range(5_000):
        key = rng.randrange(span) if seed % 2 else (1 << 63) + step - rng.randrange(span)
        match rng.randrange(8):
            case 0 | 1 | 2:
                model[key] = rng.randbytes(rng.randrange(5))
                packed.put(key, model[key])
            case 3 | 4 | 5:
                assert packed.pop(key) == model.pop(key, None)
            case 6:
                packed.pack()
            case _:
                assert dict(packed.items()) == model
        assert packed.get(key) == model.get(key)
        assert (key in packed) == (key in model)
        assert len(packed) == len(model)


def test_what_was_taken_out_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_map, "_FRESH", 10)
    packed = PackedMap()
    for key in range(10_000):
        packed.put(key, b"some value")
    packed.pack()
    for key in range(10_000):
        assert packed.pop(key) == b"some value"
    assert len(packed) == 0
    assert len(packed._data) < 1_000
