"""A store process's server in a thread of the tests, over stores of theirs."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.journal.sqlite import SqliteJournalStore
from coordinator.access.quotas import Quotas
from coordinator.documents import FileDocuments
from coordinator.home import Home
from coordinator.homes.sqlite.records import SqliteHomeRecords
from coordinator.store.links import StoreAccess
from coordinator.store.server import StoreServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.port import JournalStore
    from coordinator.access.quotas import Quota
    from coordinator.homes.node_roots import NodeRoots

__all__ = ["SECRET", "served", "serving"]

SECRET = "secret of the tests"


@contextmanager
def serving(
    journal: JournalStore,
    blobs: BlobStore,
    directory: Path,
    limits: Mapping[str, Quota] | None = None,
    least_epoch: int = 0,
    roots: NodeRoots | None = None,
) -> Iterator[StoreAccess]:
    """Serve a journal and blobs, with documents in a directory, and yield the access to the server."""
    path = directory / "store.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    loop = asyncio.new_event_loop()
    ready, ending = threading.Event(), asyncio.Event()
    quotas = Quotas(lambda: limits or {}, journal, blobs, SystemClock())
    documents = FileDocuments(directory)
    server = StoreServer(
        journal,
        blobs,
        documents,
        roots or SqliteHomeRecords(Home(directory)).node_roots(),
        quotas,
        IdSource(),
        SECRET,
        10,
        lambda: least_epoch,
    )

    async def serve() -> None:
        async with server.listening(listener):
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield StoreAccess(str(path), SECRET)
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
        loop.close()


@contextmanager
def served(directory: Path) -> Iterator[tuple[JournalStore, PackBlobStore, StoreAccess]]:
    """Serve a journal and blobs in a directory; yield them, and the access to their server."""
    with (
        closing(SqliteJournalStore(directory / "journal.db")) as journal,
        closing(PackBlobStore(f"file://{directory / 'blobs'}")) as blobs,
        serving(journal, blobs, directory) as access,
    ):
        yield journal, blobs, access
