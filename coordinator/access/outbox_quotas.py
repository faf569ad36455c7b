"""The quotas of tenants, for messages in the outbox: those that would make an agent too many are held there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import NotFound
from coordinator.access.quotas import too_many_agents
from podium.address import Address
from podium.agent_record import list_agents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.sessions import SessionRecords
    from coordinator.access.quotas import Quota

__all__ = ["check_of_receivers"]


def check_of_receivers(quotas: Mapping[str, Quota], store: JournalStore) -> Callable[[Address], str | None]:
    """Return a check for one look into the outbox, by one thread.

    It returns why no message may be delivered to a receiver; ``None`` if one may, and the caller then delivers one.

    Args:
        quotas: what tenants may have, by tenant.
        store: the journal.
    """
    agents_of: dict[str, set[Address]] = {}
    """Of the tenants of which a receiver does not exist yet."""

    def check(receiver: Address) -> str | None:
        quota = quotas.get(receiver.tenant)
        if quota is None or quota.agents is None:
            return None
        if receiver.tenant not in agents_of:
            if _exists(store, receiver):
                return None
            agents_of[receiver.tenant] = {Address.of(session) for session in list_agents(store, receiver.tenant)}
        agents = agents_of[receiver.tenant]
        if receiver not in agents and len(agents) >= quota.agents:
            return too_many_agents(receiver.tenant, quota.agents)
        agents.add(receiver)
        return None

    return check


def _exists(store: SessionRecords, receiver: Address) -> bool:
    try:
        store.session(receiver.name, receiver.tenant)
    except NotFound:
        return False
    return True
