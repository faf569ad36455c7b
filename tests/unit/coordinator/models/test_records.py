"""The records of calls: what is kept, what is found, and what a kill leaves."""

from __future__ import annotations

import stat
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Corrupt
from coordinator.models.budgets import Spending, cost_of
from coordinator.models.calls import CallRecord
from coordinator.models.profiles import Price
from coordinator.models.record_store import FILE, RecordStore, read_records
from tests.unit.coordinator.models.recorded import keep, record

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000


def test_records_come_back_as_they_were_the_latest_first(tmp_path: Path) -> None:
    assert read_records(tmp_path, None, 10) == []
    made = [
        record("call_1", started_ms=10),
        record("call_2", started_ms=20, tenant="acme", error={"kind": "auth", "message": "no key"}, status="failed"),
        record("call_3", started_ms=20, profile="slow", owner="rsp_1", turn=None, cost=None, attempts=()),
    ]
    keep(tmp_path, *made)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert read_records(tmp_path, None, 10) == made[::-1]
    assert read_records(tmp_path, None, 2) == made[:0:-1]
    assert read_records(tmp_path, "acme", 10) == [made[1]]
    assert read_records(tmp_path, "default", 10, owner="rsp_1") == [made[2]]
    assert read_records(tmp_path, None, 10, profile="fast") == [made[1], made[0]]
    assert read_records(tmp_path, None, 10, before=(20, "call_3")) == [made[1], made[0]]
    assert [CallRecord.from_json(each.to_json()) for each in made] == made


def test_an_id_is_recorded_once_and_its_end_replaces_its_beginning(tmp_path: Path) -> None:
    with closing(RecordStore(tmp_path)) as store:
        assert store.begin(record("call_1", status="running", cost=None))
        assert not store.begin(record("call_1", tenant="acme"))
        store.end(record("call_1"))
    assert read_records(tmp_path, None, 10) == [record("call_1")]


def test_calls_of_a_process_that_was_killed_are_lost(tmp_path: Path) -> None:
    keep(tmp_path, record("call_1", status="running", cost=None), record("call_2", started_ms=11))
    with closing(RecordStore(tmp_path)) as store:
        assert store.give_up_running() == 1
        assert store.give_up_running() == 0
    second, first = read_records(tmp_path, None, 10)
    assert (first.status, second.status) == ("lost", "completed")
    assert first.error == {"kind": "unavailable", "message": "the model gateway was killed during the call"}


def test_what_a_tenant_spent_is_of_a_day(tmp_path: Path) -> None:
    keep(
        tmp_path,
        record("call_1", started_ms=DAY_MS - 1, cost="100"),
        record("call_2", started_ms=DAY_MS, cost="0.1"),
        record("call_3", started_ms=2 * DAY_MS - 1, cost="0.2"),
        record("call_4", started_ms=DAY_MS, cost="7", tenant="acme"),
        record("call_5", started_ms=DAY_MS, cost=None),
    )
    with closing(RecordStore(tmp_path)) as store:
        assert store.spent("default", DAY_MS) == Decimal("0.3")
        spending = Spending(store.spent)
        assert spending.of("default", DAY_MS + 5) == Decimal("0.3")
        spending.add("default", DAY_MS + 5, "1")
        spending.add("default", DAY_MS + 5, None)
        spending.add("acme", DAY_MS + 5, "1")  # never asked for: it is read from the records
        assert spending.of("default", 2 * DAY_MS - 1) == Decimal("1.3")
        assert spending.of("acme", DAY_MS) == 7
        assert spending.of("default", 2 * DAY_MS) == 0
        spending.add("default", DAY_MS, "1")  # began yesterday
        assert spending.of("default", 2 * DAY_MS) == 0


@pytest.mark.parametrize(
    ("price", "tokens", "cost"),
    [
        (Price("1", "2"), (1_000_000, 500_000, 0, 0), "2"),
        (Price("1", "2", cached="0.1"), (1_000_000, 0, 1_000_000, 0), "0.1"),
        (Price("1", "2", cache_write="1.25"), (1_000_000, 0, 0, 1_000_000), "1.25"),
        (Price("1", "2"), (10, 0, 4, 3), "0.00001"),
        (Price("0.25", "2.00"), (1, 1, None, None), "0.00000225"),
        (Price("1", "2"), (None, None, None, None), None),
        (Price("1", "2"), (None, 1_000_000, None, None), "2"),
        (Price("0", "0"), (5, 5, 0, 0), "0"),
        (None, (5, 5, 0, 0), None),
    ],
)
def test_what_tokens_cost(
    price: Price | None, tokens: tuple[int | None, int | None, int | None, int | None], cost: str | None
) -> None:
    assert cost_of(price, *tokens) == cost


def test_a_file_of_others_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to be read as one" * 20)
    with pytest.raises(Corrupt, match=r"models\.db"):
        RecordStore(tmp_path)
    with pytest.raises(Corrupt, match=r"models\.db"):
        read_records(tmp_path, None, 1)
