"""What several unit tests are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.sqlite import SqliteJournalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.journal.port import JournalStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    """An empty journal, of each kind that needs no server."""
    made: JournalStore = (
        MemoryJournalStore() if request.param == "memory" else SqliteJournalStore(tmp_path / "journal.db")
    )
    yield made
    made.close()
