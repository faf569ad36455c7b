"""The lease of a home's collections, for a home in files: a lock of its directory, which the kernel releases."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from chronicle.errors import Conflict, StorageRefused
from chronicle.system.locks import try_lock, unlock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coordinator.homes.collection_lease import Held

__all__ = ["FileCollectionLease"]


class FileCollectionLease:
    """`coordinator.homes.collection_lease.CollectionLease` of a home in files.

    Args:
        directory: the home's.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "gc.lock"

    @contextmanager
    def hold(self) -> Iterator[Held]:
        """See `CollectionLease`."""
        try:
            file = self._path.open("a")
        except OSError as error:
            raise StorageRefused(f"{self._path} cannot be written: {error.strerror}") from error
        with file:
            if not try_lock(file.fileno()):
                raise Conflict("another gc of this home is running: wait for it to end")
            try:
                yield lambda: None  # nobody takes the lock away
            finally:
                unlock(file.fileno())  # closing leaves it to a child that was forked meanwhile
