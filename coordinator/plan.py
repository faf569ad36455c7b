"""The plan: given what is wanted and what is there, what to do next. Pure.

The rules, in order:

1. A warm host whose code has changed on disk is retired: a wake after an edit must run the edited code.
2. Each wanted agent gets a warm host of its code, first come, first served.
3. For each code there are as many hosts on their way as agents still wait for one, plus the warm reserve.
4. Warm hosts beyond the reserve are retired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.model import Assign, HostStatus, Retire, StartHost

if TYPE_CHECKING:
    from coordinator.model import Action, Code, Fleet

__all__ = ["plan"]


def plan(fleet: Fleet, warm_reserve: int) -> list[Action]:
    """Return the actions that bring a fleet nearer to what is wanted; none when it is there.

    Args:
        fleet: as observed just now.
        warm_reserve: warm hosts to keep for each code in use.
    """
    actions: list[Action] = []
    warm: dict[Code, list[str]] = {}
    starting: dict[Code, int] = {}
    for host in fleet.hosts:
        if host.code is None:
            continue
        stamp = fleet.code_stamps.get(host.code)
        if host.status is HostStatus.WARM and host.code_stamp != stamp:
            actions.append(Retire(host.host_id))
        elif host.status is HostStatus.WARM:
            warm.setdefault(host.code, []).append(host.host_id)
        elif host.status is HostStatus.STARTING and host.code_stamp == stamp:
            starting[host.code] = starting.get(host.code, 0) + 1

    waiting: dict[Code, int] = {}
    for address, code in fleet.wanted:
        ready = warm.get(code)
        if ready:
            actions.append(Assign(ready.pop(0), address))
        else:
            waiting[code] = waiting.get(code, 0) + 1

    for code, stamp in fleet.code_stamps.items():
        ready = warm.get(code, [])
        lacking = waiting.get(code, 0) + warm_reserve - starting.get(code, 0) - len(ready)
        actions.extend(StartHost(code, stamp) for _ in range(lacking))
        surplus = len(ready) - warm_reserve
        actions.extend(Retire(host_id) for host_id in ready[: max(0, surplus)])
    return actions
