"""A blob store that counts what is read, and waits or fails on request."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import BlobId

__all__ = ["LARGE", "CountingStore"]

LARGE = random.Random(5).randbytes(12_000_000)


class CountingStore(MemoryBlobStore):
    """Says which blobs were read, and waits or fails when told to."""

    def __init__(self, *, is_far: bool = False) -> None:
        super().__init__()
        self.is_far = is_far
        self.fetched: list[BlobId] = []
        self.open = threading.Event()
        self.open.set()
        self.away = False
        self.requests = 0
        self.begun = 0
        self.damaged: BlobId | None = None
        self.away_at = 0
        """The request that fails, counted from 1."""
        self._count = threading.Lock()

    def get(self, blob_id: BlobId) -> bytes:
        return self.get_many([blob_id])[blob_id]

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        with self._count:
            self.fetched.extend(blob_ids)
            self.begun += 1
        assert self.open.wait(20)
        self.requests += 1
        if self.away or self.requests == self.away_at:
            raise Unavailable("away")
        if self.damaged in blob_ids:
            raise Corrupt(f"blob {self.damaged} has other bytes")
        return {blob_id: MemoryBlobStore.get(self, blob_id) for blob_id in blob_ids}

    def bytes_of(self, chunks: dict[BlobId, bytes]) -> int:
        """How many bytes of these were fetched."""
        with self._count:
            return sum(len(chunks[blob_id]) for blob_id in self.fetched if blob_id in chunks)
