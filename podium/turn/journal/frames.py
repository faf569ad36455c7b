"""The frames of a message, read back from the journal: for a reader that subscribes after the message was settled.

A client that lost its connection, or repeats an idempotency key, gets the last attempt in another form than a live
reader: each reply as one text, in the order in which they were begun, calls of tools where they ended, and no emitted
events. `coordinator.streams.position` continues a live stream with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from chronicle.journal.payloads import payload_of
from chronicle.journal.records import MessageStatus
from podium.artifacts.artifacts import artifact_frame
from podium.events import (
    ARTIFACT_ADDED,
    ASSISTANT_MESSAGE,
    MESSAGE_ANSWERED,
    TOOL_RESULT,
    TURN_CANCELLED,
    TURN_COMMITTED,
    TURN_FAILED,
    USER_MESSAGE,
)
from podium.history.step_record import args_hash_of, open_pause
from podium.turn.busy import BusyPolicy
from podium.turn.journal.commit import Cancellation
from podium.turn.stream import turn_start
from podium.turn.tool_frames import end_frame, start_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import Json
    from chronicle.ids import BranchId, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.records import Event, Head, InboxMessage
    from podium.history.step_record import PauseRecord
    from podium.turn.stream import Frame

__all__ = ["pause_frames", "retry_frames", "settled_frames"]

_WINDOW: Final = 1000
"""Events read at a time, backwards from the head: the message is nearly always a recent one."""
_SHOWN: Final = (ASSISTANT_MESSAGE, ARTIFACT_ADDED, TOOL_RESULT, MESSAGE_ANSWERED, TURN_COMMITTED)

_DROPPED: Final[Json] = {
    "type": "HistoryDropped",
    "message": "it was settled long ago, and the events that tell how were dropped since",
}
"""The error of a message whose events were folded away."""


def settled_frames(store: JournalStore, blobs: BlobReader, branch_id: BranchId, message_id: MessageId) -> list[Frame]:
    """Return the frames of a message if it is settled or paused, the terminal one last; none while it is pending.

    Args:
        blobs: where large payloads are.
        branch_id: the branch that handles it.

    Raises:
        NotFound: no such message, or its record was pruned.
    """
    message = store.message(message_id)
    if message.status is MessageStatus.PAUSED:
        step = next(iter(store.steps(message_id)[-1:]), None)
        pause = open_pause(step.body) if step is not None else None
        if step is None or pause is None:  # it is answered or dropped at this moment
            return []
        shown = pause_frames(step.key, pause, args_hash_of(step.body))
        return [{"message_id": message_id, **frame} for frame in shown]
    if not message.status.is_settled:
        return []
    head = store.head(branch_id)
    frames = _committed if message.status is MessageStatus.CONSUMED else _not_committed
    return [{"message_id": message_id, **frame} for frame in frames(store, blobs, head, message)]


def pause_frames(call_id: str, pause: PauseRecord, args_hash: str) -> list[Frame]:
    """Return the frames that end the stream of a message whose turn pauses at a step.

    Args:
        call_id: the key of the step.
        args_hash: of what is asked.
    """
    request: Frame = {"call_id": call_id, "reason": pause["reason"], "expires": pause["expires"]}
    end: Frame = {"type": "turn_paused", "kind": pause["kind"], **request}
    if pause["kind"] == "sleep":
        return [end]
    asked: Frame = {"type": "tool_decision_pending", **request, "schema": pause["schema"], "args_hash": args_hash}
    return [asked, end]


def retry_frames(store: EventRecords, blobs: BlobReader, head: Head, message: InboxMessage) -> list[Frame]:
    """Return a ``turn_retry`` frame for each failed attempt of a message that was or will be retried, in order."""
    found: list[Frame] = []
    end = head.seq if message.attempts else 0
    while end > 0 and (not found or found[-1]["attempt"] > 1):
        start = max(0, end - _WINDOW)
        for event in reversed(list(store.events(head.branch_id, start, end, (TURN_FAILED,)))):
            if event.correlation_id != message.message_id or event.erased:
                continue
            payload = _payload(event, blobs)
            if payload["parked"] or cast("int", payload["attempt"]) > message.attempts:
                continue  # the last attempt, or one from before the message was put back into the inbox
            attempt, error, hook = payload["attempt"], payload["error"], payload["hook"]
            found.append({"type": "turn_retry", "attempt": attempt, "error": error, "hook": hook})
            if payload["attempt"] == 1:
                break
        end = start
    return [{"message_id": message.message_id, **frame} for frame in reversed(found)]


def _committed(store: JournalStore, blobs: BlobReader, head: Head, message: InboxMessage) -> Iterator[Frame]:
    start = _last(store, head, (USER_MESSAGE,), message.message_id)
    if start is None:
        yield {"type": "error", "error": _DROPPED, "attempt": message.attempts, "parked": False}
        return
    result: Frame = {}
    said: list[Event] = []
    for event in store.events(head.branch_id, start.seq, head.seq, _SHOWN):
        if event.type == TURN_COMMITTED:  # under the id of another message, if this one steered its turn
            steered = event.correlation_id != message.message_id
            yield turn_start(event.turn, message.attempts + 1, start.event_id, steered=steered)
            yield from _said(said, blobs)
            state = cast("dict[str, Json]", _payload(event, blobs)["state"])
            yield {"type": "turn_end", "turn": event.turn, "version": event.seq, "patch": state["patch"], **result}
            return
        if event.correlation_id == message.message_id and not event.erased:
            if event.type == MESSAGE_ANSWERED:
                result = {"data": _payload(event, blobs)["data"]}
            else:
                said.append(event)


def _said(events: Sequence[Event], blobs: BlobReader) -> Iterator[Frame]:
    """Yield the frames of what was said and done; a reply is recorded where it ended, and shown where it was begun."""
    shown = [(event.type, _payload(event, blobs)) for event in events]
    replies = (payload for kind, payload in shown if kind == ASSISTANT_MESSAGE)
    begun = iter(sorted(replies, key=lambda payload: cast("int", payload["ordinal"])))
    for kind, payload in shown:
        if kind == ARTIFACT_ADDED:
            yield artifact_frame(payload)
        elif kind == TOOL_RESULT:
            yield start_frame(payload["call_id"], payload["name"], payload["arguments"])
            yield end_frame(payload)
        else:
            yield from _reply(next(begun))


def _reply(payload: dict[str, Json]) -> Iterator[Frame]:
    reply_id, text = payload["message_id"], payload["text"]
    yield {"type": "message_start", "reply_id": reply_id, "ordinal": payload["ordinal"]}
    if payload.get("partial"):
        yield {"type": "message_update", "reply_id": reply_id, "delta": text}
    else:
        yield {"type": "message_end", "reply_id": reply_id, "text": text}


def _not_committed(store: JournalStore, blobs: BlobReader, head: Head, message: InboxMessage) -> Iterator[Frame]:
    parked = message.status is MessageStatus.PARKED
    event = _last(store, head, (TURN_FAILED if parked else TURN_CANCELLED,), message.message_id)
    payload = _payload(event, blobs) if event is not None else {}
    if event is not None and payload.get("policy") == BusyPolicy.INTERRUPT:
        yield from _interrupted(store, blobs, head, message, event)
    if parked:
        error, hook = payload.get("error", _DROPPED), payload.get("hook")
        yield {"type": "error", "error": error, "hook": hook, "attempt": message.attempts, "parked": True}
    else:
        policy, by = (cast("str | None", payload.get(key)) for key in ("policy", "by"))
        error = cast(
            "Json",
            Cancellation(BusyPolicy(policy) if policy else None, by, given_up=bool(payload.get("given_up"))).error,
        )
        yield {"type": "error", "error": error, "attempt": message.attempts, "parked": False}


def _interrupted(
    store: JournalStore, blobs: BlobReader, head: Head, message: InboxMessage, cancelled: Event
) -> Iterator[Frame]:
    """Yield what an interrupted turn had said, if it had said anything."""
    start = _last(store, head, (USER_MESSAGE,), message.message_id)
    if start is None:
        return
    replies = store.events(head.branch_id, start.seq, cancelled.seq, (ASSISTANT_MESSAGE,))
    said = [event for event in replies if event.correlation_id == message.message_id and not event.erased]
    if said:
        yield turn_start(start.turn + 1, message.attempts + 1, start.event_id)
        yield from _said(said, blobs)


def _last(store: EventRecords, head: Head, types: Sequence[str], message_id: str) -> Event | None:
    """Return the last event of some types that belongs to a message."""
    end = head.seq
    while end > 0:
        start = max(0, end - _WINDOW)
        found = None
        for event in store.events(head.branch_id, start, end, types):
            if event.correlation_id == message_id:
                found = event
        if found is not None:
            return found
        end = start
    return None


def _payload(event: Event, blobs: BlobReader) -> dict[str, Json]:
    return cast("dict[str, Json]", payload_of(event, blobs))
