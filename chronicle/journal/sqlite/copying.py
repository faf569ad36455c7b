"""Copies of SQLite files that are in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from chronicle.errors import StorageRefused
from chronicle.system.atomic_files import sync_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["copy_database"]


def copy_database(db: sqlite3.Connection, target: Path) -> None:
    """Copy what a connection reads at one moment into a new file of this user only; durable, but for its name.

    Raises:
        StorageRefused: the file cannot be written.
        sqlite3.Error: the source cannot be read.
    """
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(target)) as copy:
            db.backup(copy)
        sync_file(target)
    except OSError as error:
        raise StorageRefused(f"{target} could not be written: {error.strerror}") from error
