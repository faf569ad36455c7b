"""Opening the records of a home: the one place that knows where they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput, NotFound
from chronicle.journal.opening import open_journal
from chronicle.journal.places import NO_PSYCOPG, is_server, postgres_place, without_password
from chronicle.system.secrets_held import keep_secrets
from coordinator.homes.identity import create_identity, read_identity
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coordinator.home import Home, Identity
    from coordinator.homes.postgres.records import PostgresHomeRecords
    from coordinator.homes.records import HomeRecords

__all__ = ["create_home", "open_records", "records_at"]


def create_home(home: Home, blobs_url: str = "", journal_url: str = "") -> Home:
    """Create a home, or a directory of one, as `Home.create`, whose errors it raises."""
    return home.create(blobs_url, journal_url, lambda url, new: _identify(home, url, new))


def _identify(home: Home, journal_url: str, new: Identity) -> Identity:
    """Give a database a home, with an empty journal, unless it has one; return which it has.

    Raises:
        HomeError: a new home would have no object store, without which other machines do not reach its blobs, or that
            of another home; or a home is being moved to the database.
        HomeTooNew: a newer version made the home.
    """
    place = without_password(journal_url)
    found = _identity_at(home, journal_url)
    if found is None:
        if not new.blobs:
            raise HomeError(
                "a home with its journal in a database keeps its blobs in an object store, so that other machines "
                "reach them: name one with PODIUM_BLOBS_URL, such as s3://bucket/prefix"
            )
        try:
            home.check_claim(new.blobs, new.home_id)
        except HomeError:
            found = _identity_at(home, journal_url)  # of another directory, that made the home meanwhile
            if found is None:
                raise
    if found is None:
        open_journal(journal_url).close()
        documents = records_at(journal_url, lambda: new.home_id, home.path, create=True).documents()
        found = create_identity(documents, new, place)
    if found.is_moving:
        raise HomeError(
            f"the home {found.home_id} is being moved to {place}: call podium migrate again where that was begun, or "
            "name another schema (?schema=NAME)"
        )
    return found


def _identity_at(home: Home, journal_url: str) -> Identity | None:
    try:
        documents = records_at(journal_url, lambda: home.id, home.path).documents()
    except NotFound:
        return None
    return read_identity(documents, without_password(journal_url))


def open_records(home: Home) -> HomeRecords:
    """Return the records of a home; nothing is read or written until a part is asked for."""
    if home.is_shared:
        return records_at(home.journal_url, lambda: home.id, home.path)
    from coordinator.homes.sqlite.records import SqliteHomeRecords  # noqa: PLC0415  one database of several

    return SqliteHomeRecords(home)


def records_at(
    journal_url: str, home_id: Callable[[], str], directory: Path, *, create: bool = False
) -> PostgresHomeRecords:
    """Return the records beside a journal in a database server, in a schema named as the journal's with ``_home``.

    Args:
        journal_url: URL of the journal.
        home_id: returns the id of the home.
        directory: the home's directory on this machine.
        create: whether the schema is created when a part is opened.

    Raises:
        InvalidInput: it is not that of a database server that is known, or psycopg is missing.
    """
    if not is_server(journal_url):
        raise InvalidInput(
            f"{without_password(journal_url)!r} is not the URL of a database server, such as "
            "postgresql://USER@HOST/DATABASE; without one a home keeps its journal in its own directory"
        )
    try:
        from coordinator.homes.postgres.records import PostgresHomeRecords  # noqa: PLC0415  psycopg is optional
    except ImportError as error:
        raise InvalidInput(NO_PSYCOPG) from error
    keep_secrets()
    conninfo, schema = postgres_place(journal_url)
    return PostgresHomeRecords(conninfo, f"{schema}_home", home_id, directory, create=create)
