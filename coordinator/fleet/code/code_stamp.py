"""Content stamps of source files: they show whether an agent's source changed since a host imported it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CodeStamps", "SharedStamps"]

_STAMP_LENGTH: Final = 12
_RACY_NS: Final = 2_000_000_000
"""A newer modification is not cached: it may share its mtime with the next one, where mtimes are whole seconds."""
_GONE: Final = "gone"


class CodeStamps:
    """Stamps of source files. A file is read again only if its size, mtime or inode has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], str]] = {}
        """Size, mtime and inode of each file, and the hash of its content."""

    def of(self, sources: Iterable[str]) -> str:
        """Return the stamp of the current content of files: 12 hexadecimal digits.

        A missing or unreadable file counts as a content of its own.
        """
        parts = (f"{source}\0{self._hash(source)}\0" for source in sorted(sources))
        return hashlib.sha256("".join(parts).encode(errors="surrogateescape")).hexdigest()[:_STAMP_LENGTH]

    def _hash(self, source: str) -> str:
        path = Path(source)
        try:
            found = path.stat()
            seen = (found.st_size, found.st_mtime_ns, found.st_ino)
            before = self._known.get(source)
            if before is not None and before[0] == seen:
                return before[1]
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            return _GONE
        if abs(time.time_ns() - found.st_mtime_ns) > _RACY_NS:
            self._known[source] = (seen, digest)
        return digest


class SharedStamps:
    """Stamps for coroutines, taken in a thread. Calls that come before a look has begun share it.

    A thread takes longer for the way there and back than to look at a few files, and a message of each of many agents
    asks at the same time.
    """

    def __init__(self, stamps: CodeStamps | None = None) -> None:
        self._stamps = stamps or CodeStamps()
        self._tasks = BackgroundTasks()
        self._next: dict[tuple[str, ...], asyncio.Task[str]] = {}
        """The looks that have not begun, by their files."""
        self._looking: dict[tuple[str, ...], asyncio.Lock] = {}
        """Held while some files are looked at."""

    async def of(self, sources: tuple[str, ...]) -> str:
        """Return the stamp of the content that files have after this call; see `CodeStamps.of`."""
        look = self._next.get(sources)
        if look is None:
            look = self._next[sources] = self._tasks.start(self._look(sources), "code-stamp")
        return await asyncio.shield(look)

    async def _look(self, sources: tuple[str, ...]) -> str:
        async with self._looking.setdefault(sources, asyncio.Lock()):
            del self._next[sources]
            return await asyncio.to_thread(self._stamps.of, sources)
