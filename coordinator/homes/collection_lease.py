"""The right to collect garbage in a home: one process has it at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["CollectionLease", "Held"]


class Held(Protocol):
    """Makes sure that the right is held, and for long enough for one request to the blob store."""

    def __call__(self) -> None:
        """Return if it is.

        Raises:
            Conflict: it is not, or not for certain.
        """


class CollectionLease(Protocol):
    """The lease of a home's collections."""

    def hold(self) -> AbstractContextManager[Held]:
        """Hold the lease while the context lasts; it ends by itself after the death of this process.

        Entering raises `Conflict` if another process has it, and `Unavailable` if that is not known.
        """
        ...
