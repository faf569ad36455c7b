"""The caller of a request, the scopes that it has, and the errors of those who have not.

::

    podium.errors.PodiumError
    ├── NotAuthenticated        no valid key
    │   ├── MissingKey              none was sent, or not as a bearer
    │   ├── UnknownKey              it was never given out, or was revoked
    │   ├── ExpiredKey
    │   ├── RevokedKey              it was revoked or rotated while a request with it was under way
    │   ├── NarrowedKey             it lost a scope meanwhile
    │   └── KeyOfAnotherHome
    ├── NotPermitted            the key is valid, and does not permit this
    └── TooManyRequests         the key is used more often than is allowed
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from podium import caller
from podium.address import DEFAULT_TENANT
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from chronicle.canonical import Json
    from podium.address import Address

__all__ = [
    "ANYONE",
    "Access",
    "Caller",
    "ExpiredKey",
    "KeyOfAnotherHome",
    "MissingKey",
    "NarrowedKey",
    "NotAuthenticated",
    "NotPermitted",
    "OpenAccess",
    "RevokedKey",
    "Scope",
    "TooManyRequests",
    "UnknownKey",
    "with_implied",
]


class NotAuthenticated(PodiumError):
    """A request without a key, or with one that is not valid."""


class MissingKey(NotAuthenticated):
    """A request without a key, or with a header that holds none."""


class UnknownKey(NotAuthenticated):
    """A key that this home never gave out, or that was revoked."""


class ExpiredKey(NotAuthenticated):
    """A key whose time is over."""


class RevokedKey(NotAuthenticated):
    """A key that was revoked or rotated while a request with it was under way."""


class NarrowedKey(NotAuthenticated):
    """A key that lost a scope while a request with it was under way."""


class KeyOfAnotherHome(NotAuthenticated):
    """A key that another home gave out."""


class NotPermitted(PodiumError):
    """A key that does not have the scope of an operation, or is for another agent."""


class TooManyRequests(PodiumError):
    """A key, or an address, that sends more requests than are allowed.

    Attributes:
        retry_after_s: seconds until the next one is allowed.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Scope(StrEnum):
    """Permissions of a key. ``write`` implies ``read`` and ``answer``, and ``admin`` implies all."""

    READ = "read"
    ANSWER = "answer"
    """To answer paused runs, and to make links by which others answer one; to see them takes ``read``."""
    WRITE = "write"
    METRICS = "metrics"
    """The metrics of the home, and nothing else. It is of use to keys of the default tenant only."""
    DEPLOY = "deploy"
    """To deploy the code of agents, and nothing else. It is of use to keys of the default tenant only."""
    ADMIN = "admin"


_IMPLIED: Final = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.ANSWER: frozenset({Scope.ANSWER}),
    Scope.WRITE: frozenset({Scope.READ, Scope.ANSWER, Scope.WRITE}),
    Scope.METRICS: frozenset({Scope.METRICS}),
    Scope.DEPLOY: frozenset({Scope.DEPLOY}),
    Scope.ADMIN: frozenset(Scope),
}


def with_implied(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return scopes with those that they imply."""
    return frozenset().union(*(_IMPLIED[scope] for scope in scopes))


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    key_id: str | None
    """The id of its key; ``None`` where none is needed."""
    scopes: frozenset[Scope]
    agent: Address | None = None
    """The only agent that it may use; ``None`` for all of its tenant."""
    tenant: str = DEFAULT_TENANT
    """The tenant whose agents it may use."""
    claims: Mapping[str, Json] = field(default_factory=dict, hash=False)
    """Those of a token."""
    digest: bytes = field(default=b"", repr=False, compare=False)
    """Of its key's text."""

    @property
    def is_operator(self) -> bool:
        """Whether it administers the home: keys of all tenants, and the code of agents."""
        return Scope.ADMIN in self.scopes and self.tenant == DEFAULT_TENANT and self.agent is None

    @property
    def of_message(self) -> caller.Caller:
        """It, as it is recorded with its messages for the agents that handle them."""
        return caller.Caller(self.key_id, frozenset(map(str, self.scopes)), self.claims, tenant=self.tenant)

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
        if address is not None and address.tenant != self.tenant:
            raise NotPermitted(f"this key is for agents of the tenant {self.tenant} only")

    def require_metrics(self) -> None:
        """Check that the caller may read the metrics of the home, which count the agents of all tenants.

        Raises:
            NotPermitted: it may not.
        """
        if Scope.METRICS not in self.scopes or self.tenant != DEFAULT_TENANT or self.agent is not None:
            raise NotPermitted(f"this needs a key of the tenant {DEFAULT_TENANT} with the scope {Scope.METRICS}")

    def require_deployer(self) -> None:
        """Check that the caller may deploy the code of agents.

        Raises:
            NotPermitted: it may not, or has no key: who reaches a gateway without keys is not to run code here.
        """
        if self.key_id is None:
            raise NotPermitted("this gateway uses no keys, and so takes no code: deploy on the machine of its home")
        if Scope.DEPLOY not in self.scopes or self.tenant != DEFAULT_TENANT or self.agent is not None:
            raise NotPermitted(f"this needs a key of the tenant {DEFAULT_TENANT} with the scope {Scope.DEPLOY}")

    def require_operator(self) -> None:
        """Check that the caller administers the home.

        Raises:
            NotPermitted: it does not.
        """
        if not self.is_operator:
            raise NotPermitted(f"this needs a key of the tenant {DEFAULT_TENANT} with the scope {Scope.ADMIN}")


class Access(Protocol):
    """Authenticates callers."""

    async def authenticate(self, authorization: str | None) -> Caller:
        """Return the caller of a request.

        Args:
            authorization: the request's ``Authorization`` header.

        Raises:
            NotAuthenticated: it names no valid key.
            TooManyRequests: its key is used too often.
        """
        ...

    async def authenticate_link(self, authorization: str | None) -> Caller:
        """Return the caller of a request with a link, whose claims say which question of which run it answers.

        Raises:
            NotAuthenticated: it names no valid link.
            TooManyRequests: it is used too often.
        """
        ...

    def watch(self, caller: Caller) -> AbstractContextManager[asyncio.Future[NotAuthenticated]]:
        """Watch the key of a request that lives long.

        The future has the error with which the request is to end, once the key does not permit it any more.
        """
        ...


ANYONE: Final = Caller(key_id=None, scopes=frozenset(Scope))
"""The caller where no key is needed: it may do everything, in the default tenant."""


class OpenAccess:
    """Access without keys."""

    async def authenticate(self, authorization: str | None) -> Caller:  # noqa: ARG002 - the port has it
        """Return `ANYONE`."""
        return ANYONE

    async def authenticate_link(self, authorization: str | None) -> Caller:  # noqa: ARG002 - the port has it
        """Raise `UnknownKey`."""
        raise UnknownKey("this gateway uses no keys, and so knows no links")

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[asyncio.Future[NotAuthenticated]]:  # noqa: ARG002 - the port has it
        """Yield what is never done."""
        yield asyncio.get_running_loop().create_future()
