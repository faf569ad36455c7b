"""Agents that are to be woken, and who waits for them. It knows no Ray and no hosts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coordinator.fleet.model import Code, Route
    from podium.address import Address

__all__ = ["Waking", "Wakings"]


@dataclass(slots=True)
class Waking:
    """An agent that is wanted, and the answer for who waits for it."""

    code: Code
    losses: int = 0
    """Hosts that died while they took it, or before, when they were started for it."""
    route: asyncio.Future[Route] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Wakings:
    """The agents that are wanted and have not been given to a host, or are just being given to one.

    Args:
        added: called when there is another one.
    """

    def __init__(self, added: Callable[[], None]) -> None:
        self._added = added
        self._wanted: dict[Address, Waking] = {}

    def want(self, address: Address, code: Code) -> Waking:
        """Ask for an agent; all who ask get one answer."""
        waking = self._wanted.get(address)
        if waking is None:
            waking = self._wanted[address] = Waking(code)
            self._added()
        return waking

    def of(self, address: Address) -> Waking | None:
        """Return what is known of an agent; ``None`` if it is not wanted."""
        return self._wanted.get(address)

    def __getitem__(self, address: Address) -> Waking:
        """Return what is known of an agent that is wanted."""
        return self._wanted[address]

    def __iter__(self) -> Iterator[tuple[Address, Code]]:
        """Yield the agents in the order in which they were asked for, and their code."""
        for address, waking in self._wanted.items():
            yield address, waking.code

    def done(self, address: Address, waking: Waking, route: Route) -> None:
        """Tell those who wait for an agent where it is."""
        self._wanted.pop(address, None)
        if not waking.route.done():
            waking.route.set_result(route)

    def fail(self, address: Address, waking: Waking, error: Exception) -> None:
        """Tell those who wait for an agent why it cannot be woken."""
        if self._wanted.get(address) is waking:
            del self._wanted[address]
        if not waking.route.done():
            waking.route.set_exception(error)
            waking.route.exception()  # nobody may be waiting; that is not worth a warning

    def refuse(self, code: Code, error: Exception) -> None:
        """Tell all who wait for agents of a code that it cannot be loaded."""
        for address, waking in list(self._wanted.items()):
            if waking.code == code:
                self.fail(address, waking, error)

    def lose(self, code: Code, error: Exception, most: int) -> bool:
        """Note that a host died before it had loaded a code; tell those of whom more than so many did.

        Returns:
            whether others still wait: a start that nobody waits for need not be tried again.
        """
        for address, waking in list(self._wanted.items()):
            if waking.code == code:
                waking.losses += 1
                if waking.losses > most:
                    self.fail(address, waking, error)
        return any(waking.code == code for waking in self._wanted.values())
