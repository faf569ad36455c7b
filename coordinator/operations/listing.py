"""The agents of a home: their addresses, turns, inboxes, and whether they are awake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.operations.cursors import cursor_after, place_after
from podium.address import Address
from podium.agent_record import find_session, is_agent
from podium.errors import UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import SessionSummary
    from coordinator.fleet.facts import AwakeFacts
    from coordinator.operations.objects import AgentObject, AgentPage

__all__ = ["add_awake", "agent_object", "agent_of_summary", "agent_page"]


def agent_page(
    store: JournalStore, tenant: str, agent_type: str | None, limit: int, cursor: str | None, now_ms: int
) -> AgentPage:
    """Return a page of a tenant's agents, by address.

    Args:
        tenant: agents of this one only.
        agent_type: only agents of this type.
        limit: the most items.

    Raises:
        InvalidCursor: it is of another list.
    """
    of = [tenant, agent_type]
    after = place_after(cursor, "agents", of, "")
    prefix = f"{agent_type}/" if agent_type is not None else ""
    page: list[SessionSummary] = []
    while len(page) <= limit:
        found = store.summaries(prefix, tenant, after=after, limit=limit + 1)
        page += [summary for summary in found if is_agent(summary.session)]
        if len(found) <= limit:
            break
        after = found[-1].session.name
    more, page = len(page) > limit, page[:limit]
    return {
        "items": [agent_of_summary(summary, now_ms) for summary in page],
        "next_cursor": cursor_after("agents", of, page[-1].session.name) if more else None,
    }


def agent_object(store: JournalStore, address: Address, now_ms: int) -> AgentObject:
    """Return one agent.

    Raises:
        UnknownAgent: there is none.
    """
    session = find_session(store, address)
    found = store.summaries(session.name, session.namespace, limit=1)  # the name itself is the first of that prefix
    if not found or found[0].session != session:  # it was deleted meanwhile
        raise UnknownAgent(f"no agent {address}")
    return agent_of_summary(found[0], now_ms)


def agent_of_summary(summary: SessionSummary, now_ms: int) -> AgentObject:
    """Return the agent whose session it is; what its host knows is left out."""
    session, head, lease = summary.session, summary.head, summary.lease
    address = Address.of(session)
    return {
        "agent": address.name,
        "type": address.agent_type,
        "key": address.key,
        "turn": head.turn,
        "version": head.seq,
        "status": "awake" if lease is not None and lease.expires_ms > now_ms else "asleep",
        "isolation": None,
        "memory": None,
        "pending": summary.pending,
        "parked": summary.parked,
        "created_at": session.created_ms,
        "updated_at": summary.last_ms if summary.last_ms is not None else session.created_ms,
    }


def add_awake(agents: Sequence[AgentObject], awake: Mapping[str, AwakeFacts], label: Callable[[str], str]) -> None:
    """Add what the service knows of agents that are awake.

    Args:
        awake: by address.
        label: returns the address of an agent of the list.
    """
    for agent in agents:
        facts = awake.get(label(agent["agent"]))
        if facts is not None:
            agent["isolation"], agent["memory"] = facts["isolation"], facts["memory"]
