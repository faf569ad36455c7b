"""Checks of packs around their blobs: a damaged index or trailer loses the blobs once the store's index is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.packs.bulk_reader import BulkReader
from chronicle.errors import Corrupt, NotFound, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.packs.pack_store import PackBlobStore
    from chronicle.ids import BlobId

__all__ = ["PackChecker"]


class PackChecker:
    """A `chronicle.blobs.port.BlobReader` that checks each pack it reads from, in addition to the blobs.

    Args:
        blobs: the store, opened without this node's cache, which would hide its damage.
    """

    def __init__(self, blobs: PackBlobStore) -> None:
        self._blobs = blobs
        self._bulk = BulkReader(blobs) if blobs.is_far else None
        self._reader = self._bulk or blobs
        self._checked = self._bulk.checked if self._bulk else set[str]()
        self._found: list[str] = []

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`. Damage of its pack is not raised."""
        data = self._reader.get(blob_id)
        name = self._blobs.pack_of(blob_id)
        if name is not None:
            self._check(name)
        return data

    def fetch(self, blob_ids: Sequence[BlobId]) -> None:
        """Read blobs of a far store ahead, several packs at a time, for calls of `get` that follow."""
        if self._bulk is not None:
            self._bulk.fetch(blob_ids)

    def check_others(self) -> None:
        """Check the packs from which nothing was read.

        Raises:
            Unavailable: the store could not be reached.
        """
        for name in self._blobs.packs():
            self._check(name)

    def problem(self) -> str | None:
        """Return and clear the damage of packs that was found."""
        found, self._found = self._found, []
        if not found:
            return None
        return (
            f"{'; '.join(found)}: its blobs can be read today, and not any more once the store's index is lost; put "
            "the pack back from a backup"
        )

    def _check(self, name: str) -> None:
        if name in self._checked:
            return
        try:
            self._blobs.check_pack(name)
        except NotFound:  # gc has dropped it since: its blobs are in other packs by now
            return
        except (Corrupt, UnsupportedFormat) as error:  # its blobs were read, so no newer version wrote it
            self._found.append(str(error))
        self._checked.add(name)
