"""The identity of a home in a database: the document that says which home it has."""

from __future__ import annotations

import json
from typing import Final, Protocol

from coordinator.documents import Documents
from coordinator.home import Identity
from coordinator.homes.records import Part
from podium.errors import HomeTooNew

__all__ = ["SharedDocuments", "create_identity", "identity_part", "read_identity", "write_identity"]

_DOCUMENT: Final = "home"
_FORMAT: Final = 1


class SharedDocuments(Documents, Protocol):
    """Documents of a database, which other machines use, too."""

    def create(self, name: str, data: bytes) -> bytes:
        """Create a document unless it exists; return what it is then."""
        ...


def read_identity(documents: Documents, place: str) -> Identity | None:
    """Return the home that a database has; ``None`` if it has none.

    Args:
        documents: those of the database.
        place: the URL of the database without a password, for messages.

    Raises:
        HomeTooNew: a newer version made the home.
    """
    known = documents.read(_DOCUMENT)
    return _parsed(known, place) if known is not None else None


def identity_part(documents: Documents) -> list[Part]:
    """Return the identity as a part of the home; none if the database has no home.

    Raises:
        HomeTooNew: a newer version made the home.
    """
    place = documents.place(_DOCUMENT)
    return [Part("identity", place, _FORMAT)] if read_identity(documents, place) is not None else []


def create_identity(documents: SharedDocuments, new: Identity, place: str) -> Identity:
    """Give a database a home unless it has one; return which it has. Of concurrent callers the first one's stays.

    Raises:
        HomeTooNew: a newer version made the home.
    """
    return _parsed(documents.create(_DOCUMENT, _described(new)), place)


def write_identity(documents: Documents, identity: Identity) -> None:
    """Replace the identity; the caller has made it, and nobody else may use it."""
    documents.write(_DOCUMENT, _described(identity))


def _described(identity: Identity) -> bytes:
    moving = {"moving": True} if identity.is_moving else {}
    return f"{json.dumps({'format': _FORMAT, 'id': identity.home_id, 'blobs': identity.blobs, **moving})}\n".encode()


def _parsed(described: bytes, place: str) -> Identity:
    found = json.loads(described)
    if found["format"] > _FORMAT:
        raise HomeTooNew(
            f"the home at {place} has format {found['format']}, this podium reads up to {_FORMAT}: upgrade podium"
        )
    return Identity(found["id"], found["blobs"], is_moving=found.get("moving", False))
