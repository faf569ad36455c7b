"""The reserve of a journal, which several processes use and a killed one may have left in part."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import StorageRefused
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.sqlite.reserve import RESERVE_BYTES, FileReserve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with a reserve."""
    path = tmp_path / "journal.db"
    SqliteJournalStore(path, watched=True).close()
    assert reserve_of(path).stat().st_size == RESERVE_BYTES
    return path


def reserve_of(journal: Path) -> Path:
    return journal.with_name("journal.db-reserve")


def test_a_reserve_whose_making_was_cut_short_is_made_whole(journal: Path) -> None:
    reserve = reserve_of(journal)
    for cut in (0, 4096):
        os.truncate(reserve, cut)
        SqliteJournalStore(journal, watched=True).close()
        assert reserve.stat().st_size == RESERVE_BYTES
        assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES


def free(bytes_: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, 1 << 20, bytes_ // 4096, bytes_ // 4096, 1 << 20, 1 << 20, 1 << 20, 0, 255))


@pytest.mark.parametrize("when", ["before", "after it was looked"])
def test_space_that_another_process_gave_up_is_used(journal: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    reserve, room = reserve_of(journal), 0 if when != "before" else RESERVE_BYTES

    def statvfs(path: object) -> os.statvfs_result:
        nonlocal room
        found, room = free(room), RESERVE_BYTES
        reserve.unlink(missing_ok=True)  # the other process
        return found

    with closing(SqliteJournalStore(journal, watched=True)) as store:
        tries = 0

        def write() -> str:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise StorageRefused("the disk is full")
            return "written"

        monkeypatch.setattr(os, "statvfs", statvfs)
        assert store._with_reserve(write) == "written"
        assert tries == 2


@pytest.mark.parametrize(
    "write",
    [lambda store: store.renew_leases([], 1, 1), lambda store: store.release_leases([])],
    ids=["renew", "release"],
)
def test_leases_are_renewed_and_released_on_a_full_disk(
    journal: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[SqliteJournalStore], object]
) -> None:
    with closing(SqliteJournalStore(journal, watched=True)) as store:
        writing = store._db.writing

        def writing_if_there_is_room() -> object:
            if reserve_of(journal).exists():
                raise StorageRefused("the disk is full")
            return writing()

        monkeypatch.setattr(os, "statvfs", lambda _: free(0))
        monkeypatch.setattr(store._db, "writing", writing_if_there_is_room)
        write(store)
        assert not reserve_of(journal).exists()


def test_a_reserve_that_is_there_and_not_needed_stays(journal: Path) -> None:
    assert not FileReserve(journal).free()
    assert reserve_of(journal).exists()
