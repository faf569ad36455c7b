"""The mark through which gc announces the condemned packs to writers.

``condemned`` is one object with the names of packs whose blobs count as missing for writers, so that they put them
again. It is never removed: its generation shows a process that slept through a collection that it must list the packs
again. docs/internals/gc.md has the protocol.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, NotFound, UnsupportedFormat
from chronicle.system.boot import boot_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.blobs.media.objects import Objects
    from chronicle.clock import Clock

__all__ = ["Mark", "MarkWatch", "read_mark", "write_mark"]

_OBJECT: Final = "condemned"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """The condemned packs of a store."""

    generation: int = 0
    """Incremented by each mark and each collection."""
    since_ms: int = 0
    """When the mark was set, epoch milliseconds."""
    packs: frozenset[str] = frozenset()
    """Names of packs."""
    boot: str = ""
    """The machine and the boot to which `since_s` refers."""
    since_s: float = 0.0
    """When the mark was set, by a clock that cannot be set and only advances while the machine runs."""

    @classmethod
    def made(cls, generation: int, clock: Clock, packs: Iterable[str] = ()) -> Mark:
        """Return a mark with the current time."""
        return cls(generation, clock.now_ms(), frozenset(packs), _boot(), clock.monotonic_s())

    def left_ms(self, grace_ms: int, clock: Clock) -> int:
        """Return the rest of the grace period, milliseconds; 0 or less if it is over.

        On the machine that set the mark, a commit in flight was suspended whenever the machine was, and a clock that is
        set forward gives it no time. So the machine's running time since then counts as well as the date.
        """
        left = self.since_ms + grace_ms - clock.now_ms()
        ran_s = clock.monotonic_s() - self.since_s
        if self.boot and self.boot == _boot() and ran_s >= 0:
            left = max(left, grace_ms - round(ran_s * 1000))
        return left


def read_mark(objects: Objects) -> Mark:
    """Return the mark of a store; an empty one before the first collection.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: the mark is damaged. Without it nothing may be put, because a present blob may be condemned.
        Unavailable: the medium could not be reached.
    """
    try:
        data = objects.read(_OBJECT)
    except NotFound:
        return Mark()
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise UnsupportedFormat(f"the mark of gc has format {found['format']}; this code reads {_FORMAT}")
        return Mark(
            int(found["generation"]),
            int(found["since_ms"]),
            frozenset(found["packs"]),
            str(found.get("boot", "")),
            float(found.get("since_s", 0)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the mark of gc, {_OBJECT!r}, is damaged: {error}") from error


def write_mark(objects: Objects, mark: Mark) -> None:
    """Write a mark, durable on return."""
    described = {
        "format": _FORMAT,
        "generation": mark.generation,
        "since_ms": mark.since_ms,
        "packs": sorted(mark.packs),
        "boot": mark.boot,
        "since_s": mark.since_s,
    }
    objects.write(_OBJECT, [json.dumps(described).encode()])


def _boot() -> str:
    try:
        return boot_id()
    except OSError:  # no such file on this system: only the date counts
        return ""


class MarkWatch:
    """Follows the mark of a store; each `look` is cheap.

    Args:
        objects: the medium.

    Raises:
        UnsupportedFormat, Corrupt, Unavailable: the mark could not be read.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._stamp = objects.stamp(_OBJECT)
        self._mark = Mark() if self._stamp is None else read_mark(objects)

    @property
    def packs(self) -> frozenset[str]:
        """The condemned packs as of the last `look`."""
        return self._mark.packs

    def look(self) -> bool:
        """Read the mark if it may have changed; return whether packs may have been removed since the last look."""
        stamp = self._objects.stamp(_OBJECT)
        if stamp == self._stamp:
            return False
        before = self._mark.generation
        self._mark = read_mark(self._objects)
        self._stamp = stamp
        return self._mark.generation != before
