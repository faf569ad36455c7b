"""The port to the upkeep of a stored journal: what its chains do not cover, and copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StoreUpkeep"]


class StoreUpkeep(Protocol):
    """Checks and copies of a journal that is kept on a disk or by a server."""

    def damage(self) -> str | None:
        """Return damage that the chains do not cover, in a sentence; ``None`` if there is none. It reads all of it."""

    def check(self, *, thorough: bool = False) -> None:
        """Raise if quick checks find damage.

        Args:
            thorough: run all checks of `damage`.

        Raises:
            Corrupt: the journal is damaged.
        """

    @property
    def format(self) -> int:
        """The format that it has; a newer one than this code's if that works with it."""

    @property
    def is_small(self) -> bool:
        """Whether a thorough check takes less than a second."""

    def receive(self, source: StoreUpkeep, on_rows: Callable[[int], None]) -> None:
        """Replace all that it has by what another stored journal has at one moment, durably; its writers go on.

        Args:
            source: the other one. Both keep their rows in the tables of `chronicle.journal.sql`, in whichever database.
            on_rows: called with the number of rows copied so far.

        Raises:
            StorageRefused: it cannot be written.
            Unavailable: one of the two cannot be reached.
        """
