"""The port to the upkeep of a stored journal: what its chains do not cover, and copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

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
    def is_small(self) -> bool:
        """Whether a thorough check takes less than a second."""

    def copy_to(self, target: Path) -> None:
        """Copy the journal as it is at one moment into a new SQLite file, durably; writers go on.

        Raises:
            InvalidInput: the journal is copied by other means, which the error names.
            StorageRefused: the file cannot be written.
            Unavailable: the journal cannot be read now; try again.
        """
