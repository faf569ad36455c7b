"""When to try again what failed for a reason that may pass: waking an agent, or starting hosts for a code.

Nobody else would: an agent's messages are durable, and their senders may not come back. Pure but for the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

from chronicle.errors import Unavailable
from podium.errors import HostDied

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from podium.address import Address

__all__ = ["RetryFacts", "WakeRetries", "may_pass", "retry_delay_s"]

_DELAYS_S: Final = (15.0, 30.0, 60.0, 120.0, 300.0)
"""Delay by the number of failures in a row; the last one repeats. A retry costs the start of a host."""


def may_pass(error: Exception) -> bool:
    """Whether an error may be gone without a change of the agent's code or state."""
    return isinstance(error, HostDied | TimeoutError | Unavailable)


def retry_delay_s(failures: int) -> float:
    """Return the delay after so many failures in a row."""
    return _DELAYS_S[min(failures, len(_DELAYS_S)) - 1]


class RetryFacts(TypedDict):
    """A wake that failed and is tried again."""

    failures: int
    """In a row."""
    in_s: float
    """Time until it is tried again."""
    error: str


class WakeRetries:
    """The agents whose wake failed and is to be tried again.

    Args:
        clock: the source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[Address, tuple[int, str]] = {}
        """The number of failures in a row, and the last error."""
        self._due_s: dict[Address, float] = {}
        self._refused: set[Address] = set()

    def refused(self, address: Address) -> None:
        """Note that a wake failed for a reason that an edit or a command has to remove."""
        self._refused.add(address)

    def has(self, address: Address) -> bool:
        """Whether the last wake of an agent failed: it is tried again, or waits for an edit, a command or a message."""
        return address in self._failures or address in self._refused

    def failed(self, address: Address, error: Exception) -> None:
        """Have a wake tried again after a delay, which grows with each failure in a row."""
        failures = self._failures.get(address, (0, ""))[0] + 1
        self._failures[address] = failures, str(error) or type(error).__name__
        self._due_s[address] = self._clock.monotonic_s() + retry_delay_s(failures)

    def of(self, address: Address) -> RetryFacts | None:
        """Return when an agent is woken again, and why; ``None`` if its wake did not fail."""
        if address not in self._failures:
            return None
        failures, error = self._failures[address]
        now_s = self._clock.monotonic_s()
        return {"failures": failures, "in_s": max(0.0, self._due_s.get(address, now_s) - now_s), "error": error}

    def forget(self, address: Address) -> None:
        """Forget an agent that was woken, or that has no messages."""
        self._refused.discard(address)
        self._failures.pop(address, None)
        self._due_s.pop(address, None)

    def take_due(self) -> list[Address]:
        """Return the agents to wake now; each once for each failure."""
        now_s = self._clock.monotonic_s()
        due = [address for address, due_s in self._due_s.items() if due_s <= now_s]
        for address in due:
            del self._due_s[address]
        return due
