"""A check of what a blob store relies on: a medium that lacks it would lose blobs later, and silently."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from chronicle.errors import Conflict, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from chronicle.blobs.media.fsspec_objects import RemoteObjects
    from chronicle.clock import Clock

__all__ = ["ahead_of_medium_ms", "check_medium"]

_MAX_SKEW_MS: Final = 5 * 60_000
"""The largest accepted difference to the medium's clock; S3 refuses requests from 15 minutes on."""
_RESOLUTION_MS: Final = 1000
"""HTTP's times have seconds."""


def check_medium(objects: RemoteObjects, clock: Clock) -> None:
    """Check that a medium honours conditional creation, returns what was just written, and has about this clock.

    An object below ``check/`` is written and removed, with five or six requests.

    Raises:
        InvalidInput: it does not; no blob should be stored in it.
        Unavailable: it cannot be reached.
    """
    name = f"check/{secrets.token_hex(8)}"
    objects.create(name, b"first")
    try:
        _check_reads(objects, name)
        _check_creation(objects, name)
        _check_clock(objects, name, clock)
    finally:
        with suppress(Unavailable):
            objects.delete(name)


def ahead_of_medium_ms(objects: RemoteObjects, clock: Clock) -> int | None:
    """Return by how much a clock is certainly ahead of a medium's: negative if behind, ``None`` if that says no time.

    An object below ``check/`` is written and removed. Media tell times in seconds.

    Raises:
        Unavailable: the medium cannot be reached.
    """
    name = f"check/{secrets.token_hex(8)}"
    before_ms = clock.now_ms()
    objects.create(name, b"")
    try:
        after_ms, stored_ms = clock.now_ms(), objects.modified_ms(name)
    finally:
        with suppress(Unavailable):
            objects.delete(name)
    if stored_ms is None:
        return None
    return max(before_ms - (stored_ms + _RESOLUTION_MS), 0) - max(stored_ms - after_ms, 0)


def _check_reads(objects: RemoteObjects, name: str) -> None:
    try:
        found = objects.read(name)
    except NotFound:
        found = b""
    if found != b"first":
        raise InvalidInput(
            f"{objects.shown} does not return an object that was just stored in it, so it would lose blobs: take a "
            "store that reads what it has acknowledged"
        )


def _check_creation(objects: RemoteObjects, name: str) -> None:
    with suppress(Conflict):
        objects.create(name, b"second")
        raise InvalidInput(
            f"{objects.shown} replaces an object that was to be created only if it is absent (If-None-Match: *), so "
            "two homes could claim it: take a store, or a version of it, that honours conditional writes"
        )


def _check_clock(objects: RemoteObjects, name: str, clock: Clock) -> None:
    modified_ms = objects.modified_ms(name)
    if modified_ms is None:
        return
    skew_ms = modified_ms - clock.now_ms()
    if abs(skew_ms) > _MAX_SKEW_MS:
        side = "behind" if skew_ms > 0 else "ahead of"
        raise InvalidInput(
            f"the clock of this machine is {abs(skew_ms) / 60_000:.0f} minutes {side} that of {objects.shown}: set it "
            "by NTP"
        )
