"""The records of calls: what is kept, what is found, and what a kill leaves."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Corrupt
from coordinator.homes.sqlite.calls import CALLS, SqliteCallLog, SqliteCallRecords
from coordinator.models.budgets import Spending, cost_of
from coordinator.models.profiles import Price
from tests.unit.coordinator.models.recorded import keep, record

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000


def test_what_a_tenant_spent_is_of_a_day(tmp_path: Path) -> None:
    keep(
        tmp_path,
        record("call_1", started_ms=DAY_MS - 1, cost="100"),
        record("call_2", started_ms=DAY_MS, cost="0.1"),
        record("call_3", started_ms=2 * DAY_MS - 1, cost="0.2"),
        record("call_4", started_ms=DAY_MS, cost="7", tenant="acme"),
        record("call_5", started_ms=DAY_MS, cost=None),
    )
    with closing(SqliteCallRecords(tmp_path)) as store:
        assert store.spent("default", DAY_MS) == Decimal("0.3")
    spending, nothing = Spending(), Decimal(0)
    assert spending.known("default", DAY_MS + 5) is None
    assert spending.of("default", DAY_MS + 5, Decimal("0.3")) == Decimal("0.3")
    spending.add("default", DAY_MS + 5, "1")
    spending.add("default", DAY_MS + 5, None)
    spending.add("acme", DAY_MS + 5, "1")  # never asked for: it is read from the records
    assert spending.known("default", 2 * DAY_MS - 1) == spending.of("default", DAY_MS, nothing) == Decimal("1.3")
    assert spending.of("acme", DAY_MS, Decimal(7)) == 7
    assert spending.known("default", 2 * DAY_MS) is None
    assert spending.of("default", 2 * DAY_MS, nothing) == 0
    spending.add("default", DAY_MS, "1")  # began yesterday
    assert spending.of("default", DAY_MS, Decimal(5)) == 5, "nor does what began yesterday turn the day back"
    assert spending.of("default", 2 * DAY_MS, Decimal(9)) == 0


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
    (tmp_path / CALLS.name).write_bytes(b"no database at all, but long enough to be read as one" * 20)
    with pytest.raises(Corrupt, match=r"models\.db"):
        SqliteCallRecords(tmp_path)
    with pytest.raises(Corrupt, match=r"models\.db"):
        SqliteCallLog(tmp_path).latest(None, 1)
