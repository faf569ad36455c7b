"""Dependencies of the routes: the home's agents, the caller, the address of an agent, a page's bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Header, Path, Query
from starlette.requests import Request

from coordinator.access.audit import Audit
from coordinator.access.caller import Access, Caller, Scope
from coordinator.gateway.patterns import ADDRESS, CURSOR, KEY, TYPE
from coordinator.operations.agents import HomeAgents
from coordinator.operations.conversations import Conversations
from coordinator.operations.cursors import MAX_ITEMS
from coordinator.operations.discreet_agents import DiscreetAgents, PrivateAgents
from coordinator.sessions.home_sessions import HomeSessions
from coordinator.sessions.once import RepeatedOperations
from coordinator.streams.home_streams import HomeStreams
from podium.address import MAX_KEY_LENGTH, Address
from podium.errors import UnknownAgent

__all__ = [
    "AUDITED",
    "Administering",
    "AgentType",
    "Agents",
    "Called",
    "Chats",
    "Cursor",
    "ErrorTexts",
    "HomesAgents",
    "IdempotencyKey",
    "Limit",
    "MessageId",
    "Operations",
    "OtherAgent",
    "Reading",
    "Sessions",
    "Streams",
    "Turn",
    "Writing",
    "noting",
    "permitted",
]


def _part(name: str) -> Any:
    """Return the dependency on a part of the application, by its name in the state of that."""

    async def part(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(part)


async def _caller(request: Request) -> Caller:
    access: Access = request.app.state.access
    caller = request.state.caller = await access.authenticate(request.headers.get("authorization"))
    request.state.error_texts = request.app.state.error_texts or Scope.ADMIN in caller.scopes
    return caller


Called: TypeAlias = Annotated[Caller, Depends(_caller)]
"""The authenticated caller."""


async def _error_texts(request: Request, _: Called) -> bool:
    shown: bool = request.state.error_texts
    return shown


ErrorTexts: TypeAlias = Annotated[bool, Depends(_error_texts)]
"""Whether the caller gets the texts of errors that agents' code makes, and models."""


HomesAgents: TypeAlias = Annotated[HomeAgents, _part("agents")]
"""The agents of the home, for routes without a caller."""


async def _agents(agents: HomesAgents, error_texts: ErrorTexts, caller: Called) -> HomeAgents:
    if Scope.ADMIN in caller.scopes:
        return agents
    return PrivateAgents(agents) if error_texts else DiscreetAgents(agents)


Agents: TypeAlias = Annotated[HomeAgents, Depends(_agents)]
"""The agents of the home, as the caller may see them."""


Chats: TypeAlias = Annotated[Conversations, _part("chats")]
"""Conversations of front ends."""

Limit: TypeAlias = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="The most items of the page.")]
Cursor: TypeAlias = Annotated[
    str | None,
    Query(
        max_length=2048,
        description="The `next_cursor` of the page before; it serves this list only.",
        json_schema_extra={"pattern": CURSOR},
    ),
]
Turn: TypeAlias = Annotated[int | None, Query(ge=0, le=2**53, description="A committed turn; the last one by default.")]

IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="A repetition with the same key and body gets the same answer, and is not handled again.",
    ),
]

MessageId: TypeAlias = Annotated[str, Path(max_length=64, description="The id of a message: `msg_…`.")]

AgentType: TypeAlias = Annotated[
    str,
    Path(
        alias="type",
        description="The agent's type, such as `hello`.",
        json_schema_extra={"pattern": TYPE, "minLength": 1, "maxLength": 64},
    ),
]
"""The type in the path."""
_Key = Annotated[
    str,
    Path(
        description="The agent's key, such as `alice`: printable, without `/` and `..`.",
        json_schema_extra={"pattern": KEY, "minLength": 1, "maxLength": MAX_KEY_LENGTH},
    ),
]


OtherAgent: TypeAlias = Annotated[
    str | None,
    Query(
        alias="with",
        max_length=256,
        description="The agent that `to` is a turn of, such as a fork: `type/key`.",
        json_schema_extra={"pattern": ADDRESS},
    ),
]
"""The agent that one is compared with."""


def _address(scope: Scope) -> Any:
    """Return the dependency on the address in the path, which the caller may use with a scope."""

    async def address(caller: Called, agent_type: AgentType, key: _Key) -> Address:
        return permitted(caller, scope, f"{agent_type}/{key}")

    return Depends(address)


def permitted(caller: Caller, scope: Scope, name: str) -> Address:
    """Return the address of an agent that a request names, after checking that the caller may use the agent.

    Raises:
        InvalidAddress: it is none.
        UnknownAgent: it names another tenant.
        NotPermitted: the caller may not.
    """
    named = Address.parse(name, caller.tenant)
    if named.tenant != caller.tenant:  # answered as an agent of the caller's tenant that does not exist
        caller.require(scope)
        raise UnknownAgent(f"no agent {named} in this home")
    caller.require(scope, named)
    return named


Streams: TypeAlias = Annotated[HomeStreams, _part("streams")]
"""The streams of messages and events."""


Sessions: TypeAlias = Annotated[HomeSessions, _part("sessions")]
"""The sessions of clients."""


Operations: TypeAlias = Annotated[RepeatedOperations, _part("operations")]
"""Operations that a repeated request does not repeat."""

Reading: TypeAlias = Annotated[Address, _address(Scope.READ)]
"""The agent of the path, which the caller may read."""

Writing: TypeAlias = Annotated[Address, _address(Scope.WRITE)]
"""The agent of the path, to which the caller may send, and whose files and turns it may change."""

Administering: TypeAlias = Annotated[Address, _address(Scope.ADMIN)]
"""The agent of the path, which the caller may delete."""


def noting(request: Request, caller: Caller) -> AbstractContextManager[object]:
    """Return what records a request in the audit record, with the outcome of the context."""
    audit: Audit | None = request.app.state.audit
    if audit is None:
        return nullcontext()
    named = request.path_params
    return audit.noting(
        caller.key_id,
        f"{request.method} {request.scope['route'].name}",
        tenant=caller.tenant,
        agent=f"{named['type']}/{named['key']}" if "key" in named else None,
        client=request.client.host if request.client is not None else None,
    )


async def _audited(request: Request, caller: Called) -> AsyncIterator[None]:
    with noting(request, caller):
        yield


AUDITED = Depends(_audited)
"""For the ``dependencies`` of a route: records each call of it in the audit record, with its outcome."""
