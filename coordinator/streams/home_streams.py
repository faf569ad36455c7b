"""All streams that the clients of one process read: of messages, and of recorded events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from coordinator.streams.event_tail import EventTails
from coordinator.streams.message_streams import MessageStreams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from coordinator.streams.event_tail import EventHistory
    from coordinator.streams.message_streams import Follower

__all__ = ["HomeStreams"]


class HomeStreams:
    """The streams of a home. Use it as an async context manager.

    Args:
        connect: returns a live connection to the service, such as `coordinator.service.link.ServiceLink.client`.
        history: where recorded events are read.
    """

    def __init__(self, connect: Callable[[], Awaitable[Follower]], history: EventHistory) -> None:
        self.messages = MessageStreams(connect)
        self.events = EventTails(history)

    async def __aenter__(self) -> Self:
        """Return the streams."""
        await self.messages.__aenter__()
        await self.events.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all streams."""
        self.close()
        try:
            await self.events.__aexit__(kind, error, trace)
        finally:
            await self.messages.__aexit__(kind, error, trace)

    def close(self) -> None:
        """End the streams of all readers, who can resume them at another process; open no others."""
        self.messages.close()
        self.events.close()
