"""Which agents may be woken: those beyond the number of awake agents that their tenants may have wait. Pure.

A client's message for one of them is refused when it is admitted. What has a place in an inbox all the same, because
another agent or a reminder has sent it, or because it was admitted at the same moment, waits until an agent of the
tenant sleeps. Requests are served in their order, within each tenant.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coordinator.access.quotas import too_many_awake

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coordinator.access.quotas import Quota
    from coordinator.fleet.model import Code
    from podium.address import Address

__all__ = ["held_asleep"]


def held_asleep(
    wanted: Sequence[tuple[Address, Code]], awake: Iterable[Address], quotas: Mapping[str, Quota]
) -> dict[Address, str]:
    """Return the wanted agents that are not to be woken now, and why.

    Args:
        wanted: agents to wake that have no host, in the order of the requests.
        awake: the agents that have a host.
        quotas: of the tenants.
    """
    if all(quota.awake_agents is None for quota in quotas.values()):
        return {}
    awake_of = Counter(address.tenant for address in awake)
    held: dict[Address, str] = {}
    for address, _ in wanted:
        quota = quotas.get(address.tenant)
        if quota is not None and quota.awake_agents is not None and awake_of[address.tenant] >= quota.awake_agents:
            held[address] = too_many_awake(address.tenant, quota.awake_agents)
        else:
            awake_of[address.tenant] += 1
    return held
