"""Keys and tokens: their text, their digest, and what is recorded of them. Pure.

A key is ``pk_``, four characters that tell the home which gave it out, and 36 random ones: 180 bits of 5 each. A token
begins with ``pt_``. Only the SHA-256 of the text is kept: what is random needs no slow hash, as it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.access.caller import Scope
    from podium.address import Address

__all__ = [
    "KEY_PREFIX",
    "SHOWN",
    "TOKEN_PREFIX",
    "Key",
    "damage_of_id",
    "digest_of",
    "home_tag",
    "is_key",
    "is_of_home",
    "new_text",
]

KEY_PREFIX: Final = "pk_"
TOKEN_PREFIX: Final = "pt_"
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_RANDOM: Final = 36
_TAG: Final = 4
_FORM: Final = re.compile(rf"(?:{KEY_PREFIX}|{TOKEN_PREFIX})[{_ALPHABET}]{{{_TAG + _RANDOM}}}")
SHOWN: Final = len(KEY_PREFIX) + _TAG + 6
"""Characters of a key that lists show: 30 of its 180 random bits, which leaves 150 that nobody can guess."""


@dataclass(frozen=True, slots=True)
class Key:
    """Record of a key or token; its text is not kept."""

    key_id: str
    """``key_…``; of a token ``tok_…``."""
    name: str
    prefix: str
    """The first characters of its text."""
    tenant: str
    scopes: frozenset[Scope]
    """As given, without those that they imply."""
    created_ms: int
    expires_ms: int | None
    """``None``: never."""
    last_used_ms: int | None = None
    """To the minute; ``None``: never."""
    agent: Address | None = None
    """Of a token: the only agent that it is for."""
    made_by: str | None = None
    """The id of the key that made it; ``None`` for the command line. A token ends with its key."""

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


def home_tag(home_id: str) -> str:
    """Return the characters that the keys of a home have after their prefix."""
    bits = int.from_bytes(hashlib.sha256(f"podium key {home_id}".encode()).digest()[:4], "big")
    return "".join(_ALPHABET[bits >> 5 * place & 31] for place in range(_TAG))


def new_text(prefix: str, tag: str) -> str:
    """Return a new key or token."""
    return prefix + tag + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))


def is_key(text: str) -> bool:
    """Whether a text has the form of a key or token."""
    return _FORM.fullmatch(text) is not None


def is_of_home(text: str, tag: str) -> bool:
    """Whether a key looks as if this home gave it out."""
    return text[len(KEY_PREFIX) :].startswith(tag)


def damage_of_id(home_id: str, keys: Sequence[Key]) -> dict[str, str]:
    """Return the damage of the id of a home: none of its keys was made with it; else nothing."""
    if not keys or any(is_of_home(key.prefix, home_tag(home_id)) for key in keys):
        return {}
    said = "no key of the home was made with it, so none is valid; put it back from a backup, or revoke these keys"
    return {"id": said}


def digest_of(text: str) -> bytes:
    """Return the SHA-256 by which a key is found."""
    return hashlib.sha256(text.encode()).digest()
