"""`Retry`: how often a step is tried, or a message attempted, and when."""

from __future__ import annotations

from dataclasses import dataclass

from chronicle.errors import InvalidInput

__all__ = ["Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often the function of a step is tried, or a message attempted, and when.

    Tries of a step belong to one attempt of the turn and count into its time limit. They are not durable: an attempt
    that follows a crash begins with the first try. What a try that failed has changed of state and files stays for the
    next one. `Permanent` and a cancellation are never tried again.

    Attempts of a message (`podium.agent.BaseAgent.retry`, `podium.agent.handler`) are durable, the delay before the
    next one is not: an agent that wakes meanwhile attempts it at once. The messages behind it wait.
    """

    attempts: int = 3
    """Tries in all, from 1; also those that ended with their process."""
    delay_s: float = 1.0
    """Seconds before the second try."""
    backoff: float = 2.0
    """Factor of the delay from one try to the next, from 1."""
    max_delay_s: float = 60.0
    """Longest delay, in seconds."""
    on: tuple[type[Exception], ...] = (Exception,)
    """The exceptions after which it is tried again; any other one fails the step at once."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.delay_s < 0 or self.backoff < 1 or self.max_delay_s < 0:
            raise InvalidInput(
                f"{self} is no policy: give attempts from 1, delays in seconds from 0, and a backoff factor from 1"
            )

    def delay_after_s(self, tries: int) -> float:
        """Return the delay after so many failed tries, in seconds."""
        return float(min(self.max_delay_s, self.delay_s * self.backoff ** (tries - 1)))
