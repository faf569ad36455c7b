"""The quotas of tenants, for messages in the outbox: those that would make an agent too many are held there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from coordinator.access.quotas import too_many_agents
from podium.agent_record import agent_exists, count_agents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.journal.port import JournalStore
    from coordinator.access.quotas import Quota
    from podium.address import Address

__all__ = ["check_of_receivers"]


def check_of_receivers(quotas: Mapping[str, Quota], store: JournalStore) -> Callable[[Address], str | None]:
    """Return a check for one look into the outbox, by one thread.

    It returns why no message may be delivered to a receiver; ``None`` if one may, and the caller then delivers one.

    Args:
        quotas: what tenants may have, by tenant.
        store: the journal.
    """
    made: defaultdict[str, set[Address]] = defaultdict(set)
    """The receivers that did not exist, by tenant; messages for them may be delivered."""
    there: dict[str, int] = {}
    """The agents of their tenants before."""

    def check(receiver: Address) -> str | None:
        quota, new = quotas.get(receiver.tenant), made[receiver.tenant]
        if quota is None or quota.agents is None or receiver in new or agent_exists(store, receiver):
            return None
        if receiver.tenant not in there:
            there[receiver.tenant] = count_agents(store, receiver.tenant)
        if there[receiver.tenant] + len(new) >= quota.agents:
            return too_many_agents(receiver.tenant, quota.agents)
        new.add(receiver)
        return None

    return check
