"""Streams: order, lateness, lag, and the end."""

from __future__ import annotations

import pytest

from chronicle.canonical import encode
from chronicle.ids import EventId
from podium.errors import AgentAsleep
from podium.turn import stream
from podium.turn.stream import MAX_EVENT_BYTES, Frame, StreamHub, Subscription, turn_start


def update(text: str, reply: str = "r") -> Frame:
    return {"type": "message_update", "reply_id": reply, "delta": text}


async def test_a_reader_that_lags_gets_merged_text() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        for text in ("a", "b", "c"):
            hub.publish("m", update(text))
        hub.publish("m", update("x", "other"))
        hub.publish("m", {"type": "turn_end"})
        batches = [batch async for batch in reader.batches()]
    assert [[frame.get("delta") for frame in batch] for batch in batches] == [["abc", "x", None]]


async def test_a_late_reader_gets_what_it_missed_once() -> None:
    hub = StreamHub()
    hub.publish("m", {"type": "turn_start"})
    hub.publish("m", update("a"))
    with hub.subscribe("m") as early, hub.subscribe("m") as reader:
        hub.publish("m", update("b"))
        hub.publish("m", {"type": "turn_end"})
        for subscription in (early, reader):
            frames = [frame async for batch in subscription.batches() for frame in batch]
            assert [frame["type"] for frame in frames] == ["turn_start", "message_update", "turn_end"]
            assert frames[1]["delta"] == "ab"
    with hub.subscribe("m") as too_late:
        assert too_late.take() == []


async def test_streams_are_apart() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        hub.publish("other", {"type": "turn_end"})
        hub.publish("m", {"type": "turn_end"})
        assert [frame["message_id"] for frame in reader.take()] == ["m"]


async def test_a_failure_comes_after_the_frames() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        hub.publish("m", update("a"))
        hub.fail_all(AgentAsleep("going"))
        batches = reader.batches()
        assert [frame["delta"] for frame in await anext(batches)] == ["a"]
        with pytest.raises(AgentAsleep):
            await anext(batches)


def test_many_small_pieces_cost_their_sum() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        for _ in range(200_000):  # joined as they came, minutes
            hub.publish("m", update("50 characters of text, that is a token, or several"))
        (frame,) = reader.take()
    assert len(frame["delta"]) == 200_000 * 50


def test_a_reader_that_lags_sees_one_end_although_the_message_was_put_back() -> None:
    hub = StreamHub()
    with hub.subscribe("msg_1") as reader:
        hub.publish("msg_1", {"type": "error", "parked": True})
        hub.publish("msg_1", {"type": "turn_start", "turn": 1})
        hub.publish("msg_1", {"type": "turn_end", "turn": 1})
        assert [frame["type"] for frame in reader.take()] == ["error"]


def event(ordinal: int, size: int = 0) -> Frame:
    return {"type": "event", "name": "at", "data": {"n": ordinal, "fill": "x" * size}}


def test_emitted_events_are_numbered_in_each_attempt() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader, hub.subscribe("other") as other:
        for frame in (turn_start(1, 1, EventId("evt_1")), event(1), event(2)):
            hub.publish("m", frame)
            hub.publish("other", frame)
        hub.publish("m", turn_start(1, 2, EventId("evt_2")))
        hub.publish("m", event(1))
        assert [frame.get("ordinal") for frame in reader.take()] == [None, 1, 2, None, 1]
        assert [frame.get("ordinal") for frame in other.take()] == [None, 1, 2]


def test_a_hub_that_passes_frames_on_keeps_their_numbers() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        hub.publish("m", {**event(7), "ordinal": 7, "size": 20})
        assert [frame["ordinal"] for frame in reader.take()] == [7]


def test_an_event_is_encoded_once_for_its_size_however_many_hubs_and_readers_pass_it_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[object] = []

    def counting(value: object) -> bytes:
        encoded.append(value)
        return encode(value)

    monkeypatch.setattr(stream, "encode", counting)
    host, service = StreamHub(), StreamHub()
    with host.subscribe("m") as delivery, service.subscribe("m") as one, service.subscribe("m") as other:
        host.publish("m", event(1, 10))
        for frame in delivery.take():
            service.publish("m", frame)
        assert one.take() == other.take() == service.so_far("m") == host.so_far("m")
    (frame,) = host.so_far("m")
    assert frame["size"] == len('at{"fill":"xxxxxxxxxx","n":1}')
    assert encoded == [frame["data"]]


def test_who_joins_late_gets_the_running_attempt_and_the_failures_before() -> None:
    hub = StreamHub()
    hub.publish("m", turn_start(1, 1, EventId("evt_1")))
    hub.publish("m", update("void"))
    hub.publish("m", {"type": "turn_retry", "attempt": 1})
    hub.publish("m", turn_start(1, 2, EventId("evt_2")))
    hub.publish("m", update("valid"))
    with hub.subscribe("m") as reader:
        frames = reader.take()
    assert [frame["type"] for frame in frames] == ["turn_retry", "turn_start", "message_update"]
    assert frames[2]["delta"] == "valid"


def test_the_latest_events_are_kept_up_to_a_limit() -> None:
    hub = StreamHub()
    size = 1000
    emitted = 5 * MAX_EVENT_BYTES // size
    hub.publish("m", turn_start(1, 1, EventId("evt_1")))
    for number in range(emitted):
        hub.publish("m", update("a"))
        hub.publish("m", event(number, size))
        hub.publish("m", update("b", "other"))
    with hub.subscribe("m") as late:
        frames = late.take()
    kept = [frame["ordinal"] for frame in frames if frame["type"] == "event"]
    assert kept == list(range(emitted - len(kept) + 1, emitted + 1)), "the oldest were dropped"
    assert MAX_EVENT_BYTES / 2 <= len(kept) * (size + len('{"fill":"","n":1}at')) <= MAX_EVENT_BYTES
    for reply, text in (("r", "a"), ("other", "b")):
        assert "".join(f["delta"] for f in frames if f.get("reply_id") == reply) == text * emitted, "no text was"
    assert len(frames) < 4 * len(kept), "text around dropped events is merged"


def test_an_event_over_the_limit_is_delivered_and_dropped_after_the_next() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        hub.publish("m", event(1, 2 * MAX_EVENT_BYTES))
        with hub.subscribe("m") as late:
            assert [frame["ordinal"] for frame in late.take()] == [1]
        assert [frame["ordinal"] for frame in reader.take()] == [1]
        hub.publish("m", event(2))
        with hub.subscribe("m") as late:
            assert [frame["ordinal"] for frame in late.take()] == [2]


def test_text_of_replies_written_in_turns_is_merged() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        for _ in range(1000):
            hub.publish("m", update("a", "one"))
            hub.publish("m", update("b", "two"))
        frames = reader.take()
    assert [(frame["reply_id"], frame["delta"]) for frame in frames] == [("one", "a" * 1000), ("two", "b" * 1000)]


def test_of_positions_in_the_queue_the_last_is_kept() -> None:
    hub = StreamHub()
    with hub.subscribe("m") as reader:
        for before in (3, 2, 1):
            hub.publish("m", {"type": "queued", "before": before})
        assert [frame["before"] for frame in reader.take()] == [1]


async def test_a_reader_that_asks_for_it_gets_an_empty_batch_after_each_interval() -> None:
    subscription = Subscription()
    batches = subscription.batches(0.001)
    assert [await anext(batches), await anext(batches)] == [[], []]
    subscription.push({"type": "turn_end"})
    assert [batch async for batch in batches if batch] == [[{"type": "turn_end"}]]
