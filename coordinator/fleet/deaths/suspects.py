"""The suspects: agents one of which has ended their shared host, until it is known which one. Pure, and in memory.

They come back apart from each other, so that a culprit ends no further process of the others: the suspects of one death
are split into groups of near equal size, each of which gets a shared host of its own; one of a single agent is a
process of its own. The next death splits one of these groups, so that of *n* agents the culprit is alone after
about log n deaths, for base `MAX_GROUPS`; the death of a host with one agent is known to be its own. An agent is
cleared when an activation of it has ended in order.

A restart of the coordinator clears all. That costs one more death.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from podium.address import Address

__all__ = ["MAX_GROUPS", "Suspects"]

MAX_GROUPS: Final = 8
"""Groups into which the agents of a host that died are split: each is a process, whose start takes a core's second."""


class Suspects:
    """The suspects, and the group of each."""

    def __init__(self) -> None:
        self._groups: dict[Address, tuple[int, str]] = {}
        """The number of the group, and why its agents are suspected."""
        self._alone: dict[Address, str] = {}
        """Those that are alone in their group, and why they are suspected."""
        self._count = 0

    def split(self, suspects: Sequence[Address], how: str | None) -> None:
        """Suspect the agents of a host that died, each of a group apart from the others as far as possible.

        Args:
            suspects: the likeliest first: they are not in the same groups, if there are not too many.
            how: a short description of the death, if it is known.
        """
        why = f"its shared process died{f' ({how})' if how is not None else ''}, and which agent ended it is not known"
        for start in range(min(MAX_GROUPS, len(suspects))):
            group = suspects[start::MAX_GROUPS]
            self._count += 1
            for address in group:
                self.clear(address)
                if len(group) == 1:
                    self._alone[address] = why
                else:
                    self._groups[address] = self._count, why

    def group_of(self, address: Address) -> int | None:
        """Return the group whose shared host an agent gets; ``None`` if it is no suspect, or is alone."""
        group = self._groups.get(address)
        return group[0] if group is not None else None

    def why_alone(self, address: Address) -> str | None:
        """Return why an agent gets a process of its own; ``None`` if it does not."""
        return self._alone.get(address)

    def clear(self, address: Address) -> None:
        """Suspect an agent no longer."""
        self._groups.pop(address, None)
        self._alone.pop(address, None)
