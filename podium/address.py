"""An agent's address, ``type/key``, validated when it is parsed or built."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from podium.errors import InvalidAddress

__all__ = ["MAX_KEY_LENGTH", "Address"]

MAX_KEY_LENGTH: Final = 128
"""Characters of a key."""
_TYPE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SLUG: Final = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The permanent name of one agent.

    Raises:
        InvalidAddress: the type or key cannot be used.
    """

    agent_type: str
    key: str

    def __post_init__(self) -> None:
        if not _TYPE.fullmatch(self.agent_type) or ".." in self.agent_type:
            raise InvalidAddress(
                f"agent type {self.agent_type!r} cannot be used: take 1 to 64 letters, digits, '_', '.' or '-', "
                "starting with a letter"
            )
        if problem := _key_problem(self.key):
            raise InvalidAddress(f"key {_shorten(self.key)} cannot be used: {problem}")

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``type/key``.

        Raises:
            InvalidAddress: there is no slash, or a part cannot be used.
        """
        agent_type, slash, key = text.partition("/")
        if not slash:
            raise InvalidAddress(f"{_shorten(text)} is not an agent's address: write type/key, such as hello/alice")
        return cls(agent_type, key)

    def __str__(self) -> str:
        return f"{self.agent_type}/{self.key}"

    @property
    def workspace_id(self) -> str:
        """A directory name for this address: readable, and unique by a hash of the whole address."""
        digest = hashlib.sha256(str(self).encode()).hexdigest()[:16]
        slug = _SLUG.sub("-", f"{self.agent_type}-{self.key}").strip("-")[:48]
        return f"{slug}-{digest}"


def _key_problem(key: str) -> str | None:
    """Return what is wrong with a key, ``None`` if nothing is."""
    if not key:
        return "it is empty; give a name such as alice"
    if len(key) > MAX_KEY_LENGTH:
        return f"it has {len(key)} characters; {MAX_KEY_LENGTH} are allowed"
    if "/" in key:
        return "it contains '/'; use another separator such as ':' or '-'"
    if ".." in key or key == ".":
        return "it contains '..' or is '.'; names that mean directories are refused"
    if not key.isprintable() or key != key.strip():
        return "it contains control characters or starts or ends with white space"
    try:
        key.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode text"
    return None


def _shorten(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57]) + "…"
