"""Steering: messages handed to a turn while it runs.

Each message gets one call of ``on_steer``. The calls run one at a time, concurrently with ``on_message``. The turn
accepts messages until ``on_message`` returns, and commits when the calls that had started have returned, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.journal.records import InboxMessage

__all__ = ["STEERED", "Steering"]

STEERED: Final = "podium.steered"
"""The name of the event that tells the readers of the steered message: ``message_id`` and ``message`` of the other."""


class Steering:
    """The steering messages of one turn.

    Args:
        steer: calls the hook with a message.
    """

    def __init__(self, steer: Callable[[InboxMessage], Awaitable[None]]) -> None:
        self._steer = steer
        self._group: asyncio.TaskGroup | None = None
        self._order = asyncio.Lock()
        self.taken: list[InboxMessage] = []
        """The messages; the turn's commit consumes them."""
        self.failed = False
        """Whether a call of ``on_steer`` raised."""

    def has(self, message_id: str) -> bool:
        """Whether the turn has a message."""
        return any(message.message_id == message_id for message in self.taken)

    def take(self, message: InboxMessage) -> bool:
        """Accept a message; ``False`` once ``on_message`` has returned."""
        if self._group is None:
            return False
        self.taken.append(message)
        self._group.create_task(self._run(message), name=f"on_steer {message.message_id}")
        return True

    async def run(self, hook: Callable[[], Awaitable[Any]]) -> Any:
        """Run ``on_message``, accept messages meanwhile, and return its answer when all calls have returned.

        The first call that raises cancels the others, and its exception is raised.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    answer = await hook()
                finally:
                    self._group = None
        except BaseExceptionGroup as failures:
            failure = failures.exceptions[0]
        else:
            return answer
        raise failure  # outside of the except clause, so that its __context__ stays

    async def _run(self, message: InboxMessage) -> None:
        async with self._order:
            try:
                await self._steer(message)
            except Exception:
                self.failed = True
                raise
