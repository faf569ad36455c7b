"""An agent's address, ``type/key`` within a tenant, validated when it is parsed or built.

The text of an address is ``type/key`` for the default tenant and ``tenant:type/key`` for another one. A type has no
colon, so the two cannot be confused; what comes after the first slash is the key, colons included.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from podium.errors import InvalidAddress

if TYPE_CHECKING:
    from chronicle.journal.records import Session

__all__ = ["ALL_TENANTS", "DEFAULT_TENANT", "MAX_KEY_LENGTH", "Address", "check_tenant", "label"]

DEFAULT_TENANT: Final = "default"
"""The tenant of agents for which none is named. A tenant is the namespace of its agents' sessions: this one is
`chronicle.journal.records.DEFAULT_NAMESPACE`, whose module is slow to import."""

ALL_TENANTS: Final = "*"
"""Stands for every tenant in a list of agents."""
MAX_KEY_LENGTH: Final = 128
"""Characters of a key."""
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TYPE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SLUG: Final = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The permanent name of one agent.

    Raises:
        InvalidAddress: the type, key or tenant cannot be used.
    """

    agent_type: str
    key: str
    tenant: str = DEFAULT_TENANT

    def __post_init__(self) -> None:
        check_tenant(self.tenant)
        if not _TYPE.fullmatch(self.agent_type) or ".." in self.agent_type:
            raise InvalidAddress(
                f"agent type {self.agent_type!r} cannot be used: take 1 to 64 letters, digits, '_', '.' or '-', "
                "starting with a letter"
            )
        if problem := _key_problem(self.key):
            raise InvalidAddress(f"key {_shorten(self.key)} cannot be used: {problem}")

    @classmethod
    def parse(cls, text: str, tenant: str = DEFAULT_TENANT) -> Address:
        """Read ``type/key`` or ``tenant:type/key``.

        Args:
            tenant: of an address that names none.

        Raises:
            InvalidAddress: there is no slash, or a part cannot be used.
        """
        before, slash, key = text.partition("/")
        if not slash:
            raise InvalidAddress(f"{_shorten(text)} is not an agent's address: write type/key, such as hello/alice")
        named, colon, agent_type = before.rpartition(":")
        return cls(agent_type, key, named if colon else tenant)

    @classmethod
    def of(cls, session: Session) -> Address:
        """Return the address of the agent whose session this is.

        Raises:
            InvalidAddress: it is not an agent's session.
        """
        agent_type, slash, key = session.name.partition("/")
        if not slash:
            raise InvalidAddress(f"the session {_shorten(session.name)} is not an agent's")
        return cls(agent_type, key, session.namespace)

    def __str__(self) -> str:
        return self.name if self.tenant == DEFAULT_TENANT else f"{self.tenant}:{self.name}"

    @property
    def name(self) -> str:
        """``type/key``: the agent's name within its tenant, and of its session."""
        return f"{self.agent_type}/{self.key}"

    @property
    def workspace_id(self) -> str:
        """A directory name for this address: readable, and unique by a hash of the whole address."""
        digest = hashlib.sha256(str(self).encode()).hexdigest()[:16]
        slug = _SLUG.sub("-", str(self)).strip("-")[:48]
        return f"{slug}-{digest}"


def label(session: Session) -> str:
    """Return the text that names a session to people: its name, after its tenant if that is not the default one."""
    return session.name if session.namespace == DEFAULT_TENANT else f"{session.namespace}:{session.name}"


def check_tenant(name: str) -> None:
    """Check the name of a tenant.

    Raises:
        InvalidAddress: it cannot be used.
    """
    if not _TENANT.fullmatch(name):
        raise InvalidAddress(
            f"tenant {_shorten(name)} cannot be used: take 1 to 63 lower-case letters, digits, '_' or '-', starting "
            "with a letter or digit"
        )


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
