"""`KeyWatch`: ends requests that live long, such as streams, with the key that permitted them.

There is one look at the key store for all of a process's requests, whatever their number: at the number of its changes,
which a change by any process moves, and at the earliest expiry. Only if one of them says so are the keys read again.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from coordinator.access.caller import ExpiredKey, NarrowedKey, RevokedKey, with_implied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.clock import Clock
    from coordinator.access.caller import Caller, NotAuthenticated
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
        self._expiries: dict[bytes, float] = {}
        """Of the keys that are watched, milliseconds."""
        self._earliest_ms = math.inf
        """No key expires before."""
        self._changes = -1
        self._timer: asyncio.TimerHandle | None = None
        self._problem: str | None = None

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[asyncio.Future[NotAuthenticated]]:
        """Watch the key of a request while the context lasts.

        The future is done within a second of the key's end, or at once: with `ExpiredKey`, with `RevokedKey` also
        after a rotation, or with `NarrowedKey`.

        Raises:
            StorageRefused, Corrupt: the keys cannot be read.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[NotAuthenticated] = loop.create_future()
        self._watched.setdefault(caller.digest, {})[ended] = caller
        try:
            self._check(caller.digest, self._clock.now_ms())
            if self._timer is None:
                self._timer = loop.call_later(_LOOK_S, self._look)
            yield ended
        finally:
            self._forget(caller.digest, ended)

    def _look(self) -> None:
        """Look at the keys, and end the requests of those that have ended."""
        try:
            changes, now_ms = self._keys.changes(), self._clock.now_ms()
            if changes != self._changes or now_ms >= self._earliest_ms:
                for digest in list(self._watched):
                    self._check(digest, now_ms)
                self._earliest_ms = min(self._expiries.values(), default=math.inf)
                self._changes = changes
            self._problem = None
        except ChronicleError as error:  # the next look may succeed
            if str(error) != self._problem:
                _log.warning("keys_not_watched", error=str(error))
            self._problem = str(error)
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _check(self, digest: bytes, now_ms: int) -> None:
        """Read a key, and end those of its requests that it does not permit any more."""
        key = self._keys.find_digest(digest)
        if key is not None:
            self._expiries[digest] = math.inf if key.expires_ms is None else key.expires_ms
            self._earliest_ms = min(self._earliest_ms, self._expiries[digest])
        scopes = with_implied(key.scopes) if key is not None else frozenset()
        for ended, caller in self._watched[digest].items():
            error: NotAuthenticated
            if now_ms >= self._expiries.get(digest, math.inf):
                error = ExpiredKey(f"this key expired; podium keys create makes another one ({caller.key_id})")
            elif key is None:
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
            self._expiries.pop(digest, None)
        if not self._watched and self._timer is not None:
            self._timer.cancel()
            self._timer = None
