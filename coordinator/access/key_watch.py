"""`KeyWatch`: ends requests that live long, such as streams, with the key that permitted them.

There is one look at the key store for all of a process's requests, whatever their number: at the number of its changes,
which a change by any process moves. Only if it has moved are the keys read again.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from coordinator.access.caller import ExpiredKey, NarrowedKey, RevokedKey, with_implied
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.clock import Clock
    from coordinator.access.caller import Caller, NotAuthenticated, Scope
    from coordinator.access.keys import Key
    from coordinator.access.records import KeyRecords

__all__ = ["KeyWatch"]

_LOOK_S: Final = 0.2
"""Interval of looks while requests are watched."""

_log: Final = structlog.stdlib.get_logger("coordinator.access")


class KeyWatch:
    """The requests of one event loop that are watched.

    Args:
        keys: the store; the caller closes it, after the last request.
        clock: for expiry.
    """

    def __init__(self, keys: KeyRecords, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._watched: dict[bytes, dict[asyncio.Future[NotAuthenticated], Caller]] = {}
        """By the digest of the key."""
        self._new: set[bytes] = set()
        """Those that have not been read since a request of them began."""
        self._expiries: dict[bytes, float] = {}
        """Of the keys that are watched, milliseconds."""
        self._changes = -1
        self._tasks = BackgroundTasks()
        self._is_following = False
        self._problem: str | None = None

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[asyncio.Future[NotAuthenticated]]:
        """Watch the key of a request while the context lasts.

        The future is done within a second of the key's end, also if that was before: with `ExpiredKey`, with
        `RevokedKey` also after a rotation, or with `NarrowedKey`. It is not while the keys cannot be read.
        """
        ended: asyncio.Future[NotAuthenticated] = asyncio.get_running_loop().create_future()
        self._watched.setdefault(caller.digest, {})[ended] = caller
        self._new.add(caller.digest)
        if not self._is_following:
            self._is_following = True
            self._tasks.spawn(self._follow(), "watch-keys")
        try:
            yield ended
        finally:
            self._forget(caller.digest, ended)

    async def close(self) -> None:
        """Look no more."""
        await self._tasks.close()

    async def _follow(self) -> None:
        looking: asyncio.Task[None] | None = None
        while self._watched:
            now_ms = self._clock.now_ms()
            for digest in [digest for digest, expiry_ms in self._expiries.items() if now_ms >= expiry_ms]:
                self._end(digest, None, now_ms)
            if looking is None or looking.done():
                looking = self._tasks.start_logged(self._look(), "look-at-keys")
            await asyncio.sleep(_LOOK_S)
        self._is_following = False

    async def _look(self) -> None:
        try:
            await self._end_changed()
            self._problem = None
        except ChronicleError as error:  # the next look may succeed
            if str(error) != self._problem:
                _log.warning("keys_not_watched", error=str(error))
            self._problem = str(error)

    async def _end_changed(self) -> None:
        new, watched = list(self._new), list(self._watched)
        if self._keys.is_far:
            changes, found = await asyncio.to_thread(self._read, new, watched)
        else:
            changes, found = self._read(new, watched)
        now_ms = self._clock.now_ms()
        for digest, key in found.items():
            if digest in self._watched:
                if key is not None:
                    self._expiries[digest] = math.inf if key.expires_ms is None else key.expires_ms
                self._end(digest, with_implied(key.scopes) if key is not None else None, now_ms)
        self._changes = changes
        self._new.difference_update(new)

    def _read(self, new: Sequence[bytes], watched: Sequence[bytes]) -> tuple[int, dict[bytes, Key | None]]:
        """Return the number of changes, and the keys that may have changed since they were read."""
        changes = self._keys.changes()
        digests = new if changes == self._changes else watched
        return changes, {digest: self._keys.find_digest(digest) for digest in digests}

    def _end(self, digest: bytes, scopes: frozenset[Scope] | None, now_ms: int) -> None:
        """End the requests of a key that it does not permit any more.

        Args:
            scopes: what it permits; ``None`` if it is not there.
        """
        for ended, caller in self._watched[digest].items():
            error: NotAuthenticated
            if now_ms >= self._expiries.get(digest, math.inf):
                error = ExpiredKey(f"this key expired; podium keys create makes another one ({caller.key_id})")
            elif scopes is None:
                error = RevokedKey(f"this key was revoked or rotated ({caller.key_id}); send the request with another")
            elif not caller.scopes <= scopes:
                error = NarrowedKey(f"this key lost a scope ({caller.key_id}); send the request again")
            else:
                continue
            if not ended.done():
                ended.set_result(error)

    def _forget(self, digest: bytes, ended: asyncio.Future[NotAuthenticated]) -> None:
        watched = self._watched[digest]
        del watched[ended]
        if not watched:
            del self._watched[digest]
            self._new.discard(digest)
            self._expiries.pop(digest, None)
