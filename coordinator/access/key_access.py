"""Authentication by keys: an `Authorization` header to a `Caller`.

It is on the path of every request, so what was read of a key is kept until any process changes the keys: an
authentication is one hash, and one look at the number of changes. Where keys are in a database server that look is
made by a thread, for all requests that came during the one before.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from chronicle.journal.batching import Batches
from coordinator.access.caller import (
    Caller,
    ExpiredKey,
    KeyOfAnotherHome,
    MissingKey,
    TooManyRequests,
    UnknownKey,
    with_implied,
)
from coordinator.access.key_watch import KeyWatch
from coordinator.access.keys import (
    KEY_PREFIX,
    LINK_PREFIX,
    TOKEN_PREFIX,
    claims_in,
    digest_of,
    is_key,
    is_link,
    is_of_home,
)
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from chronicle.clock import Clock
    from coordinator.access.caller import NotAuthenticated
    from coordinator.access.keys import Key
    from coordinator.access.rates import Rates
    from coordinator.access.records import KeyRecords

__all__ = ["KeyAccess"]

_NOTE_USE_MS: Final = 60_000
"""The use of a key is recorded once a minute: each record is a write to the disk."""
_MAX_KEPT: Final = 10_000

_log: Final = structlog.stdlib.get_logger("coordinator.access")


@dataclass(slots=True)
class _Known:
    digest: bytes
    key: Key
    caller: Caller
    noted_ms: int


class KeyAccess:
    """A `coordinator.access.caller.Access` by the keys of a home.

    Args:
        keys: the store; the caller closes it.
        clock: for expiry.
        rates: the limit of requests of a key that is not an operator's; ``None`` for none.
    """

    def __init__(self, keys: KeyRecords, clock: Clock, rates: Rates | None = None) -> None:
        self._keys = keys
        self._clock = clock
        self._rates = rates
        self._known: dict[bytes, _Known] = {}
        self._changes = -1
        self._reading = Batches(self._find_all, "reader of keys") if keys.is_far else None
        self._tasks = BackgroundTasks()
        self._watch = KeyWatch(keys, clock)

    async def authenticate(self, authorization: str | None) -> Caller:
        """Return the caller of a request."""
        return await self._caller(self._text_of(authorization))

    async def authenticate_link(self, authorization: str | None) -> Caller:
        """Return the caller of a request with a link."""
        return await self._caller(self._text_of(authorization, of_link=True))

    async def _caller(self, text: str) -> Caller:
        digest = digest_of(text)
        known = await self._reading.written(digest) if self._reading is not None else self._find_all([digest])[0]
        now_ms = self._clock.now_ms()
        if known is None:
            raise UnknownKey(
                "this key is not known here: it was revoked, or never given out; podium keys list shows all"
            )
        if known.key.is_expired(now_ms):
            raise ExpiredKey(f"this key expired; podium keys create makes another one ({known.key.key_id})")
        if self._rates is not None and not known.caller.is_operator:
            wait_s = self._rates.take(known.key.key_id)
            if wait_s:
                raise TooManyRequests(f"too many requests with this key; try again in {wait_s} s", wait_s)
        if now_ms - known.noted_ms >= _NOTE_USE_MS:
            known.noted_ms = now_ms
            _ = self._tasks.start(self._note_use(known.key.key_id, now_ms), f"use of {known.key.key_id}")
        claims = claims_in(text)
        return replace(known.caller, claims=claims) if claims else known.caller

    def watch(self, caller: Caller) -> AbstractContextManager[asyncio.Future[NotAuthenticated]]:
        """Watch the key of a request; see `KeyWatch.watch`."""
        return self._watch.watch(caller)

    async def close(self) -> None:
        """Watch no more keys, and wait until the uses of keys are recorded."""
        await self._watch.close()
        await self._tasks.join()
        if self._reading is not None:
            await asyncio.to_thread(self._reading.close)

    def _text_of(self, authorization: str | None, *, of_link: bool = False) -> str:
        scheme, _, text = (authorization or "").strip().partition(" ")
        text = text.strip()
        if not text or scheme.lower() != "bearer":
            what, prefix = ("the token of a link", LINK_PREFIX) if of_link else ("a key", KEY_PREFIX)
            raise MissingKey(f"send {what} with the header Authorization: Bearer {prefix}…")
        if of_link and not is_link(text):
            raise UnknownKey(f"this is not a link: the token of one begins with {LINK_PREFIX}")
        if not of_link and not is_key(text):
            raise UnknownKey(f"this is not a key: a key is {KEY_PREFIX} or {TOKEN_PREFIX} and 40 letters and digits")
        if not is_of_home(text, self._keys.tag):
            raise KeyOfAnotherHome("this key was given out by another home; take one of this home")
        return text

    def _find_all(self, digests: Sequence[bytes]) -> list[_Known | None]:
        """Look whether keys have changed, and return what is known of some; far records are read on one thread."""
        changes = self._keys.changes()
        noted: dict[str, int] = {}
        if changes != self._changes or len(self._known) > _MAX_KEPT:
            noted = {known.key.key_id: known.noted_ms for known in self._known.values()}
            self._known.clear()
            self._changes = changes
        return [self._find(digest, noted) for digest in digests]

    def _find(self, digest: bytes, noted: Mapping[str, int]) -> _Known | None:
        known = self._known.get(digest)
        if known is None:
            key = self._keys.find_digest(digest)
            if key is None:
                return None
            caller = Caller(key.key_id, with_implied(key.scopes), key.agent, key.tenant, digest=digest)
            noted_ms = noted.get(key.key_id, key.last_used_ms or 0)
            known = self._known[digest] = _Known(digest, key, caller, noted_ms)
        return known if hmac.compare_digest(known.digest, digest) else None

    async def _note_use(self, key_id: str, now_ms: int) -> None:
        try:
            await asyncio.to_thread(self._keys.note_use, key_id, now_ms)
        except ChronicleError as error:  # a full disk must not refuse requests
            _log.warning("key_use_not_recorded", key_id=key_id, error=str(error))
