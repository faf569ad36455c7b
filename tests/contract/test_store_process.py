"""The journal and the blobs of a store process keep the contracts of stores."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs import ident
from chronicle.blobs.opening import open_blobs
from chronicle.blobs.packs.catalog import pack_object
from chronicle.journal.remote import remote_journal
from chronicle.testing.blob_contract import BlobStoreContract, Opener
from chronicle.testing.journal_contract import JournalStoreContract
from coordinator.store.links import COORDINATOR
from tests.contract.served_stores import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.packs.pack_store import PackBlobStore
    from chronicle.blobs.port import BlobStore
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore


class TestJournal(JournalStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[JournalStore]:
        """The journal as the coordinator has it; what verifies what was written reads it itself."""
        with served(tmp_path) as (journal, _, access), closing(access.link(COORDINATOR).calls()) as calls:
            remote = remote_journal(calls)
            vars(remote).update(audit=journal.audit, all_objects=journal.all_objects)
            yield remote


class TestBlobs(BlobStoreContract):
    _own: PackBlobStore

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Iterator[Opener]:
        """Opens the blobs as a host and its mount servers have them; only the test lists them."""
        with served(tmp_path) as (_, self._own, access):

            def open_them() -> BlobStore:
                opened = open_blobs(access.link("host_1").blobs_url)
                vars(opened).update(blob_ids=self._own.blob_ids)
                return opened

            yield open_them

    def damage(self, store: BlobStore, identifier: BlobId) -> None:
        place = self._own._catalog.find(ident.to_raw(identifier))
        assert place is not None
        name, entry = place
        path = Path(self._own.url.removeprefix("file://")) / pack_object(name)
        data = bytearray(path.read_bytes())
        data[entry.offset + entry.stored // 2] ^= 1
        path.write_bytes(data)
        self._own.drop_cached()
