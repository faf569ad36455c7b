"""A journal in one SQLite file: the embedded default.

Only this package and `chronicle.journal.memory` import ``sqlite3``.
"""

from __future__ import annotations

from chronicle.journal.sqlite.store import SqliteJournalStore

__all__ = ["SqliteJournalStore"]
