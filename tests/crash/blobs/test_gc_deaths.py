"""A collection that merges, condemns, copies and drops dies at each of its system calls; with the power or without.

Afterwards all that is reachable can be read, what is put again is there whatever an index says, and the next collection
goes on.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.gc.collector import GcReport, GcRules, collect
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.testing.blob_contract import named
from tests.crash.blobs.test_blob_puts import Crash, CrashingOs

VERSIONS = [
    b"\n".join(b"a line of a text, and its number is %d" % line for line in range(30)) + b"\nversion %d" % number
    for number in range(7)
]
GARBAGE = [b"garbage, and by itself" * 10, random.Random(1).randbytes(3_000)]
"""The second one lies beside what is needed."""
CLOCK = ManualClock()


def opened(root: Path) -> PackBlobStore:
    return PackBlobStore(f"file://{root}", clock=CLOCK, cache_bytes=0)


def made(root: Path) -> None:
    for data in VERSIONS[1:]:
        opened(root).put(named(data))
    opened(root).put(named(GARBAGE[0]))
    opened(root).put(named(VERSIONS[0], GARBAGE[1]))


def collected(root: Path) -> GcReport:
    CLOCK.advance(1)
    return collect(f"file://{root}", lambda: named(*VERSIONS), GcRules(alone=True, merge_from=4), clock=CLOCK)


def check(root: Path) -> None:
    reader = opened(root)
    for data in VERSIONS:
        assert reader.get(blob_id(data)) == data
    for data in GARBAGE:  # put again before any collection has gone on
        opened(root).put(named(data))
        assert opened(root).get(blob_id(data)) == data
    for _ in range(2):
        assert collected(root).damaged == []
    for data in VERSIONS:
        assert reader.get(blob_id(data)) == data
        assert opened(root).get(blob_id(data)) == data
    assert opened(root).missing(named(*VERSIONS, *GARBAGE)) == set(named(*GARBAGE))


@pytest.mark.parametrize(("how", "loss"), [("within", "process"), ("before", "power"), ("after", "power, zeros")])
def test_a_collection_that_dies_at_each_call(tmp_path: Path, how: str, loss: str) -> None:
    first = tmp_path / "first"
    made(first)
    shutil.copytree(first, tmp_path / "counted")
    counting = CrashingOs(tmp_path / "counted", -1, "before")
    with counting.installed():
        report = collected(tmp_path / "counted")
    assert (report.merged, report.dropped) == (6, 8)
    for die_at in range(1, counting.count + 1):
        root = tmp_path / "here"
        shutil.copytree(first, root)
        crashing = CrashingOs(root, die_at, how)
        with crashing.installed(), pytest.raises(Crash):
            collected(root)
        if loss != "process":
            crashing.lose_power(zeros="zeros" in loss)
        check(root)
        shutil.rmtree(root)
