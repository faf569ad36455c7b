"""What there is to know of a journal's server besides the journal: for a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput
from chronicle.journal.places import NO_PSYCOPG, postgres_place, without_password

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from chronicle.journal.postgres.server_facts import ServerFacts

__all__ = ["read_server"]


def read_server(url: str, clock: Clock) -> ServerFacts:
    """Return what the server at the URL of a journal says of itself, whether or not the journal is there.

    Args:
        url: of the journal.
        clock: this machine's, to compare the server's with.

    Raises:
        InvalidInput: it is not the URL of a server, psycopg is missing, or no journal can be there.
        Unavailable: it cannot be reached.
    """
    try:
        from chronicle.journal.postgres.server_facts import read_server_facts  # noqa: PLC0415  psycopg is optional
    except ImportError as error:
        raise InvalidInput(NO_PSYCOPG) from error
    return read_server_facts(postgres_place(url)[0], f"the journal at {without_password(url)}", clock)
