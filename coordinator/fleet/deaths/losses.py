"""The hosts that were lost with their nodes: the service waits for them, and drops what still comes from them."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Losses", "Seen"]

Seen = tuple[str, int]
"""Which losses are known: the run of the coordinator, and how many of it."""
_MAX_KEPT: Final = 10_000
"""The latest losses that are kept, for a service that asks late."""


class Losses:
    """The losses of one run of the coordinator."""

    def __init__(self) -> None:
        self._run = secrets.token_hex(8)
        self._count = 0
        self._latest: list[str] = []
        self._noted = asyncio.Event()

    def note(self, host_ids: Sequence[str]) -> None:
        """Note that hosts are lost."""
        self._latest = [*self._latest, *host_ids][-_MAX_KEPT:]
        self._count += len(host_ids)
        self._noted.set()

    async def after(self, seen: Seen | None) -> tuple[Seen, list[str]]:
        """Wait for losses after those that are known, and return them.

        Args:
            seen: as it was returned last. For another run, and for ``None``, this returns at once, with those of this
                run: which other hosts were lost before is not known.
        """
        known = seen[1] if seen is not None and seen[0] == self._run else None
        while known is not None and known == self._count:
            self._noted.clear()
            await self._noted.wait()
        new = self._count - (known or 0)
        return (self._run, self._count), self._latest[-new:] if new else []
