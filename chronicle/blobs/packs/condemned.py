"""The list through which gc announces the condemned packs to writers.

``condemned`` is one object with the names of packs whose blobs count as missing for writers, so that they put them
again. It is never removed: its generation shows a process that slept through a collection that it must list the packs
again. docs/internals/gc.md has the protocol.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import Corrupt, NotFound, UnsupportedFormat
from chronicle.system.boot import boot_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.blobs.media.objects import Objects
    from chronicle.clock import Clock

__all__ = ["Batch", "CondemnedPacks", "CondemnedWatch", "Moment", "read_condemned", "write_condemned"]

_OBJECT: Final = "condemned"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was done."""

    ms: int
    """Epoch milliseconds."""
    boot: str
    """The machine and the boot to which `running_s` refers."""
    running_s: float
    """By a clock that cannot be set and only advances while the machine runs."""

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        """Return the present moment."""
        return cls(clock.now_ms(), _boot(), clock.monotonic_s())

    def left_ms(self, wait_ms: int, clock: Clock) -> int:
        """Return the rest of a wait, milliseconds; 0 or less if it is over.

        On the machine that wrote the moment, a commit in flight was suspended whenever the machine was, and a clock
        that is set forward gives it no time. So the machine's running time since then counts as well as the date.
        """
        left = self.ms + wait_ms - clock.now_ms()
        ran_s = clock.monotonic_s() - self.running_s
        if self.boot and self.boot == _boot() and ran_s >= 0:
            left = max(left, wait_ms - round(ran_s * 1000))
        return left


@dataclass(frozen=True, slots=True)
class Batch:
    """Packs that were condemned together."""

    packs: frozenset[str]
    """Names of packs."""
    condemned: Moment
    emptied: Moment | None = None
    """When everything in them that was reachable had been copied to other packs."""
    generation: int = 0
    """Of the journal, then: in another one they may be needed again."""

    @classmethod
    def made(cls, clock: Clock, packs: Iterable[str]) -> Batch:
        """Return a batch that is condemned now."""
        return cls(frozenset(packs), Moment.now(clock))


@dataclass(frozen=True, slots=True)
class CondemnedPacks:
    """The list of the condemned packs of a store."""

    generation: int = 0
    """Incremented by each condemnation and each collection."""
    batches: tuple[Batch, ...] = ()

    @property
    def packs(self) -> frozenset[str]:
        """The names of all of them."""
        return frozenset().union(*(batch.packs for batch in self.batches))


def read_condemned(objects: Objects) -> CondemnedPacks:
    """Return the condemned packs of a store; an empty list before the first collection.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: the list is damaged. Without it nothing may be put, because a present blob may be condemned.
        Unavailable: the medium could not be reached.
    """
    try:
        data = objects.read(_OBJECT)
    except NotFound:
        return CondemnedPacks()
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise UnsupportedFormat(
                f"the list of condemned packs has format {found['format']}; this code reads {_FORMAT}"
            )
        return CondemnedPacks(int(found["generation"]), tuple(_batch(batch) for batch in found["batches"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the list of condemned packs, {_OBJECT!r}, is damaged: {error}") from error


def write_condemned(objects: Objects, condemned: CondemnedPacks) -> None:
    """Write the list, durable on return."""
    batches = [
        {
            **_described(batch.condemned),
            "packs": sorted(batch.packs),
            "emptied": _described(batch.emptied) if batch.emptied is not None else None,
            "generation": batch.generation,
        }
        for batch in condemned.batches
    ]
    described = {"format": _FORMAT, "generation": condemned.generation, "batches": batches}
    objects.write(_OBJECT, [json.dumps(described).encode()])


def _described(moment: Moment) -> dict[str, Any]:
    return {"since_ms": moment.ms, "boot": moment.boot, "since_s": moment.running_s}


def _moment(found: dict[str, Any]) -> Moment:
    return Moment(int(found["since_ms"]), str(found["boot"]), float(found["since_s"]))


def _batch(found: dict[str, Any]) -> Batch:
    emptied = found.get("emptied")
    return Batch(
        frozenset(found["packs"]),
        _moment(found),
        _moment(emptied) if emptied is not None else None,
        int(found.get("generation", 0)),
    )


def _boot() -> str:
    try:
        return boot_id()
    except OSError:  # no such file on this system: only the date counts
        return ""


class CondemnedWatch:
    """Follows the condemned packs of a store; each `refresh` is cheap. Those of a far store are read by the first one.

    Args:
        objects: the medium.

    Raises:
        UnsupportedFormat, Corrupt, Unavailable: the list could not be read.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._is_unread = objects.is_far
        self._stamp = objects.stamp(_OBJECT)
        self._condemned = CondemnedPacks() if self._stamp is None or self._is_unread else read_condemned(objects)
        self._packs = self._condemned.packs

    @property
    def packs(self) -> frozenset[str]:
        """The condemned packs as of the last `refresh`."""
        return self._packs

    def refresh(self) -> bool:
        """Read the list if it may have changed; return whether packs may have been removed since the last look."""
        stamp = self._objects.stamp(_OBJECT)
        if stamp == self._stamp and not self._is_unread:
            return False
        before = None if self._is_unread else self._condemned.generation
        self._condemned = read_condemned(self._objects)
        self._packs = self._condemned.packs
        self._stamp, self._is_unread = stamp, False
        return before is not None and self._condemned.generation != before
