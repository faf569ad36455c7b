"""Moving a home into PostgreSQL and an object store: copy, read back, and only then change where the home is.

In this order: the database gets the home's identity, marked as one that is being moved, so that it gets no other home
and no other directory uses it; the blobs are copied, then the journal and the records, each in one transaction; all is
read back; the directory is switched to the database, in one step; what it had is set aside; the mark is removed. A move
that was broken off is called again. Before the switch the home is in its directory still, and may have changed there:
packs that have arrived are not copied again, and the journal and the records are replaced. After it, the rest is done.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from chronicle.blobs.gc.store_copy import without_collections
from chronicle.blobs.packs.catalog import PACK_FOLDER
from chronicle.blobs.packs.opening import open_objects
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.journal.opening import open_journal
from chronicle.journal.places import without_password
from coordinator.backup import read_back, release_leases
from coordinator.documents import DRAINED, MODELS, QUARANTINE
from coordinator.gateway_record import check_no_gateway
from coordinator.home import Identity
from coordinator.homes.identity import create_identity, read_identity, write_identity
from coordinator.homes.opening import open_records, records_at
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.journal.opening import StoredJournal
    from coordinator.backup import Backup
    from coordinator.documents import Documents
    from coordinator.home import Home
    from coordinator.homes.identity import SharedDocuments
    from coordinator.homes.postgres.records import PostgresHomeRecords

__all__ = ["move_home"]


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
    check_no_gateway(home)
    with home.service_lock() as held:
        if not held:
            raise HomeError(f"the service of the home {home.path} runs: end it first (podium down)")
        records = records_at(journal_url, lambda: home.id, home.path, create=True)
        if home.is_shared:
            _check_is_unfinished(home, records.documents(), without_password(journal_url))
            moved = _read_back(home.journal_url, home.blobs_url, on_progress)
        else:
            blobs_url = blobs_url.rstrip("/") or home.blobs_url
            moved = _copy(home, records, journal_url, blobs_url, on_progress)
            home.move_to(blobs_url, journal_url)
        home.set_moved_aside()
        write_identity(records.documents(), Identity(home.id, home.blobs_url))
        return moved


def _check_is_unfinished(home: Home, documents: SharedDocuments, place: str) -> None:
    """Raise unless the directory was switched to a database by a move that was broken off then."""
    if without_password(home.journal_url) == place:
        found = read_identity(documents, place)
        if found is not None and found.is_moving and found.home_id == home.id:
            return
    raise HomeError(
        f"the home {home.path} has its journal at {without_password(home.journal_url)} already; podium backup makes a "
        "home in a directory of it"
    )


def _copy(
    home: Home, records: PostgresHomeRecords, journal_url: str, blobs_url: str, on_progress: Callable[[str], None]
) -> Backup:
    documents = records.documents()  # before the journal is made: it may be refused
    with closing(open_journal(journal_url)) as store:
        _begin(documents, store, Identity(home.id, blobs_url, is_moving=True), without_password(journal_url))
        home.claim(blobs_url, home.id)
        with without_collections(home.blobs_url) as blobs:
            blobs.write_to(
                open_objects(blobs_url), lambda done, of: on_progress(f"copying blobs: {done} of {of} packs")
            )
            with closing(home.journal(create=False, read_only=True)) as source:
                store.receive(source, lambda rows: on_progress(f"copying the journal: {rows} rows"))
            records.receive(open_records(home))
            _copy_documents(open_records(home).documents(), documents)
        release_leases(store)
    return _read_back(journal_url, blobs_url, on_progress)


def _begin(documents: SharedDocuments, store: StoredJournal, mine: Identity, place: str) -> None:
    """Give a database the identity of a home that is being moved there, unless that has anything else.

    Raises:
        HomeError: it has.
    """
    if read_identity(documents, place) is None and store.count_sessions():
        raise HomeError(f"{place} has a journal already, which is not of this home; name another schema (?schema=NAME)")
    found = create_identity(documents, mine, place)
    if found.home_id != mine.home_id:
        state = "is being moved to" if found.is_moving else "is at"
        raise HomeError(f"the home {found.home_id} {state} {place} already; name another schema (?schema=NAME)")
    if not found.is_moving:
        raise HomeError(
            f"the home {mine.home_id} is at {place} already, and this directory has a copy of it: give a new directory "
            "(--home) the URL (PODIUM_JOURNAL_URL)"
        )
    if found != mine:  # it was begun with another object store
        write_identity(documents, mine)


def _copy_documents(source: Documents, target: Documents) -> None:
    for name in (MODELS, QUARANTINE, DRAINED):
        data = source.read(name)
        if data is not None:
            target.write(name, data)


def _read_back(journal_url: str, blobs_url: str, on_progress: Callable[[str], None]) -> Backup:
    size_bytes = sum(open_objects(blobs_url).sizes(PACK_FOLDER).values())
    with closing(open_journal(journal_url)) as store, closing(PackBlobStore(blobs_url)) as stored:
        return read_back("the copy", store, stored, size_bytes, on_progress)
