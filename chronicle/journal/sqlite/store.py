"""The journal store on SQLite: the shared SQL over one file."""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chronicle.errors import ChronicleError, Corrupt, StorageRefused, Unavailable
from chronicle.journal.ports.reserve import NO_RESERVE
from chronicle.journal.sql import writes
from chronicle.journal.sql.store import SqlJournalStore
from chronicle.journal.sqlite import checksums, schema
from chronicle.journal.sqlite.copying import copy_database
from chronicle.journal.sqlite.database import SqliteDatabase
from chronicle.journal.sqlite.group_commit import write_codec
from chronicle.journal.sqlite.readonly import ReadOnlyDatabase
from chronicle.journal.sqlite.reserve import FileReserve

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.journal.ports.reserve import Reserve
    from chronicle.journal.sql.writes import ReadyWrite
    from chronicle.journal.sqlite.database import SqliteConnection

__all__ = ["SqliteJournalStore"]


_T = TypeVar("_T")
_WRITES: Final = (
    "ensure_session",
    "fork_branch",
    "fork_session",
    "import_session",
    "delete_branch",
    "fold",
    "delete_session",
    "erase",
    "commit",
    "commit_many",
    "admit",
    "admit_many",
    "retry_message",
    "put_step",
    "drop_steps",
    "end_pause",
    "cancel_reminder",
    "fire_reminder",
    "send_reminder",
    "outbox_delivered",
    "acquire_lease",
    "release_lease",
    "renew_leases",
    "release_leases",
    "put_object",
    "delete_object",
)
"""Methods with one transaction each, so that a failure on a full disk can be retried."""


class SqliteJournalStore(SqlJournalStore):
    """A :class:`~chronicle.journal.port.JournalStore` in one file, for any number of threads and processes.

    A write is on disk when it returns. Commits and steps that wait for the writer lock share one sync, across
    processes.

    Args:
        path: the file; created, with its tables, if it does not exist. A symlink is resolved: the files beside a
            journal are beside its target, as SQLite's own files are.
        create: false to refuse a path without a journal.
        read_only: no file is written, created or locked, so none need be writable; the journal must exist. Write
            methods raise `InvalidInput`.
        watched: on close, write checksums and heads beside the file, so that `damage` detects any later change, and a
            lost file is not silently created again; and reserve some space for a full disk (`FileReserve`).
        may_migrate: whether a journal of an older format may be migrated now: false while a process that knows the
            older format only may use it. Called for such a journal only.

    Raises:
        InvalidInput: the path cannot hold a journal: its directory is missing, or it is a directory.
        StorageRefused: the file or its directory cannot be written, or the disk is full.
        NotFound: the journal does not exist, and ``create`` is false or ``read_only`` true. With ``read_only``, a
            journal without tables, which is being created, does not exist yet.
        Corrupt: the file is not a journal; or it is missing, and was watched.
        UnsupportedFormat: the journal has a newer format.
        OlderVersionRuns: the journal has an older format, and must not be migrated now; nothing was changed.
        Unavailable: the journal was not closed cleanly, and cannot be read on a read-only medium.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        read_only: bool = False,
        watched: bool = False,
        may_migrate: Callable[[], bool] = lambda: True,
    ) -> None:
        self._path = path = Path(os.path.realpath(path))
        self._reserve: Reserve = FileReserve(path) if watched and not read_only else NO_RESERVE
        self._file = (
            ReadOnlyDatabase(path, watched=watched)
            if read_only
            else self._with_reserve(
                lambda: SqliteDatabase(path, self._serve, create=create, watched=watched, may_migrate=may_migrate)
            )
        )
        self._shared = self._file if isinstance(self._file, SqliteDatabase) else None
        super().__init__(self._file)
        self._reserve.restore()

    def _with_reserve(self, write: Callable[[], _T]) -> _T:
        """Run an atomic write; on a full disk, free the reserve and retry once."""
        try:
            return write()
        except StorageRefused:
            if not self._reserve.free():
                raise
            return write()

    @property
    def reserve(self) -> Reserve:
        """The file that holds space for a full disk, if this process watches the journal."""
        return self._reserve

    def damage(self) -> str | None:
        """Return damage to the file that the chains do not cover; ``None`` if there is none.

        It reads the whole file: checksums of its pages if it was closed cleanly, SQLite's own check, the tables, the
        heads of the last close, and orphaned rows.
        """
        try:
            return self._file.damage()
        except (Corrupt, TypeError, ValueError) as error:
            return str(error)

    def check(self, *, thorough: bool = False) -> None:
        """Raise if quick checks find damage: a wrong checksum or missing sessions.

        Args:
            thorough: run all checks of `damage`.

        Raises:
            Corrupt: the file is damaged.
        """
        problem = self.damage() if thorough else self._quick_damage()
        if problem is not None:
            raise checksums.damaged(self._path, problem)

    def copy_to(self, target: Path) -> None:
        """Copy the journal as it is at one moment into a new file, durably; writers go on.

        Raises:
            StorageRefused: the file cannot be written.
            Unavailable: a journal that was at rest was written to meanwhile; try again.
        """
        with self._file.reading_one_moment() as db:
            copy_database(db, target)

    @property
    def format(self) -> int:
        """The format of this code: another one is not opened."""
        return schema.VERSION

    @property
    def is_small(self) -> bool:
        """Whether a check of the whole file takes less than a second."""
        return self._path.stat().st_size <= checksums.LOOK_BYTES

    def _quick_damage(self) -> str | None:
        problem = checksums.damaged_page(self._path, checksums.LOOK_BYTES)
        if problem is not None:
            return problem
        with self._file.reading_one_moment() as db:
            return checksums.missing(db, self._path, names_only=True)

    def _write(self, ready: ReadyWrite) -> None:
        """Write a commit or a step, alone or grouped with those of other processes."""
        if self._shared is None:
            super()._write(ready)
            return

        def work(db: SqliteConnection, maybe_done: bool) -> None:
            if not (maybe_done and writes.is_there(db, ready)):
                writes.apply(db, ready)

        self._shared.write(work, lambda: write_codec.to_bytes(ready))

    def _serve(self, db: SqliteConnection, data: bytes) -> bool:
        """Apply another process's write; a refused one is left to that process, which then gets the error."""
        ready = write_codec.from_bytes(data)
        if ready is None:
            return False
        try:
            with self._db.savepoint(db):
                writes.apply(db, ready)
        except Unavailable:
            raise
        except ChronicleError:
            return False
        return True


def _again_with_reserve(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def write(self: SqliteJournalStore, *args: Any, **more: Any) -> Any:
        return self._with_reserve(lambda: method(self, *args, **more))

    return write


for _name in _WRITES:
    setattr(SqliteJournalStore, _name, _again_with_reserve(getattr(SqlJournalStore, _name)))
