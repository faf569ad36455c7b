"""Pages of paused runs."""

from __future__ import annotations

from contextlib import closing

from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import Outcome, Settlement
from chronicle.testing.journal_contract.writer import Writer
from coordinator.operations.runs import paused_page


def test_more_than_a_thousand_runs_behind_a_page_are_not_counted() -> None:
    with closing(MemoryJournalStore()) as store:
        for number in range(1_002):
            writer = Writer.on(store, f"hello/{number}")
            writer.write(settled=(Settlement(writer.admit(), Outcome.PAUSED),))
        first = paused_page(store, "default", None, 1, None)
        assert first.remaining is None
        second = paused_page(store, "default", None, 1, first.next_cursor)
        assert second.remaining == 1_000
        last = paused_page(store, "default", None, 1_000, second.next_cursor)
        assert (last.next_cursor, last.remaining) == (None, 0)
