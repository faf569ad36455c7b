"""A journal in one SQLite file: the embedded default. All that imports ``sqlite3`` is in this package."""

from __future__ import annotations

from chronicle.journal.sqlite.store import SqliteJournalStore

__all__ = ["SqliteJournalStore"]
