"""The URLs of journals, as text: what their parts say. Opening one is `chronicle.journal.opening`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

__all__ = ["NO_PSYCOPG", "is_server", "postgres_place", "without_password"]

NO_PSYCOPG: Final = "a journal in PostgreSQL needs psycopg: pip install 'podium[postgres]'"
_SERVERS: Final = ("postgresql://", "postgres://")
_SCHEMA: Final = "schema"
"""The parameter of a PostgreSQL URL that names the journal's schema; the others are libpq's."""
_USER_AND_PASSWORD: Final = re.compile(r"(?<=://)([^/?@:]*):[^?]*@")


def is_server(url: str) -> bool:
    """Whether a URL is that of a database server, which other machines may use, too."""
    return url.startswith(_SERVERS)


def without_password(url: str) -> str:
    """Return a URL without the password that it may have, before the host or as a parameter."""
    place, separator, query = _USER_AND_PASSWORD.sub(r"\1@", url).partition("?")
    parts = [part for part in query.split("&") if not part.startswith("password=")] if separator else []
    return "?".join([place, *(["&".join(parts)] if parts else [])])


def postgres_place(url: str) -> tuple[str, str]:
    """Return a PostgreSQL URL as libpq reads it, and the schema that it names."""
    place, _, query = url.partition("?")
    parts = query.split("&") if query else []
    others = [part for part in parts if not part.startswith(f"{_SCHEMA}=")]  # as they are: libpq decodes them
    named = [unquote(part.partition("=")[2]) for part in parts if part not in others]
    return "?".join([place, *(["&".join(others)] if others else [])]), named[-1] if named else "chronicle"
