"""Holds: agents that are kept asleep for a while, for an operation that only a sleeping agent allows.

Pure but for the clock it is given. A hold expires, so that an agent does not stay asleep when its holder is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from podium.address import Address

__all__ = ["SleepHolds"]

_TTL_S: Final = 60.0
"""Operations on a sleeping agent take milliseconds, seconds if its tree is large."""


class SleepHolds:
    """The holds on agents; an agent may have several holders.

    Args:
        clock: tells when a hold expires.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiry_s: dict[Address, dict[str, float]] = {}

    def renew(self, address: Address, holder: str) -> None:
        """Begin a hold, or restart its time."""
        self._expiry_s.setdefault(address, {})[holder] = self._clock.monotonic_s() + _TTL_S

    def release(self, address: Address, holder: str) -> None:
        """End a hold; harmless when it is over."""
        holders = self._expiry_s.get(address, {})
        holders.pop(holder, None)
        if not holders:
            self._expiry_s.pop(address, None)

    def is_held_by(self, address: Address, holder: str) -> bool:
        """Whether a holder's hold is in force."""
        return self._expiry_s.get(address, {}).get(holder, 0.0) > self._clock.monotonic_s()

    def __contains__(self, address: Address) -> bool:
        """Whether an agent is held."""
        now_s = self._clock.monotonic_s()
        for holder, expiry_s in list(self._expiry_s.get(address, {}).items()):
            if expiry_s <= now_s:
                self.release(address, holder)
        return address in self._expiry_s
