"""The caller of a request, and the scopes that it has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from podium.errors import PodiumError

if TYPE_CHECKING:
    from podium.address import Address

__all__ = ["ANYONE", "Access", "Caller", "NotAuthenticated", "NotPermitted", "OpenAccess", "Scope"]


class NotAuthenticated(PodiumError):
    """A request without a key, or with one that is not valid."""


class NotPermitted(PodiumError):
    """A key that does not have the scope of an operation, or is for another agent."""


class Scope(StrEnum):
    """What a key permits."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    key_id: str | None
    """The id of its key; ``None`` where none is needed."""
    scopes: frozenset[Scope]
    agent: Address | None = None
    """The only agent that it may use; ``None`` for all."""

    def require(self, scope: Scope, address: Address | None = None) -> None:
        """Check that the caller has a scope.

        Args:
            address: the agent that it is about; ``None`` for operations on all agents.

        Raises:
            NotPermitted: it has not.
        """
        if scope not in self.scopes:
            raise NotPermitted(f"this needs a key with the scope {scope}")
        if self.agent is not None and self.agent != address:
            raise NotPermitted(f"this key is for {self.agent} only")


class Access(Protocol):
    """Authenticates callers."""

    async def authenticate(self, authorization: str | None) -> Caller:
        """Return the caller of a request.

        Args:
            authorization: the request's ``Authorization`` header.

        Raises:
            NotAuthenticated: it names no valid key.
        """
        ...


ANYONE: Final = Caller(key_id=None, scopes=frozenset(Scope))
"""The caller where no key is needed: it may do everything."""


class OpenAccess:
    """Access without keys."""

    async def authenticate(self, authorization: str | None) -> Caller:  # noqa: ARG002 - the port has it
        """Return `ANYONE`."""
        return ANYONE
