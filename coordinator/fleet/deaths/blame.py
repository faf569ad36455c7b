"""Blame for the death of a host: the decision. Pure.

| what is known | who pays an attempt | leases | suspects |
|---|---|---|---|
| which agent ended the host | that one's oldest message, if it has one | those of the others are released | none |
| it was a shared host, and no more | nobody | all are released | all its agents |
| the host was of one agent, whose activation had not begun | nobody | its lease is released | none |

A host of one agent that died after the activation has begun was ended by that one. A lease that is left behind makes
the agent's next activation count the attempt. That may never come so far, so for an agent whose activation had not
completed the coordinator records the attempt itself (`coordinator.fleet.deaths.deaths`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from coordinator.fleet.model import AgentsLost, Placement
    from podium.address import Address

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Consequences of a death."""

    payer: Placement | None
    """The agent whose oldest message counts an attempt."""
    spared: Sequence[Placement]
    """The agents whose leases are released."""
    suspects: Sequence[Address]
    """Those of which one has ended the host, the likeliest first."""


def judge(lost: AgentsLost, pending: AbstractSet[Address]) -> Verdict:
    """Return who pays for the death of a host.

    Args:
        lost: the agents of a host that ended by itself.
        pending: those of them that have pending messages.
    """
    culprit = lost.culprit
    if lost.shared is not None and culprit is None:
        likely = {each.address for each in lost.agents if each.epoch is None or each.address in pending}
        addresses = [placement.address for placement in lost.agents]
        return Verdict(None, lost.agents, sorted(addresses, key=lambda address: address not in likely))
    payer = None
    for placement in lost.agents:
        activated_alone = lost.shared is None and placement.epoch is not None
        if (placement.address == culprit or activated_alone) and placement.address in pending:
            payer = placement
    return Verdict(payer, [placement for placement in lost.agents if placement is not payer], ())
