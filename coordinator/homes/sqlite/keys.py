"""The keys, tokens and quotas of a home, in ``access.db``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.access.keys import damage_of_id
from coordinator.homes.sql.keys import KEY_TABLES, SqlKeyRecords, read_keys
from coordinator.homes.sqlite.file import FileKind, RecordsFile, damage_of

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import IdSource
    from coordinator.access.keys import Key

__all__ = ["KEYS", "SqliteKeyRecords", "damage_of_keys"]

KEYS: Final = FileKind("access.db", "keys", 0x5044_4143, 1, KEY_TABLES, erased=True)  # PDAC


class SqliteKeyRecords(SqlKeyRecords):
    """`coordinator.access.records.KeyRecords` in a file.

    Args:
        home: the home's directory.
        home_id: its id.
        ids: the source of keys' ids.

    Raises:
        StorageRefused: the file cannot be read or written.
        Corrupt: the file is not a database of keys, or was changed since it was closed.
        UnsupportedFormat: a newer version wrote it.
    """

    def __init__(self, home: Path, home_id: str, ids: IdSource | None = None) -> None:
        super().__init__(RecordsFile(home, KEYS), home_id, ids)


def damage_of_keys(home: Path, home_id: str) -> dict[str, str]:
    """Return the damage of a home's keys, by the name of the file, or of the id; nothing is written."""
    keys: list[Key] = []
    problem = damage_of(home, KEYS, lambda db: keys.extend(read_keys(db)))
    return {KEYS.name: problem} if problem is not None else damage_of_id(home_id, keys)
