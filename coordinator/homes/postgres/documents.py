"""Documents of a home in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.journal.postgres.database import PostgresDatabase

__all__ = ["PostgresDocuments"]


class PostgresDocuments:
    """`coordinator.homes.identity.SharedDocuments` in a schema.

    Args:
        schema: the schema.
    """

    def __init__(self, schema: PostgresDatabase) -> None:
        self._schema = schema

    def read(self, name: str) -> bytes | None:
        """See `Documents`."""
        with self._schema.reading() as db:
            row = db.execute("SELECT data FROM document WHERE name = ?", (name,)).fetchone()
        return bytes(row[0]) if row is not None else None

    def write(self, name: str, data: bytes) -> None:
        """See `Documents`."""
        with self._schema.writing() as db:
            db.execute(
                "INSERT INTO document VALUES (?, ?, 1) "
                "ON CONFLICT (name) DO UPDATE SET data = excluded.data, written = document.written + 1",
                (name, data),
            )

    def create(self, name: str, data: bytes) -> bytes:
        """See `SharedDocuments`."""
        with self._schema.writing() as db:
            db.execute("INSERT INTO document VALUES (?, ?, 1) ON CONFLICT (name) DO NOTHING", (name, data))
        found = self.read(name)
        assert found is not None, "documents are not removed"
        return found

    def stamp(self, name: str) -> object:
        """See `Documents`."""
        with self._schema.reading() as db:
            row = db.execute("SELECT written FROM document WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None else None

    def place(self, name: str) -> str:
        """See `Documents`."""
        return f"{name} in {self._schema.name}"
