"""An agent's history: its state at a turn, its events, and the differences between two turns."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from chronicle.journal.event_codec import event_view
from chronicle.workspace.trees.tree_diff import change_object, render
from coordinator.operations import objects
from coordinator.operations.cursors import cursor_after, place_after
from podium.agent_record import find_session, read_agent
from podium.history.compare import compare
from podium.history.transcript import visible_transcript
from podium.turn.upload import shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.trees.tree_diff import Change
    from podium.address import Address
    from podium.agent_record import AgentRecord
    from podium.history.compare import Comparison

__all__ = ["difference", "difference_object", "event_page", "state_object", "version"]


def version(store: JournalStore, address: Address) -> int:
    """Return the seq of an agent's last event.

    Raises:
        UnknownAgent: there is no such agent.
    """
    return store.head(find_session(store, address).main_branch_id).seq


def state_object(store: JournalStore, blobs: BlobReader, address: Address, turn: int | None = None) -> objects.State:
    """Return an agent's committed state at the end of a turn, the last one if ``None``.

    Raises:
        UnknownAgent: there is no such agent, or it never started.
        UnknownMoment: it has not committed that turn.
    """
    record = read_agent(store, blobs, address, turn)
    return objects.State(
        agent=record.address.name,
        turn=record.turn,
        version=record.version_seq,
        state=record.state,
    )


def event_page(
    store: JournalStore,
    blobs: BlobReader,
    address: Address,
    *,
    after_seq: int = 0,
    types: Sequence[str] = (),
    limit: int,
    cursor: str | None = None,
) -> objects.EventPage:
    """Return a page of an agent's events, oldest first, hidden ones included.

    Args:
        after_seq: only events after this seq; a cursor takes precedence.
        types: only events of these types; by default all.
        limit: the most items.

    Raises:
        UnknownAgent: there is no such agent.
        InvalidCursor: it is of another list.
    """
    of = [str(address), *sorted(types)]
    after_seq = place_after(cursor, "events", of, after_seq)
    head = store.head(find_session(store, address).main_branch_id)
    found = list(islice(store.events(head.branch_id, after_seq, head.seq, types or None), limit + 1))
    transcript = visible_transcript(store, blobs, address, head)
    return objects.EventPage(
        items=tuple(
            objects.Event(**event_view(event, blobs), visible=transcript.has(event.seq)) for event in found[:limit]
        ),
        next_cursor=cursor_after("events", of, found[limit - 1].seq) if len(found) > limit else None,
    )


def difference(
    store: JournalStore,
    blobs: BlobReader,
    address: Address,
    before: int | None = None,
    after: int | None = None,
    other: Address | None = None,
) -> objects.Difference:
    """Return the differences between two turns, ``None`` for the last one.

    Args:
        other: the agent that ``after`` is a turn of; the same one if ``None``.

    Raises:
        UnknownAgent: one of the agents does not exist or never started.
        UnknownMoment: one has not committed that turn.
    """
    return difference_object(compare(store, blobs, (address, before), (other or address, after)), blobs)


def difference_object(found: Comparison, blobs: BlobReader) -> objects.Difference:
    """Return a comparison as a JSON object."""
    text = b"".join(render(blobs, found.files))
    return objects.Difference(
        before=_side(found.before),
        after=_side(found.after),
        common_version=found.common_seq,
        state=tuple(found.patch),
        files=tuple(_change(change) for change in found.files),
        diff=text.decode("utf-8", "backslashreplace"),
        transcript=objects.TranscriptDifference(
            removed=tuple(event_view(event, blobs) for event in found.removed),
            added=tuple(event_view(event, blobs) for event in found.added),
        ),
    )


def _side(record: AgentRecord) -> objects.DifferenceSide:
    return objects.DifferenceSide(agent=record.address.name, turn=record.turn, version=record.version_seq)


def _change(change: Change) -> dict[str, str | int | bool | None]:
    """Return a changed path as a JSON object, its names as any JSON can hold them."""
    shown = change_object(change)
    return {key: shown_path(value) if isinstance(value, str) else value for key, value in shown.items()}
