"""The agents of a home: their addresses, turns, inboxes, and whether they are awake."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chronicle.journal.records import SessionFilter
from coordinator.operations import objects
from coordinator.operations.cursors import cursor_after, place_after
from podium.errors import UnknownAgent

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.sessions import SessionRecords
    from chronicle.journal.records import SessionSummary
    from coordinator.fleet.facts import AwakeFacts
    from coordinator.operations.cursors import Rest
    from podium.address import Address

__all__ = ["AgentFilter", "agent_object", "agent_of_summary", "agent_page", "with_awake"]


@dataclass(frozen=True, slots=True)
class AgentFilter:
    """Which agents a list has."""

    tenant: str | None = None
    """Agents of this one only; ``None`` for those of all."""
    agent_type: str | None = None
    """Agents of this type only."""
    awake: bool = False
    """Agents that are awake only."""


def agent_page(
    store: SessionRecords, wanted: AgentFilter, limit: int, cursor: str | None, now_ms: int
) -> tuple[list[SessionSummary], Rest]:
    """Return the sessions of a page of agents, by name, then tenant, and what follows the page.

    Args:
        limit: the most agents.

    Raises:
        InvalidCursor: it is of another list.
    """
    of = [wanted.tenant, wanted.agent_type, "awake" if wanted.awake else None]
    tenant, _, name = place_after(cursor, "agents", of, "").partition(":")
    prefix = f"{wanted.agent_type}/" if wanted.agent_type is not None else ""
    only = SessionFilter(
        with_slash=True, leased_at_ms=now_ms if wanted.awake else None
    )  # others are histories that imported agents inherited
    found = store.summaries(prefix, wanted.tenant, after=name, after_namespace=tenant, limit=limit + 1, only=only)
    page = [*found[:limit]]
    if len(found) <= limit:
        return page, {"next_cursor": None, "remaining": 0}
    last = page[-1].session
    return page, {
        "next_cursor": cursor_after("agents", of, f"{last.namespace}:{last.name}"),
        "remaining": store.count_sessions(
            prefix, wanted.tenant, after=last.name, after_namespace=last.namespace, only=only
        ),
    }


def agent_object(store: JournalStore, address: Address, now_ms: int) -> objects.Agent:
    """Return one agent.

    Raises:
        UnknownAgent: there is none.
    """
    from podium.agent_record import find_session  # noqa: PLC0415  slow to import, and a list of agents needs none

    session = find_session(store, address)
    found = store.summaries(session.name, session.namespace, limit=1)  # the name itself is the first of that prefix
    if not found or found[0].session != session:  # it was deleted meanwhile
        raise UnknownAgent(f"no agent {address}")
    return agent_of_summary(found[0], now_ms)


def agent_of_summary(summary: SessionSummary, now_ms: int) -> objects.Agent:
    """Return the agent whose session it is; what its host knows is left out."""
    session, head, lease = summary.session, summary.head, summary.lease
    agent_type, _, key = session.name.partition("/")
    return objects.Agent(
        agent=session.name,
        type=agent_type,
        key=key,
        turn=head.turn,
        version=head.seq,
        status="awake" if lease is not None and lease.expires_ms > now_ms else "asleep",
        pending=summary.pending,
        parked=summary.parked,
        created_at=session.created_ms,
        updated_at=summary.last_ms if summary.last_ms is not None else session.created_ms,
    )


def with_awake(agent: objects.Agent, facts: AwakeFacts | None) -> objects.Agent:
    """Return an agent with what the service knows of it; ``None`` if it has no host."""
    if facts is None:
        return agent
    return replace(agent, isolation=facts["isolation"], sandbox=facts["sandbox"], memory=facts["memory"])
