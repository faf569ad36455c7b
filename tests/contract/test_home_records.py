"""The records of a home, in each place where a home may keep them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from coordinator.access.caller import Scope
from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.homes.sqlite.records import SqliteHomeRecords
from tests.contract.home_records import HomeRecordsContract, keep
from tests.unit.coordinator.models.recorded import record

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.homes.records import HomeRecords


class TestSqlite(HomeRecordsContract):
    """In files beside the journal."""

    @pytest.fixture
    def records(self, tmp_path: Path) -> HomeRecords:
        """Those of a new home."""
        return SqliteHomeRecords(Home(tmp_path / "home").create())


def test_a_copy_has_all_but_the_documents(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    records = open_records(home)
    with closing(records.keys()) as keys:
        _, text = keys.create("n", "acme", [Scope.READ], 1)
        keep(records, record("call_1"))
        copy = tmp_path / "copy"
        copy.mkdir()
        records.copy_to(copy)
    (copy / "id").write_text(f"{home.id}\n")
    copied = open_records(Home(copy))
    with closing(copied.keys()) as keys:
        assert keys.find(text) is not None
    assert copied.call_log().latest(None, 9) == [record("call_1")]
    assert copied.damage() == {}


def test_reading_creates_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    before = sorted(home.path.iterdir())
    records = open_records(home)
    assert records.quotas() is None
    assert records.call_log().latest(None, 9) == []
    assert records.documents().read("quarantine.json") is None
    assert records.damage() == {}
    assert sorted(home.path.iterdir()) == before
