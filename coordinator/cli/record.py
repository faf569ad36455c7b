"""Finding things in a home: the journal and the blobs, opened for a while, and the agent or moment that was named."""

from __future__ import annotations

import difflib
import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import typer

from chronicle.errors import NotFound
from podium.address import Address
from podium.errors import InvalidAddress, PodiumError, UnknownAgent, UnknownMoment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session
    from chronicle.journal.sqlite import SqliteJournalStore

__all__ = [
    "find_agent",
    "nearest",
    "nothing_left",
    "opened_blobs",
    "opened_journal",
    "opened_to_verify",
    "read_journal",
    "service_alive",
    "split_moment",
]

_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_SHOWN: Final = 5
"""How many names a message about an unknown one lists."""


@contextmanager
def opened_journal(home: Path) -> Iterator[JournalStore]:
    """Open a home's journal for a while, to write to it; the service may be writing to it or not be there."""
    from coordinator.home import Home  # noqa: PLC0415  databases are slow to import and --help needs none

    with closing(Home(home).open().journal()) as store:
        yield store


@contextmanager
def read_journal(home: Path) -> Iterator[SqliteJournalStore]:
    """Open a home's journal for a while, to read it: nothing is written, so the home need not be writable.

    Raises:
        Corrupt: its file is damaged. If that is only seen at the end, what could be read was shown already; if it shows
            in another error, this one takes its place.
    """
    from coordinator.home import Home  # noqa: PLC0415

    with closing(Home(home).open().journal(create=False, read_only=True)) as store:
        try:
            yield store
        except (OSError, typer.Exit):
            raise
        except Exception as error:
            # A name that is not there may have been lost; in a large home that is looked for by what costs little.
            store.check(thorough=store.is_small or not isinstance(error, PodiumError))
            raise
        store.check()


@contextmanager
def opened_to_verify(home: Path) -> Iterator[SqliteJournalStore]:
    """As `read_journal`, for one who looks for damage by itself."""
    from coordinator.home import Home  # noqa: PLC0415

    with closing(Home(home).open().journal(create=False, read_only=True)) as store:
        yield store


def nothing_left(home: Path, store: JournalStore) -> str | None:
    """Say why a journal without any agent cannot be right; ``None`` if it can, or there are agents."""
    from coordinator.home import Home  # noqa: PLC0415

    if store.sessions() or store.tombstones() or not Home(home).has_layers():
        return None
    return "it has no agent and none was deleted, but there are files of agents in nodes/"


@contextmanager
def opened_blobs(home: Path) -> Iterator[BlobStore]:
    """Open a home's blobs for a while."""
    from coordinator.home import Home  # noqa: PLC0415

    store = Home(home).blobs()
    try:
        yield store
    finally:
        store.close()


def service_alive(home: Path) -> bool:
    """Return whether a service of that home runs now; none is started."""
    from coordinator.home import Home  # noqa: PLC0415

    return Home(home).service_alive()


def find_agent(store: JournalStore, name: str) -> Session:
    """Return the agent of that address.

    Raises:
        UnknownAgent: there is none; the message names the nearest ones.
    """
    try:
        return store.session(name)
    except NotFound:
        names = [session.name for session in store.sessions() if _is_agent(session.name)]
        instead = nearest(name, names) or "there is none yet: podium run FILE.py:Class starts one"
        raise UnknownAgent(f"no agent {name!r} in this home; {instead}") from None


def split_moment(store: JournalStore, text: str) -> tuple[Session, int | None]:
    """Read ``AGENT`` or ``AGENT@TURN``.

    A key may hold ``@`` and digits itself: an agent whose whole address was written comes first.

    Raises:
        UnknownAgent: there is none.
        UnknownMoment: the turn is a negative number.
    """
    name, at, turn = text.rpartition("@")
    if at and _NUMBER.fullmatch(turn):
        try:
            return store.session(text), None
        except NotFound:
            session, number = find_agent(store, name), int(turn)
        if number < 0:
            raise UnknownMoment(f"turns count from 0, the agent's creation; there is no turn {number} of {name}")
        return session, number
    return find_agent(store, text), None


def _is_agent(name: str) -> bool:
    try:
        Address.parse(name)
    except InvalidAddress:
        return False
    return True


def nearest(name: str, names: list[str], *, most: int = _SHOWN) -> str:
    """Say what there is that looks like a name that is not there, or what there is at all; empty for nothing."""
    near = difflib.get_close_matches(name, names, n=_SHOWN, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    rest = len(names) - most
    return "there is " + ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "") if names else ""
