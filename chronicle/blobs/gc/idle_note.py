"""The note of a collection that left nothing to do, so that the next one need not find that out again.

``collected`` is one object with a digest of the packs of the store, of the roots that were looked at, and of how. It is
derived: if it is lost, damaged or of another version, everything is looked at. It is only ever a reason to do nothing.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.errors import NotFound, StorageRefused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.blobs.media.objects import Objects

__all__ = ["is_noted", "note", "state_of"]

_OBJECT: Final = "collected"
_FORMAT: Final = 1


def state_of(packs: Mapping[str, int], roots: str, *, keep_from: float, merge_from: int) -> str:
    """Return a digest of all that a collection that runs alone depends on.

    Args:
        packs: their names and bytes.
        roots: as given to `chronicle.blobs.gc.collector.collect`.
        keep_from, merge_from: as of `chronicle.blobs.gc.collector.collect`.
    """
    return blake3(json.dumps([sorted(packs.items()), roots, keep_from, merge_from]).encode()).hexdigest()


def is_noted(objects: Objects, state: str) -> bool:
    """Whether the last note is of this state."""
    try:
        found = json.loads(objects.read(_OBJECT))
    except (NotFound, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == _FORMAT and found.get("state") == state


def note(objects: Objects, state: str) -> None:
    """Note that a collection in this state has nothing to do; not, if the medium does not take it."""
    with suppress(StorageRefused, Unavailable):
        objects.write(_OBJECT, [json.dumps({"format": _FORMAT, "state": state}).encode()])
