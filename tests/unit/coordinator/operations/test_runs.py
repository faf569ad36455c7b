"""Pages of paused runs."""

from __future__ import annotations

from contextlib import closing

import pytest

from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import Outcome, Settlement, StoredStep
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


@pytest.mark.parametrize("body", [b"garbage", b"[]", b'{"format":1,"pause":{}}', b'{"format":1,"pause":5}'])
def test_a_run_whose_record_cannot_be_read_is_listed_with_the_others(body: bytes) -> None:
    with closing(MemoryJournalStore()) as store:
        good = b'{"args_hash":"h","base_turn":0,"format":1,"started_ms":0,'
        good += b'"pause":{"expires":null,"kind":"promise","reason":"pay","schema":true}}'
        for name, step in (("hello/a", body), ("hello/b", good)):
            writer = Writer.on(store, name)
            run = writer.admit()
            store.put_step(writer.session.session_id, StoredStep(run, 1, "promise p#1", step), None)
            writer.write(settled=(Settlement(run, Outcome.PAUSED),))
        bad, fine = paused_page(store, "default", None, 10, None).items
        assert (bad.agent, bad.schema, bad.args_hash) == ("hello/a", False, None)
        assert "this version does not read" in bad.reason
        assert (fine.agent, fine.kind, fine.reason, fine.args_hash) == ("hello/b", "promise", "pay", "h")
