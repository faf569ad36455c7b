"""The records of calls of models, in ``models.db``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.homes.sql.calls import CALL_TABLES, SqlCallLog, SqlCallRecords, read_calls
from coordinator.homes.sqlite.file import FileKind, RecordsFile, damage_of, read_once

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CALLS", "SqliteCallLog", "SqliteCallRecords", "damage_of_calls"]

CALLS: Final = FileKind("models.db", "calls", 0x5044_4D4F, 1, CALL_TABLES)  # PDMO


class SqliteCallRecords(SqlCallRecords):
    """`coordinator.models.records.CallRecords` in a file.

    Args:
        home: the home's directory.

    Raises:
        StorageRefused: the file cannot be read or written.
        Corrupt: the file is not a database of calls, or was changed since it was closed.
        UnsupportedFormat: a newer version wrote it.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(RecordsFile(home, CALLS))


class SqliteCallLog(SqlCallLog):
    """`coordinator.models.records.CallLog` of a file, which need not exist.

    Args:
        home: the home's directory.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(lambda: read_once(home, CALLS))


def damage_of_calls(home: Path) -> str | None:
    """Return the damage of a home's records; ``None`` if there is none, or no record. Nothing is written."""
    return damage_of(home, CALLS, read_calls)
