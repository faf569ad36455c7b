"""The journal's contract on every store that ships."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.journal_contract import JournalStoreContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.journal.port import JournalStore


class TestMemory(JournalStoreContract):
    """The store of tests and simulations."""

    @pytest.fixture
    def store(self) -> Iterator[JournalStore]:
        """A new one."""
        store = MemoryJournalStore()
        yield store
        store.close()


class TestSqlite(JournalStoreContract):
    """The embedded default."""

    @pytest.fixture(autouse=True)
    def path(self, tmp_path: Path) -> Path:
        """Where the journal is."""
        self._path = tmp_path / "journal.db"
        self._handles: list[JournalStore] = []
        return self._path

    @pytest.fixture
    def store(self, path: Path) -> Iterator[JournalStore]:
        """A new one."""
        store = SqliteJournalStore(path)
        yield store
        store.close()
        for handle in self._handles:
            handle.close()

    def other_handle(self, store: JournalStore) -> JournalStore:
        """Open the file again."""
        del store
        self._handles.append(SqliteJournalStore(self._path))
        return self._handles[-1]
