"""Keys as the JSON objects that users see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

if TYPE_CHECKING:
    from coordinator.access.keys import Key

__all__ = ["CreatedKey", "KeyList", "KeyObject", "TokenObject", "key_object"]

_documented = with_config(ConfigDict(use_attribute_docstrings=True, defer_build=True))


@_documented
class KeyObject(TypedDict):
    """A key, without its text."""

    key_id: str
    name: str
    prefix: str
    """The first characters of its text."""
    tenant: str
    scopes: list[Literal["read", "answer", "write", "metrics", "deploy", "admin"]]
    created_at: int
    expires_at: int | None
    """Null: never."""
    last_used_at: int | None
    """To the minute; null: never."""


@_documented
class CreatedKey(KeyObject):
    """A new key."""

    key: str
    """Its text, which is not shown again."""


@_documented
class KeyList(TypedDict):
    """Keys, oldest first."""

    items: list[KeyObject]


@_documented
class TokenObject(TypedDict):
    """A short-lived token for one agent."""

    token: str
    """Sent as a key is. It is not shown again."""
    token_id: str
    """`tok_…`: the key that agents see, and the audit record."""
    agent: str
    scopes: list[Literal["read", "answer", "write"]]
    claims: dict[str, Any]
    expires_at: int


def key_object(key: Key) -> KeyObject:
    """Return a key as JSON."""
    return {
        "key_id": key.key_id,
        "name": key.name,
        "prefix": key.prefix,
        "tenant": key.tenant,
        "scopes": sorted(scope.value for scope in key.scopes),
        "created_at": key.created_ms,
        "expires_at": key.expires_ms,
        "last_used_at": key.last_used_ms,
    }
