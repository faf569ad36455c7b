"""The note that a collection left nothing to do, which saves the next one the same work.

``collected`` is one object with a digest of the store's packs, of the collection's roots, and of its parameters. It is
derived data: if it is lost, damaged or of another version, a full collection runs. It can only cause a collection to be
skipped.
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
    """Return a digest of all inputs of a collection that runs alone.

    Args:
        packs: their names and sizes, bytes.
        roots: as given to `chronicle.blobs.gc.collector.collect`.
        keep_from, merge_from: as of `chronicle.blobs.gc.collector.GcRules`.
    """
    return blake3(json.dumps([sorted(packs.items()), roots, keep_from, merge_from]).encode()).hexdigest()


def is_noted(objects: Objects, state: str) -> bool:
    """Whether the last note has this state."""
    try:
        found = json.loads(objects.read(_OBJECT))
    except (NotFound, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == _FORMAT and found.get("state") == state


def note(objects: Objects, state: str) -> None:
    """Note that a collection in this state has nothing to do; ignores a failure of the medium."""
    with suppress(StorageRefused, Unavailable):
        objects.write(_OBJECT, [json.dumps({"format": _FORMAT, "state": state}).encode()])
