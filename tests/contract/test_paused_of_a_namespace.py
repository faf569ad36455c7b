"""Paused messages of a namespace with few sessions and with many, which are found in different ways, on SQL stores."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.journal.postgres import PostgresJournalStore
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.journal_contract import Writer
from chronicle.testing.journal_contract.pauses import paused
from tests.contract.postgres_server import find_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ADD_SESSIONS = """
WITH RECURSIVE made(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM made WHERE number < 1001)
INSERT INTO session (session_id, namespace, name, main_branch_id, created_ms)
SELECT 'made-' || number, 'acme', 'made/' || number, 'branch-' || number, 1 FROM made
"""
_ON_POSTGRES = pytest.mark.skipif(find_binaries() is None, reason="PostgreSQL is not installed: make setup-tests")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=_ON_POSTGRES)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteJournalStore | PostgresJournalStore]:
    """A new one."""
    found: SqliteJournalStore | PostgresJournalStore
    if request.param == "sqlite":
        found = SqliteJournalStore(tmp_path / "journal.db")
    else:
        found = PostgresJournalStore(request.getfixturevalue("server"), schema="paused of a namespace")
    with closing(found):
        yield found


def test_both_ways_find_the_same(store: SqliteJournalStore | PostgresJournalStore) -> None:
    tenants = ["acme", "zeta", "acme", "default", "acme", "acme"]
    messages = []
    for number, tenant in enumerate(tenants):
        writer = Writer.on(store, f"{'other' if number == 4 else 'hello'}/{number}", tenant)
        messages.append(writer.admit())
        if number != 2:
            paused(writer, messages[-1])

    def check() -> None:
        found = list(store.paused_messages("acme"))
        assert [each.message.message_id for each in found] == [messages[number] for number in (0, 4, 5)]
        assert list(store.paused_messages("acme", limit=2)) == found[:2]
        assert list(store.paused_messages("acme", after=found[0].place)) == found[1:]
        assert list(store.paused_messages("acme", "hello/")) == [found[0], found[2]]
        assert not store.paused_messages("acme", after=found[2].place)
        assert store.count_paused("acme", after=found[0].place, limit=9) == 2
        assert [each.message.message_id for each in store.paused_messages("zeta")] == [messages[1]]

    check()
    with store._db.writing() as db:
        db.execute(_ADD_SESSIONS)
    check()
