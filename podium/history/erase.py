"""Erasure of payloads of messages, their results, artifacts and calls of models; the chain of events still verifies.

Only events that replay does not read can be erased: public events, such as messages, results, artifacts and calls of
models. A text that a call shares with a message of its turn is erased with it. Copies of
their content in the agent's state or files are not erased; folding the history drops old states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput
from podium.agent_record import find_session
from podium.errors import EventNotFound
from podium.events import ARTIFACT_ADDED, MESSAGE_ANSWERED, MODEL_CALLED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import EventId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event
    from podium.address import Address

__all__ = ["erase_messages"]


def erase_messages(store: JournalStore, address: Address, event_ids: Sequence[EventId]) -> list[Event]:
    """Erase the payloads of an agent's messages, results and artifacts; it may be running.

    Blobs are removed by the next gc: payloads out of line, and contents of artifacts.

    Returns:
        the events that were not erased before, with their payloads.

    Raises:
        UnknownAgent: there is no such agent.
        EventNotFound: it has no event of one of the ids; nothing was erased.
        InvalidInput: one is an event that replay reads, or belongs to another agent; nothing was erased.
    """
    own = {branch.branch_id for branch in store.branches(find_session(store, address).session_id)}
    found: list[Event] = []
    for event_id in dict.fromkeys(event_ids):
        event = store.find_event(event_id)
        if event is None:
            raise EventNotFound(f"{address} has no event {event_id}", str(address))
        if event.branch_id not in own:
            raise InvalidInput(f"event {event_id} belongs to another agent than {address}; erase it there")
        if "." in event.type and event.type not in (ARTIFACT_ADDED, MESSAGE_ANSWERED, MODEL_CALLED):
            raise InvalidInput(
                f"event {event_id} is {event.type}, which replay reads; only messages, results, artifacts and calls of "
                "models can be erased"
            )
        if not event.erased:
            found.append(event)
    store.erase([event.event_id for event in found])
    return found
