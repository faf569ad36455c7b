"""Bulk reads of a far store in long ranges of packs; a request for each blob would take hours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.blobs.packs.pack_store import PackBlobStore
    from chronicle.ids import BlobId

__all__ = ["BulkReader"]

_STRETCH_BYTES: Final = 4 * 1024 * 1024
_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Trees and contents of a commit are in separate parts of its pack, and are read alternately."""


class BulkReader:
    """A `chronicle.blobs.port.BlobReader` for callers that next read the neighbours of a blob. Belongs to one thread.

    Args:
        store: the store to read.
    """

    def __init__(self, store: PackBlobStore) -> None:
        self._store = store
        self._kept: LRUCache[BlobId, bytes] = LRUCache(_KEPT_BYTES, len)
        self.checked: set[str] = set()
        """The packs that were read whole, which checks them as `PackBlobStore.check_pack` does."""

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`."""
        data = self._kept.get(blob_id)
        if data is not None:
            return data
        found, whole = self._store.get_stretch(blob_id, _STRETCH_BYTES)
        if whole is not None:
            self.checked.add(whole)
        self._keep(found)
        return found[blob_id]

    def fetch(self, blob_ids: Sequence[BlobId]) -> None:
        """Read several blobs and their neighbours ahead, in fewer round trips than one `get` after the other takes."""
        lacking = [blob_id for blob_id in blob_ids if blob_id not in self._kept]
        if len(lacking) > 1:
            for name, found in self._store.get_packs(lacking, _STRETCH_BYTES).items():
                self.checked.add(name)
                self._keep(found)

    def _keep(self, found: Mapping[BlobId, bytes]) -> None:
        for blob_id, data in found.items():
            if blob_id not in self._kept and len(data) <= _KEPT_BYTES:
                self._kept[blob_id] = data
