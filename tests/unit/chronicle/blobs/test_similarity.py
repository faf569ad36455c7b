"""Which blobs are recognised as alike."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs.gc.similarity import runs_of_similar, sketch
from chronicle.testing.blob_contract import named
from chronicle.workspace.trees import nodes

SEED = random.Random(3)
WORDS = [SEED.randbytes(6).hex() for _ in range(300)]


def source_file(number: int) -> list[str]:
    source = random.Random(number)
    return [" ".join(source.choices(WORDS, k=6)) for _ in range(200)]


def edited(lines: list[str], number: int) -> list[str]:
    changed = list(lines)
    changed[random.Random(number).randrange(len(lines))] = f"this line was changed in version {number}"
    return changed


def runs(blobs: dict[str, bytes], most_bytes: int = 10**6, most: int = 64) -> list[set[str]]:
    found = [(sketch(data), len(data), name.encode()) for name, data in blobs.items()]
    return [{name.decode() for name in run} for run, _ in runs_of_similar(found, most_bytes, most)]


def test_versions_of_a_file_come_together_and_other_files_do_not() -> None:
    blobs = {}
    for number in range(20):
        lines = source_file(number)
        for version in range(5):
            blobs[f"{number}.{version}"] = "\n".join(lines).encode()
            lines = edited(lines, 100 * number + version)
    found = runs(blobs)
    assert all(len({name.partition(".")[0] for name in run}) == 1 for run in found)
    assert len(found) <= 25  # a change may hit a line that the sketch is made of


def test_versions_of_a_node_come_together() -> None:
    made: dict[bytes, bytes] = {}

    class Buffer:
        def add(self, data: bytes) -> object:
            ((identifier, _),) = named(data).items()
            made[data] = b""
            return identifier

    blobs = {}
    for number in range(5):
        items = {b"%d name of a file %d" % (number, n): SEED.randbytes(40) for n in range(15)}
        for version in range(4):
            made.clear()
            nodes.update(Buffer(), None, dict(items))  # type: ignore[arg-type]
            (node,) = made
            blobs[f"{number}.{version}"] = node
            items[b"%d name of a file %d" % (number, version)] = SEED.randbytes(40)
    found = runs(blobs)
    assert all(len({name.partition(".")[0] for name in run}) == 1 for run in found)
    assert len(found) <= 10


def test_what_has_no_pieces_stays_alone() -> None:
    assert sketch(b"") == sketch(b"short") == b""
    assert sorted(map(sorted, runs({"a": b"", "b": b"x", "c": b"\n" * 100}))) == [["a"], ["b"], ["c"]]


@given(st.lists(st.binary(max_size=400), max_size=30), st.integers(1, 1000), st.integers(1, 5))
def test_everything_comes_once_and_runs_are_bounded(blobs: list[bytes], most_bytes: int, most: int) -> None:
    names = {str(number): data for number, data in enumerate(blobs)}
    found = runs(names, most_bytes, most)
    assert sorted(name for run in found for name in run) == sorted(names)
    for run in found:
        assert len(run) <= most
        assert len(run) == 1 or sum(len(names[name]) for name in run) <= most_bytes
