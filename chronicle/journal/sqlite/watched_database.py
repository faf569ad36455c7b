"""SQLite databases other than a journal, with checksums as a journal has them.

The last process that closes such a database writes ``NAME-sums`` beside it (`chronicle.journal.sqlite.checksums`), and
opening it removes them. In between, every byte of the file must stay as it was. Its directory is locked meanwhile, so
that a process that opens the database is not missed by one that closes it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import urllib.parse
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from chronicle.errors import ChronicleError, Corrupt
from chronicle.journal.sqlite import checksums, raw_reads
from chronicle.system.atomic_files import sync_directory
from chronicle.system.locks import lock, unlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["WatchedDatabase", "damage"]

_log: Final = logging.getLogger(__name__)


class WatchedDatabase:
    """The file of a database, and whether this process has connections to it.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: raw_reads.Hold | None = None

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Create the file for this user only if it does not exist; the caller connects to it, and reads from it.

        Raises:
            Corrupt: it is gone, or was changed, since it was closed. A write would hide that.
            OSError: it cannot be created, or its checksums not be removed.
        """
        with _locked(self._path.parent):
            problem = _changed(self._path)
            if problem is not None:
                raise Corrupt(f"{self._path} is damaged: {problem}; {_mend(self._path)}")
            if checksums.sums_path(self._path).exists():
                checksums.forget_sums(self._path)
                sync_directory(self._path.parent)
            with suppress(FileExistsError):  # not opened: closing it would release the locks of other connections
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            held = raw_reads.hold(self._path)
            try:
                yield
            except BaseException:
                held.release()
                raise
            self._held = held

    @contextmanager
    def closing(self) -> Iterator[None]:
        """The caller closes its connections; then the checksums are written if no process has the file open."""
        if self._held is None:
            yield
            return
        with _locked(self._path.parent):
            yield
            self._held.release()
            self._held = None
            try:
                checksums.keep_sums(self._path)
            except OSError as error:
                _log.warning("the checksums of %s could not be written beside it: %s", self._path, error)


def damage(path: Path, read: Callable[[sqlite3.Connection], object]) -> str | None:
    """Read the whole file and return its damage; ``None`` if there is none, or no file. Nothing is written.

    Args:
        path: the file.
        read: reads all rows; it raises a `ChronicleError`, ``ValueError`` or the like for one that it cannot read.
    """
    try:
        problem = _changed(path)
        if problem is None and path.exists():
            how = "mode=ro" if checksums.has_log(path) else "mode=ro&immutable=1"
            with closing(sqlite3.connect(f"file:{urllib.parse.quote(os.fspath(path))}?{how}", uri=True)) as db:
                (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
                problem = None if found == "ok" else f"SQLite finds it malformed: {' '.join(str(found).split())}"
                read(db)
    except (ChronicleError, sqlite3.Error, ValueError, KeyError, TypeError) as error:
        problem = str(error)
    return f"{problem}; {_mend(path)}" if problem is not None else None


def _changed(path: Path) -> str | None:
    if checksums.sums_path(path).exists() and not path.exists():
        return "it is gone"
    return checksums.damaged_page(path)


def _mend(path: Path) -> str:
    return (
        "put it back from a backup, with its -wal and -sums, without those that the backup lacks, or remove "
        f"{checksums.sums_path(path).name} to go on with the file as it is"
    )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(fd)
        yield
    finally:
        unlock(fd)
        os.close(fd)
