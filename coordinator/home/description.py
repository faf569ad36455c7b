"""What the files ``format`` and ``id`` of a home say: where its parts are, and which home it is."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import Final

__all__ = ["FORMAT_WITH_URL", "Identity", "Urls", "is_id", "new_id"]

_FORMAT: Final = 1
FORMAT_WITH_URL: Final = 2
"""Format of a home whose blobs or journal are at a URL; the format file contains the URLs, without a password."""
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH: Final = 12
"""60 bits: other users cannot guess the id, and so cannot create the directory of that name first."""
_ID: Final = re.compile(f"[{_ID_LETTERS}]{{{_ID_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class Identity:
    """The home that a database has."""

    home_id: str
    blobs: str
    """URL of its blobs."""
    is_moving: bool = False
    """Whether it is being moved to the database: no other directory may be of it yet."""


@dataclass(frozen=True, slots=True)
class Urls:
    """Where the parts of a home are; empty: in its directory."""

    blobs: str = ""
    journal: str = ""
    """Without a password."""

    @property
    def described(self) -> str:
        """The content of the format file."""
        urls = {name: url for name, url in (("blobs", self.blobs), ("journal", self.journal)) if url}
        return json.dumps({"format": self.format, **urls}) + "\n"

    @property
    def format(self) -> int:
        """The format of the home's directory."""
        return FORMAT_WITH_URL if self.blobs or self.journal else _FORMAT


def new_id() -> str:
    """Return a new id of a home."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))


def is_id(text: str) -> bool:
    """Whether a text is an id of a home."""
    return _ID.fullmatch(text) is not None
