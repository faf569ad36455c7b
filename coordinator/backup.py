"""Copying a home that is in use: one moment of its journal, and all blobs that the journal reaches.

The order is what makes it consistent. A commit stores its blobs before the journal refers to them, so the packs that
are there *after* the journal was copied have all that the copy refers to; and no garbage is collected in between. The
copy becomes a home with its last file, ``format``: a backup that was broken off is none.

Not copied: logs, the plain texts of keys, and ``nodes/``, the changes of turns that are not committed. In the copy,
leases are released: the turns that ran at that moment were not tried in it, so no attempt is counted.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.blobs.gc.store_copy import without_collections
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Corrupt, InvalidInput, StorageRefused, Unavailable
from chronicle.journal.opening import copy_journal
from chronicle.system.atomic_files import sync_directory
from chronicle.system.permissions import make_private
from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.verification import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.opening import StoredJournal
    from chronicle.journal.port import JournalStore

__all__ = ["Backup", "back_up", "read_back", "release_leases"]

_TRIES: Final = 5
"""Copies of a journal at rest that a writer disturbs; then it is in use, and writers disturb no more."""


@dataclass(frozen=True, slots=True)
class Backup:
    """Content of a backup, as it was read back."""

    agents: int
    events: int
    blobs: int
    """Reachable blobs."""
    size_bytes: int
    """The size of the blobs' packs."""


def back_up(home: Home, target: Path, on_progress: Callable[[str], None]) -> Backup:
    """Copy a home into a new or empty directory, and verify the copy. Services and agents go on meanwhile.

    The copy has the identity of the home: only one of the two can have a service at a time on one machine. Its blobs
    are in the directory, wherever the home keeps its own.

    Args:
        home: an existing home.
        on_progress: called repeatedly, with a short description of the stage.

    Raises:
        InvalidInput: the directory is not empty, or is inside the home's.
        Conflict: garbage is being collected.
        Corrupt: the copy is damaged, because the home is.
        StorageRefused: the directory cannot be written.
        Unavailable: a store could not be read.
    """
    _make_target(home, target)
    with without_collections(home.blobs_url) as blobs:
        on_progress("copying the journal")
        _copy_journal(home, target / "journal.db", on_progress)
        copy = Home(target)
        copy.take_id(home.id)
        open_records(copy).receive(open_records(home))  # after the journal: the calls of all its turns have records
        size_bytes = blobs.write(target / "blobs", lambda done, of: on_progress(f"copying blobs: {done} of {of} packs"))
    with closing(copy.journal(create=False)) as store:
        release_leases(store)
    made = _verify(copy, size_bytes, on_progress)
    copy.complete_copy()
    sync_directory(target.parent)
    return made


def _make_target(home: Home, target: Path) -> None:
    inside = target.resolve()
    if home.path.resolve() in (inside, *inside.parents):
        raise InvalidInput(f"{target} is in the home itself; give another directory")
    try:
        make_private(target)
        found = sorted(path.name for path in target.iterdir())
    except OSError as error:
        raise StorageRefused(f"{target} cannot be used: {error.strerror}; give another directory") from error
    if found:
        raise InvalidInput(f"{target} is not empty (it has {found[0]!r}); give an empty or new directory")


def _copy_journal(home: Home, target: Path, on_progress: Callable[[str], None]) -> None:
    for left in reversed(range(_TRIES)):
        with closing(home.journal(create=False, read_only=True)) as store:
            try:
                copy_journal(store, target, lambda rows: on_progress(f"copying the journal: {rows} rows"))
                return
            except Unavailable:
                target.unlink(missing_ok=True)
                if not left:
                    raise


def release_leases(store: JournalStore) -> None:
    """Release all leases of a copy: the turns that ran at its moment were not tried in it."""
    store.release_leases([(lease.session_id, lease.epoch) for _, lease in store.held_sessions("")])


def _verify(copy: Home, size_bytes: int, on_progress: Callable[[str], None]) -> Backup:
    stored = PackBlobStore(f"file://{copy.path / 'blobs'}")
    with closing(copy.journal(create=False, read_only=True)) as store, closing(stored) as blobs:
        return read_back(f"the backup {copy.path}", store, blobs, size_bytes, on_progress)


def read_back(
    name: str, store: StoredJournal, blobs: BlobStore, size_bytes: int, on_progress: Callable[[str], None]
) -> Backup:
    """Verify a copy, down to each byte; return its content.

    Args:
        name: of the copy, for errors.
        store: its journal.
        blobs: its blobs.
        size_bytes: of its packs.
        on_progress: called repeatedly, with a short description of the stage.

    Raises:
        Corrupt: it is damaged.
        Unavailable: a store could not be read.
    """
    if (damage := store.damage()) is not None:
        raise Corrupt(f"{name} is damaged: its journal: {damage}")
    verifier, sessions, events, blob_count = Verifier(store, blobs), store.sessions(), 0, 0
    for number, session in enumerate(sessions, start=1):
        on_progress(f"verifying the copy: {number} of {len(sessions)} agents")
        check = verifier.check(session)
        if check.problem is not None:
            raise Corrupt(f"{name} is damaged, as the home may be: {check.name}: {check.problem}")
        events, blob_count = events + check.events, blob_count + check.blobs
    if (objects := verifier.check_objects()) is not None:
        if objects.problem is not None:
            raise Corrupt(f"{name} is damaged, as the home may be: {objects.problem}")
        blob_count += objects.blobs
    return Backup(len(sessions), events, blob_count, size_bytes)
