"""Quotas of tenants: what is allowed, and what is refused at admission.

A quota limits what callers of a tenant make its agents do. It is checked where a message is admitted, in the one
process that admits messages of clients; messages between agents are neither counted nor refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from podium.errors import PodiumError

__all__ = ["Quota", "QuotaExceeded"]


class QuotaExceeded(PodiumError):
    """A tenant has as much of something as it may have.

    Attributes:
        retry_after_s: seconds until a repetition may succeed; ``None`` if waiting does not help.
    """

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may have; ``None`` for no limit."""

    agents: int | None = None
    """Agents, sleeping ones included."""
    awake_agents: int | None = None
    """Agents that are awake at the same time."""
    bytes: int | None = None
    """Bytes of its agents' events and messages."""
    messages_per_minute: int | None = None
    """Messages that are admitted in any 60 seconds."""
