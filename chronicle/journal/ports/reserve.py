"""The port to space that a journal reserves for essential writes on a full disk."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["NO_RESERVE", "Reserve"]


class Reserve(Protocol):
    """Space for the writes that must succeed on a full disk; best effort."""

    def free(self) -> bool:
        """Free the space if the disk is full; return whether a retry of a write may succeed now."""

    def restore(self) -> None:
        """Reserve the space again, if it is not reserved and enough is free; a failure is ignored."""


class _NoReserve:
    def free(self) -> bool:
        """Return false."""
        return False

    def restore(self) -> None:
        """Do nothing."""


NO_RESERVE: Final[Reserve] = _NoReserve()
"""Of a journal in memory, that is only read, or that has no file here."""
