"""Sleep holds: they keep agents asleep during operations that require a sleeping agent.

Pure except for the injected clock. A hold expires, so an agent does not stay asleep after the death of its holder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from podium.address import Address

__all__ = ["SleepHolds"]

_TTL_S: Final = 60.0
"""Operations on a sleeping agent take milliseconds, or seconds for a large tree."""


class SleepHolds:
    """The holds on agents; an agent may have several holders.

    Args:
        clock: for the expiry of holds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiry_s: dict[Address, dict[str, float]] = {}

    def renew(self, address: Address, holder: str) -> None:
        """Begin a hold, or extend it by its full time to live."""
        self._expiry_s.setdefault(address, {})[holder] = self._clock.monotonic_s() + _TTL_S

    def release(self, address: Address, holder: str) -> None:
        """End a hold; idempotent."""
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
