"""The agents of a home: their addresses, turns, inboxes, and whether they are awake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.journal.records import MessageStatus
from coordinator.operations.cursors import cursor_after, place_after
from podium.address import Address
from podium.agent_record import find_session, is_agent

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session
    from coordinator.operations.objects import AgentObject, AgentPage

__all__ = ["agent_object", "agent_of_session", "agent_page"]


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
    page: list[Session] = []
    while len(page) <= limit:
        found = store.sessions(prefix, tenant, after=after, limit=limit + 1)
        page += [session for session in found if is_agent(session)]
        if len(found) <= limit:
            break
        after = found[-1].name
    more, page = len(page) > limit, page[:limit]
    return {
        "items": [agent_of_session(store, session, now_ms) for session in page],
        "next_cursor": cursor_after("agents", of, page[-1].name) if more else None,
    }


def agent_object(store: JournalStore, address: Address, now_ms: int) -> AgentObject:
    """Return one agent.

    Raises:
        UnknownAgent: there is none.
    """
    return agent_of_session(store, find_session(store, address), now_ms)


def agent_of_session(store: JournalStore, session: Session, now_ms: int) -> AgentObject:
    """Return the agent whose session it is."""
    head = store.head(session.main_branch_id)
    last = store.find_event(head.event_id) if head.event_id else None
    lease = store.lease(session.session_id)
    address = Address.of(session)
    return {
        "agent": address.name,
        "type": address.agent_type,
        "key": address.key,
        "turn": head.turn,
        "version": head.seq,
        "status": "awake" if lease is not None and lease.expires_ms > now_ms else "asleep",
        "pending": len(store.messages(session.session_id, MessageStatus.PENDING)),
        "parked": len(store.messages(session.session_id, MessageStatus.PARKED)),
        "created_at": session.created_ms,
        "updated_at": last.ts if last else session.created_ms,
    }
