"""Streams: order, lateness, lag, and the end."""

from __future__ import annotations

import pytest

from podium.errors import AgentAsleep
from podium.turn.stream import Frame, StreamHub


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
