"""A journal in PostgreSQL, for clusters. All that imports ``psycopg`` is in this package."""

from __future__ import annotations

from chronicle.journal.postgres.store import PostgresJournalStore

__all__ = ["PostgresJournalStore"]
