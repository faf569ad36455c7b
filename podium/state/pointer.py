"""RFC 6901 JSON pointers: paths in a document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["Token", "escape", "join", "parse"]

Token: TypeAlias = "str | int"
"""One step: a key of an object, or an index of an array."""


def escape(token: Token) -> str:
    """Return a token escaped for a pointer: ``~`` as ``~0``, ``/`` as ``~1``."""
    if isinstance(token, int):
        return str(token)
    if "~" in token or "/" in token:
        return token.replace("~", "~0").replace("/", "~1")
    return token


def join(tokens: Iterable[Token]) -> str:
    """Return the pointer of a path; ``""`` is the whole document."""
    return "".join(f"/{escape(token)}" for token in tokens)


def parse(pointer: str) -> list[str]:
    """Return a pointer's tokens, unescaped; indexes stay text, as only the document tells what is an array.

    Raises:
        ValueError: it neither is empty nor starts with ``/``, or has a ``~`` that escapes nothing.
    """
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer: it must be empty or start with '/'")
    tokens = pointer[1:].split("/")
    if "~" not in pointer:
        return tokens
    return [_unescape(token, pointer) for token in tokens]


def _unescape(token: str, pointer: str) -> str:
    if token.count("~") != token.count("~0") + token.count("~1"):
        raise ValueError(f"{pointer!r} is not a JSON pointer: '~' must be followed by 0 or 1")
    return token.replace("~1", "/").replace("~0", "~")
