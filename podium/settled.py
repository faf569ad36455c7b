"""The frames of a message that was settled before its reader came: read back from the journal.

A client that lost its connection, or repeats an idempotency key, gets the same end that it would have seen live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from chronicle.journal.payloads import payload_of
from chronicle.journal.records import MessageStatus
from podium.events import ASSISTANT_MESSAGE, TURN_CANCELLED, TURN_COMMITTED, TURN_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.store import BlobReader
    from chronicle.canonical import Json
    from chronicle.journal.records import Event, Head, InboxMessage
    from chronicle.journal.store import JournalStore
    from podium.stream import Frame

__all__ = ["settled_frames"]

_TYPES: Final = (ASSISTANT_MESSAGE, TURN_COMMITTED, TURN_FAILED, TURN_CANCELLED)
_WINDOW: Final = 1000
"""Events read at a time, going back from the head: what is asked for is nearly always recent."""


def settled_frames(store: JournalStore, blobs: BlobReader, head: Head, message: InboxMessage) -> list[Frame]:
    """Return the frames of a settled message, the terminal one last.

    Args:
        blobs: where large payloads are.
        head: of the branch that handled it.
    """
    events = _events_of(store, head, message.message_id)
    if message.status is MessageStatus.CONSUMED:
        return [{"message_id": message.message_id, **frame} for event in events for frame in _committed(event, blobs)]
    error: Json = {"type": "Cancelled", "message": "its sender took it back"}
    parked = message.status is MessageStatus.PARKED
    for event in events:
        if parked and event.type == TURN_FAILED:  # tries of a cancelled one may have failed before
            error = _payload(event, blobs)["error"]
    return [
        {
            "message_id": message.message_id,
            "type": "error",
            "error": error,
            "attempt": message.attempts,
            "parked": parked,
        }
    ]


def _committed(event: Event, blobs: BlobReader) -> Iterator[Frame]:
    payload = _payload(event, blobs)
    if event.type == ASSISTANT_MESSAGE:
        reply_id, text = payload["message_id"], payload["text"]
        yield {"type": "message_start", "reply_id": reply_id}
        yield {"type": "message_end", "reply_id": reply_id, "text": text}
    elif event.type == TURN_COMMITTED:
        state = cast("dict[str, Json]", payload["state"])
        yield {"type": "turn_end", "turn": event.turn, "version": event.seq, "patch": state["patch"]}


def _events_of(store: JournalStore, head: Head, message_id: str) -> list[Event]:
    """Return the events of the turn that settled a message, in order."""
    end = head.seq
    while end > 0:
        start = max(0, end - _WINDOW)
        found = [
            event
            for event in store.events(head.branch_id, after_seq=start, to_seq=end, types=_TYPES)
            if event.correlation_id == message_id
        ]
        if any(event.type != ASSISTANT_MESSAGE for event in found):
            whole = store.events(head.branch_id, after_seq=max(0, start - _WINDOW), to_seq=end, types=_TYPES)
            return [event for event in whole if event.correlation_id == message_id]
        end = start
    return []


def _payload(event: Event, blobs: BlobReader) -> dict[str, Json]:
    return cast("dict[str, Json]", payload_of(event, blobs))
