"""Merging small packs into large ones in a collection."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.gc import collector
from chronicle.blobs.gc.collector import GcReport
from chronicle.errors import Corrupt, Unavailable
from chronicle.testing.blob_contract import named
from tests.contract.gc_place import GRACE_S, Place, failing_from, present


def lines_of(version: int) -> bytes:
    """A version of a text: one line of 200 is its own."""
    return b"\n".join(b"this is line %d of a text that has many" % n for n in range(200)) + b"\nversion %d" % version


def test_many_small_packs_are_merged_and_what_is_alike_is_stored_once(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(40)]
    for data in versions:
        store.put(named(data))
        place.clock.advance(1)
    before = sum(path.stat().st_size for path in (tmp_path / "store" / "packs").rglob("*") if path.is_file())
    place.clock.advance(GRACE_S)
    report = place.collect(*versions[1:])
    assert (report.condemned, report.merged, report.copied, report.dropped) == (40, 39, 39, 0)
    writer = place.open()
    assert writer.missing(named(*versions)) == set(named(versions[0]))  # the copies count at once
    place.clock.advance(GRACE_S)
    report = place.collect(*versions[1:])
    assert (report.dropped, report.copied, report.condemned) == (40, 0, 0)
    after = sum(path.stat().st_size for path in (tmp_path / "store" / "packs").rglob("*") if path.is_file())
    assert after < before / 5
    for reader in (store, writer, place.open()):
        assert present(reader, *versions) == versions[1:]
        assert reader.get_many(list(named(*versions[1:]))) == named(*versions[1:])
        asked = blob_id(versions[5])
        assert reader.get_stretch(asked, 10**6)[0][asked] == versions[5]


def test_a_merge_that_had_no_room_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(20)]
    for data in versions:
        store.put(named(data))

    def collected() -> GcReport:
        return place.collect_with(lambda: named(*versions), alone=True, roots=lambda: "one")

    with monkeypatch.context() as full:
        full.setattr(collector, "free_bytes", lambda _: 0)
        assert collected().merged == 0
        assert collected().merged == 0
    assert collected().merged == 20
    assert collected().packs == 1
    assert present(place.open(), *versions) == versions


def test_what_is_reached_in_the_meantime_survives_a_merge(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(40)]
    for data in versions:
        store.put(named(data))
    place.clock.advance(GRACE_S + 1)
    writer = place.open()
    writer.put(named(versions[3]))  # found, and skipped
    assert place.collect(*versions[10:]).condemned == 40
    place.clock.advance(GRACE_S)
    assert place.collect(versions[3], *versions[10:]).dropped == 40
    assert present(place.open(), *versions) == [versions[3], *versions[10:]]


def test_a_merge_in_one_call_leaves_few_packs(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [b"", *(lines_of(number) for number in range(20))]
    store.put(named(*versions[:2]))
    for data in versions[2:]:
        store.put(named(data))
    assert place.collect(*versions, alone=True, dry_run=True).merged == 20
    assert place.collect(*versions, alone=True).damaged == []
    again = place.collect(*versions, alone=True)
    assert (again.packs, again.condemned) == (1, 0)
    assert present(place.open(), *versions) == versions
    store = place.open()
    store.put(named(b"later"))
    assert place.collect(*versions[:4], b"later", alone=True, keep_from=1.0).dropped == 1  # a group is left in part
    assert present(place.open(), *versions, b"later") == [*versions[:4], b"later"]


def test_a_damaged_blob_stops_no_merge_and_keeps_its_pack(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(20)]
    for data in versions:
        store.put(named(data))
    victim = min((tmp_path / "store" / "packs").rglob("0*"), key=lambda path: (path.is_dir(), path.name))
    whole = victim.read_bytes()
    victim.write_bytes(whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
    report = place.collect(*versions, alone=True)
    assert (report.dropped, len(report.damaged)) == (19, 1)
    assert victim.exists()
    readable = 0
    for data in versions:
        try:
            readable += place.open().get(blob_id(data)) == data
        except Corrupt:
            continue
    assert readable == 19


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_merge_that_stops_halfway_loses_nothing_and_is_gone_on_with(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing the copies, the index, the list of condemned packs and then each deletion fails."""
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(20)]
    for data in versions:
        store.put(named(data))
    with failing_from(monkeypatch, failing), pytest.raises((Unavailable, OSError)):
        place.collect(*versions, alone=True)
    for reader in (store, place.open()):
        assert present(reader, *versions) == versions
    for _ in range(2):
        place.collect(*versions, alone=True)
    assert place.collect(*versions, alone=True).packs == 1
    for reader in (store, place.open()):
        assert present(reader, *versions) == versions
