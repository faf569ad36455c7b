"""Agents that are to sleep for a while, because something is done to them that only a sleeping agent allows.

Pure but for the clock it is given. A hold ends by itself if whoever has it is gone, so that no agent stays asleep for
good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from podium.address import Address

__all__ = ["Holds"]

_HELD_S: Final = 60.0
"""What is done to a sleeping agent takes milliseconds, seconds if its tree is large."""


class Holds:
    """Which agents are held, and by whom.

    Args:
        clock: tells when a hold is over.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[Address, dict[str, float]] = {}

    def keep(self, address: Address, holder: str) -> None:
        """Hold an agent from now on; called again, it begins anew."""
        self._until_s.setdefault(address, {})[holder] = self._clock.monotonic_s() + _HELD_S

    def let_go(self, address: Address, holder: str) -> None:
        """End one holder's hold; harmless when it is over."""
        holders = self._until_s.get(address, {})
        holders.pop(holder, None)
        if not holders:
            self._until_s.pop(address, None)

    def has(self, address: Address, holder: str) -> bool:
        """Whether that holder's hold goes on."""
        return self._until_s.get(address, {}).get(holder, 0.0) > self._clock.monotonic_s()

    def __contains__(self, address: Address) -> bool:
        """Whether anyone holds an agent."""
        now_s = self._clock.monotonic_s()
        for holder, until_s in list(self._until_s.get(address, {}).items()):
            if until_s <= now_s:
                self.let_go(address, holder)
        return address in self._until_s
