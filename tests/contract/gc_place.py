"""A blob store with a clock, and faults in its file system, for the tests of collections."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from chronicle.blobs import blob_id
from chronicle.blobs.gc.collector import GcReport, GcRules, collect
from chronicle.blobs.packs.catalog import PACK_FOLDER
from chronicle.blobs.packs.opening import open_medium
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.ids import BlobId
from chronicle.testing.blob_contract import named

if TYPE_CHECKING:
    import pytest

__all__ = ["GRACE_S", "Place", "failing_from", "present"]

GRACE_S = 100.0


class Place:
    """A store, with a clock."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock()

    def open(self) -> PackBlobStore:
        return PackBlobStore(self.url, clock=self.clock, cache_bytes=0)

    def packs(self) -> dict[str, int]:
        """Return the packs that there are, with their bytes."""
        objects, _, _ = open_medium(self.url, lambda: uuid4().hex)
        return dict(objects.sizes(PACK_FOLDER))

    def collect(self, *reached: bytes, alone: bool = False, dry_run: bool = False, keep_from: float = 0.5) -> GcReport:
        return self.collect_with(lambda: named(*reached), alone=alone, dry_run=dry_run, keep_from=keep_from)

    def collect_with(
        self,
        reached: Callable[[], dict[BlobId, bytes]],
        alone: bool = False,
        dry_run: bool = False,
        keep_from: float = 0.5,
        roots: Callable[[], str] | None = None,
    ) -> GcReport:
        return collect(
            self.url,
            reached,
            GcRules(grace_s=GRACE_S, alone=alone, dry_run=dry_run, keep_from=keep_from, kept_s=0.0),
            roots=roots,
            clock=self.clock,
        )


def present(store: PackBlobStore, *blobs: bytes) -> list[bytes]:
    found = []
    for data in blobs:
        try:
            assert store.get(blob_id(data)) == data
        except NotFound:
            continue
        found.append(data)
    return found


@contextmanager
def failing_from(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[list[object]]:
    """Let renames and removals fail from the n-th on; yield what was asked for."""
    calls: list[object] = []

    def fails(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            calls.append(arguments)
            if len(calls) >= number:
                raise OSError(5, "Input/output error")
            real(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails(os.rename))
        patched.setattr(os, "unlink", fails(os.unlink))
        yield calls
