"""The journal and the blobs of a home, opened for one subcommand."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import typer

from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.opening import StoredJournal
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.sessions import SessionRecords

__all__ = [
    "empty_journal_problem",
    "opened_blobs",
    "opened_journal",
    "opened_to_verify",
    "read_journal",
]


@contextmanager
def opened_journal(home: Path) -> Iterator[JournalStore]:
    """Open a home's journal for writing. The service may have it open, too."""
    from coordinator.home import Home  # noqa: PLC0415 - databases are slow to import, and --help needs none

    with closing(Home(home).open().journal()) as store:
        yield store


@contextmanager
def read_journal(home: Path) -> Iterator[StoredJournal]:
    """Open a home's journal for reading: nothing is written, so a read-only home will do.

    Raises:
        Corrupt: its file is damaged. It is checked when the context ends, after the readable part was shown; the error
            replaces any that the damage caused.
    """
    from coordinator.home import Home  # noqa: PLC0415

    with closing(Home(home).open().journal(create=False, read_only=True)) as store:
        try:
            yield store
        except (OSError, typer.Exit):
            raise
        except Exception as error:
            # An unknown name may be one that was lost. In a large home only the cheap check looks for that.
            store.check(thorough=store.is_small or not isinstance(error, PodiumError))
            raise
        store.check()


@contextmanager
def opened_to_verify(home: Path) -> Iterator[StoredJournal]:
    """Open a home's journal as `read_journal` does, without its check for damage, for a caller that checks."""
    from coordinator.home import Home  # noqa: PLC0415

    with closing(Home(home).open().journal(create=False, read_only=True)) as store:
        yield store


def empty_journal_problem(home: Path, store: SessionRecords) -> str | None:
    """Return why a journal without agents must be damaged; ``None`` if it may be intact, or has agents."""
    from coordinator.home import Home  # noqa: PLC0415

    if store.sessions(limit=1) or store.tombstones() or not Home(home).has_layers():
        return None
    return "it has no agent and none was deleted, but there are files of agents in nodes/"


@contextmanager
def opened_blobs(home: Path, *, kept: bool = True) -> Iterator[BlobStore]:
    """Open the blob store of a home; see `coordinator.home.Home.blobs`."""
    from coordinator.home import Home  # noqa: PLC0415

    store = Home(home).blobs(kept=kept)
    try:
        yield store
    finally:
        store.close()
