"""An agent's history: its state at a turn, its events, and the differences between two turns."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from chronicle.canonical import encode
from chronicle.journal.event_codec import event_view
from chronicle.journal.payloads import payload_of
from chronicle.workspace.trees.tree import EMPTY
from chronicle.workspace.trees.tree_diff import change_object, changes, render
from coordinator.operations import objects
from coordinator.operations.cursors import cursor_after, place_after
from podium.agent_record import find_session, read_agent, retry_if_folded, tree_of
from podium.events import (
    AGENT_FORKED,
    AGENT_SNAPSHOT,
    FULL_STATE_EVENTS,
    STATE_EVENTS,
    TURN_CANCELLED,
    TURN_FAILED,
    TURN_PAUSED,
)
from podium.history.compare import compare
from podium.history.model_calls import calls_of_turn
from podium.history.transcript import visible_transcript
from podium.turn.upload import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event
    from chronicle.workspace.trees.tree_diff import Change
    from podium.address import Address
    from podium.agent_record import AgentRecord
    from podium.history.compare import Comparison
    from podium.history.model_calls import RecordedCall

__all__ = [
    "change_of_path",
    "context_object",
    "difference",
    "difference_object",
    "event_page",
    "state_object",
    "turn_page",
    "version",
]


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


def context_object(
    store: JournalStore, blobs: BlobReader, address: Address, turn: int | None = None
) -> objects.ModelContext:
    """Return the calls of models of a turn, of the last one with any if ``None``.

    Raises:
        UnknownAgent: there is no such agent, or it never started.
        UnknownMoment: it has not committed that turn.
        Corrupt: an event is damaged.
    """
    found = calls_of_turn(store, blobs, address, turn)
    return objects.ModelContext(
        agent=address.name,
        turn=found[0].event.turn if turn is None and found else turn,
        calls=tuple(_context_call(call) for call in found),
    )


def _context_call(call: RecordedCall) -> objects.ContextCall:
    event, payload = call.event, call.payload
    return objects.ContextCall(
        event_id=event.event_id,
        seq=event.seq,
        message_id=event.correlation_id,
        ended_at=event.ts,
        profile=payload["profile"],
        status=payload["status"],
        messages=tuple(call.messages),
        tools=None if call.tools is None else tuple(call.tools),
        temperature=payload.get("temperature"),
        max_output_tokens=payload.get("max_output_tokens"),
        answer=cast("dict[str, Any]", payload["answer"]),
        error=payload.get("error"),
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


def turn_page(
    store: JournalStore, blobs: BlobReader, address: Address, *, limit: int = 100, cursor: str | None = None
) -> objects.Page[objects.Turn]:
    """Return a page of an agent's committed turns, oldest first, inherited ones included.

    Raises:
        UnknownAgent: there is no such agent.
        InvalidCursor: it is of another list.
    """
    of = [str(address)]
    after = place_after(cursor, "turns", of, 0)
    session = find_session(store, address)

    def read() -> objects.Page[objects.Turn]:
        head = store.head(session.main_branch_id)
        # The event that the cursor names is read again: it has the files before the first turn of the page.
        events = store.events(head.branch_id, max(after - 1, 0), head.seq)
        page = list(islice(_turns(events, after, blobs), limit))
        more = page and page[-1].turn < head.turn
        return objects.Page(
            items=page,
            next_cursor=cursor_after("turns", of, page[-1].seq) if more else None,
            remaining=head.turn - page[-1].turn if more else 0,
        )

    return retry_if_folded(store, session.main_branch_id, read)


def _turns(events: Iterable[Event], after_seq: int, blobs: BlobReader) -> Iterator[objects.Turn]:
    """Yield the turns that end after a seq."""
    began_ms: int | None = None
    tree_id = EMPTY
    for event in events:
        if event.type in {AGENT_FORKED, TURN_FAILED, TURN_CANCELLED, TURN_PAUSED}:
            began_ms = None
        elif event.type not in STATE_EVENTS:
            began_ms = event.ts if began_ms is None else began_ms
        else:
            payload = cast("dict[str, Any]", payload_of(event, blobs))
            tree = tree_of(payload)
            before, tree_id = tree_id, tree.tree_id if tree is not None else EMPTY
            if event.type != AGENT_SNAPSHOT and event.seq > after_seq:
                state = payload["state"] if event.type in FULL_STATE_EVENTS else payload["state"]["patch"]
                yield objects.Turn(
                    turn=event.turn,
                    seq=event.seq,
                    cause=payload.get("cause", event.type.removeprefix("agent.")),
                    message_id=event.correlation_id,
                    began_at=event.ts if began_ms is None else began_ms,
                    ended_at=event.ts,
                    patch_bytes=len(encode(state)),
                    files_changed=len(changes(blobs, before, tree_id)),
                    steps=tuple(payload.get("steps", {"steps": ()})["steps"]),
                )
            began_ms = None


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
        files=tuple(change_of_path(change) for change in found.files),
        diff=text.decode("utf-8", "backslashreplace"),
        transcript=objects.TranscriptDifference(
            removed=tuple(event_view(event, blobs) for event in found.removed),
            added=tuple(event_view(event, blobs) for event in found.added),
        ),
    )


def _side(record: AgentRecord) -> objects.DifferenceSide:
    return objects.DifferenceSide(agent=record.address.name, turn=record.turn, version=record.version_seq)


def change_of_path(change: Change) -> dict[str, str | int | bool | None]:
    """Return a changed path as a JSON object, its names as any JSON can hold them."""
    shown = change_object(change)
    return {key: shown_path(value) if isinstance(value, str) else value for key, value in shown.items()}
