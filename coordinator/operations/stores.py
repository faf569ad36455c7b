"""The journal and the blobs of a home, opened once for a process that serves many operations."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from chronicle.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.port import JournalStore
    from coordinator.home import Home

__all__ = ["HomeStores"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_READS: Final = 4
"""Attempts of a read; a journal that comes into use during a read at rest refuses that read once."""


class HomeStores:
    """A home's stores. Safe to share between threads.

    Args:
        home: an existing home.
        most_threads: limit of operations that use a store at the same time.
    """

    def __init__(self, home: Home, most_threads: int = 16) -> None:
        self._home = home
        self._guard = threading.Lock()
        self._read: JournalStore | None = None
        self._write: JournalStore | None = None
        self._blobs: BlobStore | None = None
        self._threads = asyncio.Semaphore(most_threads)

    @property
    def home(self) -> Home:
        """The home."""
        return self._home

    @property
    def blobs(self) -> BlobStore:
        """The blob store."""
        with self._guard:
            if self._blobs is None:
                self._blobs = self._home.blobs()
            return self._blobs

    @property
    def journal(self) -> JournalStore:
        """The journal, for reading.

        Raises:
            HomeError: no agent has run in the home yet.
        """
        with self._guard:
            if self._read is None:
                self._read = self._home.journal(create=False, read_only=True)
            return self._read

    @property
    def writable_journal(self) -> JournalStore:
        """The journal, for writing. It is created if it does not exist."""
        with self._guard:
            if self._write is None:
                self._write = self._home.journal()
            return self._write

    async def read(
        self, call: Callable[Concatenate[JournalStore, BlobStore, _P], _T], *of: _P.args, **by: _P.kwargs
    ) -> _T:
        """Return the result of a read, made in a thread."""
        return await self.read_journal(lambda store: call(store, self.blobs, *of, **by))

    async def read_journal(self, call: Callable[[JournalStore], _T]) -> _T:
        """Return the result of a read, made in a thread. The blob store is not opened for it."""

        def reading() -> _T:
            for _ in range(_READS - 1):
                try:
                    return call(self.journal)
                except Unavailable:
                    continue
            return call(self.journal)

        async with self._threads:
            return await asyncio.to_thread(reading)

    async def write(
        self, call: Callable[Concatenate[JournalStore, BlobStore, _P], _T], *of: _P.args, **by: _P.kwargs
    ) -> _T:
        """Return the result of a write, made in a thread. It goes on if the caller is cancelled."""
        async with self._threads:
            return await asyncio.to_thread(lambda: call(self.writable_journal, self.blobs, *of, **by))

    def close(self) -> None:
        """Close the stores. Operations that run then fail with `Unavailable`."""
        with self._guard:
            for store in (self._read, self._write, self._blobs):
                if store is not None:
                    store.close()
