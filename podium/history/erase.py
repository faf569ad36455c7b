"""Erasing what was said: the payloads of messages, gone for good, while the chain of events verifies as before.

Only what no replay needs is erased: public events, such as messages, and artifacts. What an agent put of them into its
state or its files is not touched; folding its history drops old states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput, NotFound
from podium.agent_record import find_session
from podium.events import ARTIFACT_ADDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import EventId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event
    from podium.address import Address

__all__ = ["erase_messages"]


def erase_messages(store: JournalStore, address: Address, event_ids: Sequence[EventId]) -> list[Event]:
    """Erase the payloads of an agent's messages and artifacts; it may be running.

    What lies in the blob store goes with the next collection: payloads out of line, and contents of artifacts.

    Returns:
        those that were not erased before, as they were.

    Raises:
        UnknownAgent: there is no such agent.
        NotFound: it has no event of one of the ids; nothing was erased.
        InvalidInput: one is the system's own, which the agent's state and files are read from, or belongs to another
            agent; nothing was erased.
    """
    own = {branch.branch_id for branch in store.branches(find_session(store, address).session_id)}
    found: list[Event] = []
    for event_id in dict.fromkeys(event_ids):
        event = store.find_event(event_id)
        if event is None:
            raise NotFound(f"{address} has no event {event_id}; podium log {address} lists them")
        if event.branch_id not in own:
            raise InvalidInput(f"event {event_id} is not one of {address}'s own; erase it where it was made")
        if "." in event.type and event.type != ARTIFACT_ADDED:
            raise InvalidInput(
                f"event {event_id} is {event.type}, which the agent is read from; only messages and artifacts can be "
                "erased"
            )
        if not event.erased:
            found.append(event)
    store.erase([event.event_id for event in found])
    return found
