"""The plan: computes the next actions from the wanted agents and the observed hosts. Pure.

The rules, in order:

1. A warm host whose code has changed on disk is retired: a wake after an edit must run the edited code. (An assigned
   host is retired when a message arrives: `CoordinatorActor.prepare`.)
2. Each wanted agent is assigned a warm host of its code, in the order of the requests.
3. For each code the target number of starting hosts is the number of agents still without one, plus the warm reserve.
   Starts for agents come first, in the order of the requests.
4. Concurrent starts are limited: a start occupies a core for a second, so with many at once none would be ready for a
   long time.
5. Warm hosts in excess of the reserve are retired.

The reserve is filled in the background: neither by a plan that assigns a host, nor while agents wake, when there is no
target for it (`wake_requests.Lull`). A start would take the core that a wake needs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coordinator.fleet.model import Assign, HostStatus, Retire, StartHost

if TYPE_CHECKING:
    from coordinator.fleet.model import Action, Code, Observed

__all__ = ["plan"]


def plan(fleet: Observed, warm_reserve: int | None, most_starting: int) -> list[Action]:
    """Return the actions that bring a fleet closer to its target; none if it has converged or has to wait.

    Args:
        fleet: the current observation.
        warm_reserve: target number of unassigned warm hosts for each code in use; ``None`` to leave the warm hosts as
            they are.
        most_starting: limit of hosts that start concurrently.
    """
    actions: list[Action] = []
    warm: dict[Code, list[str]] = {}
    on_their_way: Counter[Code] = Counter()
    starting = 0
    for host in fleet.hosts:
        if host.code is None:
            continue
        stamp = fleet.code_stamps.get(host.code)
        if host.status is HostStatus.STARTING:
            starting += 1
            on_their_way[host.code] += host.code_stamp == stamp
        elif host.status is HostStatus.WARM and host.code_stamp != stamp:
            actions.append(Retire(host.host_id))
        elif host.status is HostStatus.WARM:
            warm.setdefault(host.code, []).append(host.host_id)

    lacking: list[Code] = []
    for address, code in fleet.wanted:
        if warm.get(code):
            actions.append(Assign(warm[code].pop(0), address))
        elif code in fleet.code_stamps:
            lacking.append(code)
    assigns = any(isinstance(action, Assign) for action in actions)
    if warm_reserve is not None and not assigns:
        for code in fleet.code_stamps:
            ready = warm.get(code, [])
            lacking.extend([code] * (warm_reserve - len(ready)))
            actions.extend(Retire(host_id) for host_id in ready[: max(0, len(ready) - warm_reserve)])

    for code in lacking:
        if on_their_way[code]:
            on_their_way[code] -= 1
        elif starting < most_starting:
            actions.append(StartHost(code, fleet.code_stamps[code]))
            starting += 1
    return actions
