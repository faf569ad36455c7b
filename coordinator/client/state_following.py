"""Following an agent's state: read once, then moved forward by the patches of its turns."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from podium.events import FULL_STATE_EVENTS, STATE_EVENTS
from podium.state.errors import PatchError
from podium.state.patch.follow import follow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from coordinator.operations.objects import Event, State

__all__ = ["followed"]


async def followed(
    read: Callable[[], Awaitable[State]], events_after: Callable[[int], AsyncGenerator[Event]]
) -> AsyncGenerator[State]:
    """Yield an agent's state, and again after each of its turns, without an end.

    A turn whose patch was erased, or does not fit, is answered by reading the state again.

    Args:
        read: reads the state.
        events_after: yields the events after a version, and new ones as they come.
    """
    state = await read()
    yield state
    async with aclosing(events_after(state.version)) as events:
        async for event in events:
            if event.type not in STATE_EVENTS or event.seq <= state.version:
                continue  # the state was read again after it
            try:
                document = _next(state.state, event)
            except (PatchError, KeyError, TypeError):
                state = await read()
            else:
                moved = document is not None
                state = replace(
                    state, turn=event.turn, version=event.seq, state=document if document is not None else state.state
                )
                if not moved:
                    continue
            yield state


def _next(document: dict[str, Any], event: Event) -> dict[str, Any] | None:
    """Return the state after an event; ``None`` if the event, a mark, repeats the state.

    Raises:
        PatchError: the patch does not fit.
        KeyError: the event has no patch.
        TypeError: its payload was erased.
    """
    if event.type in FULL_STATE_EVENTS:
        found: dict[str, Any] = event.payload["state"]
        return None if found == document else found
    return follow(document, [event.payload["state"]["patch"]])
