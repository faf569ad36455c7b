"""The memory of a shared host: when it is too much, and whose turns it grew with.

A process gives memory back to nobody but the kernel, at its end. So a host over its limit takes no more agents, lets
the turns of its own end, and is replaced. Nobody is charged for it: what an agent takes cannot be told apart from what
others take. It is guessed, for the log, from the growth of some time, of which each agent has an equal part that had a
turn then: who has one whenever the process grows comes first. Pure but for the callback.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coordinator.host.hosted_agent import HostedAgent
    from podium.address import Address

__all__ = ["MemoryWatch"]

_MIN_GROWTH: Final = 64 << 20
"""A limit below what a process takes at its start would replace each one before its first turn."""
_MIN_NOTED: Final = 1 << 20
"""A smaller growth waits until there is more: a look at thousands of agents takes a millisecond."""


class MemoryWatch:
    """Watches the memory of this process. Call it from one thread.

    Args:
        limit: bytes, of memory that no other process shares; at least 64 MiB more than at the start.
        used: returns the memory that is used now.
    """

    def __init__(self, limit: int, used: Callable[[], int]) -> None:
        self._used = used
        self._now = self._before = used()
        self._limit = max(limit, self._before + _MIN_GROWTH)
        self._turns: dict[Address, int] = {}
        """The turns of each agent when the memory last grew."""
        self._grown: Counter[Address] = Counter()

    def check(self, agents: Sequence[HostedAgent]) -> bool:
        """Return whether the memory is over the limit. Call it every quarter of a second or so.

        Args:
            agents: those that are awake.
        """
        self._now = used = self._used()
        self._before = min(self._before, used)
        if used - self._before >= _MIN_NOTED:
            self._attribute(used - self._before, agents)
            self._before = used
        return used > self._limit

    def _attribute(self, growth: int, agents: Sequence[HostedAgent]) -> None:
        """Add a growth to the agents that had turns or were woken since the last one, or have a turn now."""
        turns = {agent.address: agent.activation.turn for agent in agents}
        running = {agent.address for agent in agents if agent.activation.deadline_s is not None}
        active = [
            address for address, turn in turns.items() if address in running or self._turns.get(address, 0) != turn
        ]
        for address in active:
            self._grown[address] += growth // len(active)
        self._turns = turns

    def describe(self) -> str:
        """Return the memory, the limit, and whose turns it grew with most, for people."""
        text = f"{self._now >> 20} MiB of memory, limit {self._limit >> 20} MiB"
        most = ", ".join(f"{address} ({size >> 20} MiB)" for address, size in self._grown.most_common(3) if size >> 20)
        return f"{text}; it grew most with the turns of {most}" if most else text
