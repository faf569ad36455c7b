"""Dropping of an agent's content for good: folding its history, and erasing messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput
from coordinator.operations import objects
from podium.agent_record import find_session
from podium.artifacts.artifacts import event_id_of
from podium.errors import EventNotFound
from podium.events import ARTIFACT_ADDED
from podium.history.compare import lineage
from podium.history.erase import erase_messages
from podium.history.fold import fold_agent
from podium.history.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from podium.address import Address
    from podium.history.fold import Dropped

__all__ = ["check_events", "erase", "fold"]


def fold(
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    keep_turns: int | None,
    keep_days: float | None,
    ids: IdSource,
    now_ms: int,
    *,
    dry_run: bool,
) -> objects.Folded:
    """Drop the older history of a sleeping agent; see `podium.history.fold.fold_agent`.

    Args:
        keep_turns: the number of last turns to keep.
        keep_days: the age of history to keep. Without both, the present state only is kept.
        dry_run: write nothing.

    Raises:
        InvalidInput: a limit is not positive.
        UnknownAgent: there is none, or it never started.
        AgentInUse: forks read the events to be dropped.
        AgentAwake: it is awake.
    """
    retention: Retention | None = None
    if (keep_turns, keep_days) != (None, None):
        try:
            retention = Retention(keep_turns, keep_days)
        except ValueError as error:
            raise InvalidInput(str(error)) from error
    done = fold_agent(store, blobs, address, retention, ids, now_ms, dry_run=dry_run)
    later: objects.DroppedLater | None = None
    if done.later_mark is not None:
        assert retention is not None, "without retention everything was dropped"
        from_turn, from_ms = retention.expiry(done.later_mark)
        later = objects.DroppedLater(**_counts(done.later), from_turn=from_turn, from_ms=from_ms)
    return objects.Folded(
        agent=address.name,
        version=done.head.seq,
        turn=done.head.turn,
        marked=done.marked,
        dropped=objects.DroppedCounts(**_counts(done.dropped)),
        first_turn=done.first_turn,
        later=later,
    )


def erase(store: JournalStore, address: Address, event_ids: Sequence[str]) -> objects.Erased:
    """Erase the content of messages, replies, results and artifacts; the agent may be running.

    Args:
        event_ids: ids of events, or of artifacts.

    Raises:
        UnknownAgent: there is no such agent.
        EventNotFound: it has no event of one of the ids; nothing was erased.
        InvalidInput: one is an event that replay reads, or an inherited one; nothing was erased.
    """
    erased = erase_messages(store, address, [event_id_of(event) for event in event_ids])
    return objects.Erased(
        agent=address.name,
        erased=tuple(
            objects.ErasedEvent(
                event_id=event.event_id,
                type=event.type,
                turn=event.turn,
                had_blob=event.payload_ref is not None or event.type == ARTIFACT_ADDED,
            )
            for event in erased
        ),
    )


def check_events(store: JournalStore, address: Address, event_ids: Sequence[str]) -> None:
    """Check that events are an agent's, its own or inherited ones: those of others are as events that never were.

    Raises:
        UnknownAgent: there is no such agent.
        EventNotFound: one is not; the message tells nothing of it.
    """
    session = find_session(store, address)
    own = {branch.branch_id for branch in store.branches(session.session_id)}
    head = store.head(session.main_branch_id)
    inherited = dict(lineage(store, head.branch_id, head.seq))
    for event_id in map(event_id_of, event_ids):
        event = store.find_event(event_id)
        if event is None or (event.branch_id not in own and event.seq > inherited.get(event.branch_id, 0)):
            raise EventNotFound(f"{address} has no event {event_id}", str(address))


def _counts(dropped: Dropped) -> dict[str, int]:
    return {"events": dropped.events, "turns": dropped.turns, "bytes": dropped.size_bytes}
