"""Keys and tokens: their text, their digest, and what is recorded of them. Pure.

A key is ``pk_``, four characters that tell the home which gave it out, and 36 random ones: 180 bits of 5 each. A token
begins with ``pt_``. Only the SHA-256 of the text is kept: what is random needs no slow hash, as it cannot be guessed.

A link begins with ``pl_``: it is a token that answers one question of one run, and is no key of any other request.

A token may carry *claims*: a dot, and their canonical JSON in base64url. They are a part of the text, so the SHA-256
that the home keeps is of them, too: other claims make another text, which nobody gave out. They are not encrypted.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from chronicle.canonical import decode, encode_input
from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import JsonObject
    from coordinator.access.caller import Scope
    from podium.address import Address

__all__ = [
    "KEY_PREFIX",
    "LINK_PREFIX",
    "MAX_CLAIMS_BYTES",
    "SHOWN",
    "TOKEN_PREFIX",
    "Key",
    "claims_in",
    "damage_of_id",
    "digest_of",
    "home_tag",
    "is_key",
    "is_link",
    "is_of_home",
    "new_text",
]

KEY_PREFIX: Final = "pk_"
TOKEN_PREFIX: Final = "pt_"
LINK_PREFIX: Final = "pl_"
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_RANDOM: Final = 36
_TAG: Final = 4
MAX_CLAIMS_BYTES: Final = 1024
"""Of the JSON of a token's claims: they go with each request and are recorded with each message."""
_CLAIMS: Final = rf"\.[A-Za-z0-9_-]{{1,{MAX_CLAIMS_BYTES * 4 // 3 + 1}}}"
_RANDOM_PART: Final = rf"[{_ALPHABET}]{{{_TAG + _RANDOM}}}"
_FORM: Final = re.compile(rf"{KEY_PREFIX}{_RANDOM_PART}|{TOKEN_PREFIX}{_RANDOM_PART}(?:{_CLAIMS})?")
_LINK: Final = re.compile(rf"{LINK_PREFIX}{_RANDOM_PART}{_CLAIMS}")
SHOWN: Final = len(KEY_PREFIX) + _TAG + 6
"""Characters of a key that lists show: 30 of its 180 random bits, which leaves 150 that nobody can guess."""


@dataclass(frozen=True, slots=True)
class Key:
    """Record of a key or token; its text is not kept."""

    key_id: str
    """``key_…``; of a token ``tok_…``, of a link ``lnk_…``."""
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
    """Of a token or link: the only agent that it is for."""
    made_by: str | None = None
    """The id of the key that made it; ``None`` for the command line. A token ends with its key."""

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


def home_tag(home_id: str) -> str:
    """Return the characters that the keys of a home have after their prefix."""
    bits = int.from_bytes(hashlib.sha256(f"podium key {home_id}".encode()).digest()[:4], "big")
    return "".join(_ALPHABET[bits >> 5 * place & 31] for place in range(_TAG))


def new_text(prefix: str, tag: str, claims: JsonObject | None = None) -> str:
    """Return a new key or token.

    Args:
        claims: of a token.

    Raises:
        InvalidInput: they are no JSON, or too large.
    """
    text = prefix + tag + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    if not claims:
        return text
    data = encode_input(claims)
    if len(data) > MAX_CLAIMS_BYTES:
        raise InvalidInput(f"the claims of a token have at most {MAX_CLAIMS_BYTES} bytes of JSON, and not {len(data)}")
    return f"{text}.{base64.urlsafe_b64encode(data).rstrip(b'=').decode()}"


def claims_in(text: str) -> JsonObject:
    """Return the claims of a token that this home gave out; none of a key."""
    _, _, coded = text.partition(".")
    if not coded:
        return {}
    return cast("JsonObject", decode(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))))


def is_key(text: str) -> bool:
    """Whether a text has the form of a key or token."""
    return _FORM.fullmatch(text) is not None


def is_link(text: str) -> bool:
    """Whether a text has the form of a link."""
    return _LINK.fullmatch(text) is not None


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
