"""Moving a home into PostgreSQL and an object store: copy, read back, and only then change where the home is.

The blobs are copied first, then the journal and the records, each in one transaction. A move that was broken off is
called again: packs that are there are not copied again, and the journal and the records are replaced. The database has
the home when its identity is there (`coordinator.homes.opening`); until then it has a note of the home that is being
moved, so that nothing else is replaced.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from chronicle.blobs.gc.store_copy import without_collections
from chronicle.blobs.packs.opening import open_objects
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.journal.opening import open_journal
from chronicle.journal.places import without_password
from coordinator.backup import read_back, release_leases
from coordinator.gateway_record import check_no_gateway
from coordinator.home import Identity
from coordinator.homes.opening import identify, open_records, records_at
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.journal.opening import StoredJournal
    from coordinator.backup import Backup
    from coordinator.home import Home
    from coordinator.homes.postgres.documents import PostgresDocuments

__all__ = ["move_home"]

_MOVING: Final = "moving"
"""The document of a database with the id of the home that is being moved there."""


def move_home(home: Home, journal_url: str, blobs_url: str, on_progress: Callable[[str], None]) -> Backup:
    """Move a home in a directory into a database server and an object store, and verify it there.

    What the home had in its directory is set aside, in ``moved/``.

    Args:
        home: the home.
        journal_url: where its journal and records are to be, as `open_journal` takes it.
        blobs_url: where its blobs are to be; empty if they are in an object store already.
        on_progress: called repeatedly, with a short description of the stage.

    Raises:
        GatewayRuns: a gateway of the home runs.
        HomeError: a service runs; the home is in a server already, or the server has another one; or no object store
            is named.
        Conflict: garbage is being collected.
        Corrupt: what arrived is damaged, because the home is.
        InvalidInput, Unavailable: a URL cannot be used, or not be reached.
    """
    if home.is_shared:
        raise HomeError(
            f"the home {home.path} has its journal at {without_password(home.journal_url)} already; podium backup "
            "makes a home in a directory of it"
        )
    check_no_gateway(home)
    with home.service_lock() as held:
        if not held:
            raise HomeError(f"the service of the home {home.path} runs: end it first (podium down)")
        return _move(home, journal_url, blobs_url.rstrip("/") or home.blobs_url, on_progress)


def _move(home: Home, journal_url: str, blobs_url: str, on_progress: Callable[[str], None]) -> Backup:
    home_id = home.id
    records = records_at(journal_url, lambda: home_id, home.path)
    with closing(open_journal(journal_url)) as store:
        _begin(records.documents(), store, home_id, without_password(journal_url))
        home.claim(blobs_url, home_id)
        with without_collections(home.blobs_url) as blobs:
            size_bytes = blobs.write_to(
                open_objects(blobs_url), lambda done, of: on_progress(f"copying blobs: {done} of {of} packs")
            )
            with closing(home.journal(create=False, read_only=True)) as source:
                store.receive(source, lambda rows: on_progress(f"copying the journal: {rows} rows"))
            records.receive(open_records(home))
        release_leases(store)
        with closing(PackBlobStore(blobs_url)) as stored:
            moved = read_back("the copy", store, stored, size_bytes, on_progress)
    _ = identify(journal_url, Identity(home_id, blobs_url), home.path)
    home.move_to(blobs_url, journal_url)
    return moved


def _begin(documents: PostgresDocuments, store: StoredJournal, home_id: str, place: str) -> None:
    """Note that a home is being moved to a database, unless that has anything else.

    Raises:
        HomeError: it has.
    """
    if documents.read("home") is not None:
        raise HomeError(f"{place} has a home already; name another schema (?schema=NAME)")
    if documents.read(_MOVING) is None and store.count_sessions():
        raise HomeError(f"{place} has a journal already, which is not of this home; name another schema (?schema=NAME)")
    moving = documents.create(_MOVING, home_id.encode()).decode()
    if moving != home_id:
        raise HomeError(f"the home {moving} is being moved to {place}; name another schema (?schema=NAME)")
