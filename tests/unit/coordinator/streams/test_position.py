"""Positions: any cut of any stream continues, live or from the journal, without a gap or a repetition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from coordinator.streams.position import InvalidPosition, Position, Reading, outcome_of
from podium.turn.stream import Frame
from tests.unit.coordinator.streams.stories import MESSAGE, Reader, Story, merged, stories

FLUSHES = st.lists(st.booleans(), max_size=7)
OTHER = "msg_01HF7YAT00ZZZZZZZZZZZZZZZZ"


def test_a_stream_tells_a_position_with_each_frame() -> None:
    told = ids(STREAM)
    assert told == [
        None,
        f"{MESSAGE}/1-AAAAAAAA.0.0.0",
        f"{MESSAGE}/1-AAAAAAAA.1.0.0:1-0",
        f"{MESSAGE}/1-AAAAAAAA.1.0.0:1-2",
        f"{MESSAGE}/1-AAAAAAAA.1.0.7:1-2",
        f"{MESSAGE}/1-AAAAAAAA.2.0.7:1-2,2-0",
        f"{MESSAGE}/1-AAAAAAAA.2.0.7:2-0",
        f"{MESSAGE}/1-AAAAAAAA.2.1.7:2-0",
        f"{MESSAGE}/1.retry",
        f"{MESSAGE}/2-BBBBBBBB.0.0.0",
        f"{MESSAGE}/committed",
        f"{MESSAGE}/end",
    ]


STREAM: list[Frame] = [
    {"type": "agent_start", "agent": "a/b"},
    {"type": "turn_start", "attempt": 1, "event_id": "evt_AAAAAAAA"},
    {"type": "message_start", "reply_id": "r", "ordinal": 1},
    {"type": "message_update", "reply_id": "r", "delta": "a\U0001f600"},
    {"type": "event", "name": "e", "data": {}, "ordinal": 7},
    {"type": "message_start", "reply_id": "s", "ordinal": 2},
    {"type": "message_end", "reply_id": "r", "text": "a\U0001f600"},
    {"type": "artifact", "artifact_id": "art_1"},
    {"type": "turn_retry", "attempt": 1},
    {"type": "turn_start", "attempt": 2, "event_id": "evt_BBBBBBBB"},
    {"type": "turn_end"},
    {"type": "agent_end"},
]


def ids(frames: list[Frame]) -> list[str | None]:
    reading = Reading(Position.start(MESSAGE))
    return [position for frame in frames for _, position in reading.feed(frame)]


def test_the_text_of_a_position_is_read_back() -> None:
    for told in ids(STREAM):
        if told is not None:
            assert str(Position.parse(told, MESSAGE)) == told
    assert str(Position.start(MESSAGE)) == f"{MESSAGE}/0"
    assert Position.parse(f"{MESSAGE}/0", MESSAGE) == Position.start(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        MESSAGE,
        f"{MESSAGE}/",
        f"{MESSAGE}/1",
        f"{MESSAGE}/x",
        f"{MESSAGE}/END",
        f"{MESSAGE}/end ",
        f"{MESSAGE}/end\n",
        f"{MESSAGE}/0/0",
        f"{MESSAGE}/1.retry.2",
        f"{MESSAGE}/1-A.1.1",
        f"{MESSAGE}/1-A.1.1.1:",
        f"{MESSAGE}/1-A.1.1.1:1",
        f"{MESSAGE}/1-A.1.1.1:1-1,",
        f"{MESSAGE}/-1-A.1.1.1",
        f"{MESSAGE}/٣-A.1.1.1",
        f"{MESSAGE}/{'9' * 5000}-A.1.1.1",
        f"{OTHER}/0",
        f"{OTHER}/end",
    ],
)
def test_what_is_no_position_of_the_message_is_refused(text: str) -> None:
    with pytest.raises(InvalidPosition):
        Position.parse(text, MESSAGE)


@given(st.text(max_size=60))
def test_any_text_is_a_position_or_refused(text: str) -> None:
    for tail in (text, f"{MESSAGE}/{text}"):
        try:
            position = Position.parse(tail, MESSAGE)
        except InvalidPosition:
            continue
        assert Position.parse(str(position), MESSAGE) == position


@settings(max_examples=400)
@given(stories(), st.data())
def test_any_cut_of_any_stream_continues(story: Story, data: st.DataObject) -> None:
    """Cut several times, each time resumed by what a live backlog or the journal tells, in text merged at random."""
    note(repr(story))
    reader = Reader()
    position = str(Position.start(MESSAGE))
    whole = len(story.live)
    live = [str(Position.start(MESSAGE)), *ids(story.live)]  # a frame of the live stream changes one position
    published = 0
    events = True
    for _ in range(data.draw(st.integers(0, 4))):
        published = data.draw(st.integers(published, whole))
        from_journal = published >= whole - 1 and data.draw(st.booleans())
        events = events and not from_journal
        told = story.journal if from_journal else [*story.backlog(published), *story.live[published:]]
        flushed = merged(told, data.draw(FLUSHES))
        cut = data.draw(st.integers(0, len(flushed)))
        position = read(reader, position, flushed[:cut])
        # What was read was published; a position that the live stream does not have is of the journal's order.
        published = max(published, live.index(position)) if position in live else whole
    final = [*story.backlog(published), *story.live[published:]]
    if data.draw(st.booleans()):
        final, events = story.journal, False
    position = read(reader, position, final)
    reader.has_all_of(story, events=events)
    assert Position.parse(position, MESSAGE).is_end
    assert list(Position.parse(position, MESSAGE).rest(final)) == []


def read(reader: Reader, position: str, frames: list[Frame]) -> str:
    """Have a reader read frames from a position on; return its position then."""
    reading = Reading(Position.parse(position, MESSAGE))
    for frame in frames:
        for new, told in reading.feed(frame):
            reader.take(new)
            position = told or position
    return position


@settings(max_examples=200)
@given(stories(), st.data())
def test_the_position_does_not_depend_on_the_order(story: Story, data: st.DataObject) -> None:
    """A reader of merged text has, of each reply, as much as one who got each token had at some time."""
    flushed = merged(story.live, data.draw(FLUSHES))
    each = {part for told in ids(story.live) for part in parts(told)}
    assert [told for told in ids(flushed) if not parts(told) <= each] == []
    assert ids(flushed)[-1] == ids(story.live)[-1]


def parts(told: str | None) -> set[tuple[str, str]]:
    """The counts of a position, each with the attempt that it is of."""
    before, _, replies = (told or "").partition(":")
    attempt, *counts = before.split(".")
    return {(attempt, ".".join(counts)), *((attempt, reply) for reply in replies.split(",") if reply)}


def test_text_that_only_the_end_tells_is_told_before_it() -> None:
    position = Position.parse(f"{MESSAGE}/1-AAAAAAAA.2.0.0:1-1", MESSAGE)
    journal: list[Frame] = [
        {"type": "turn_start", "attempt": 1, "event_id": "evt_AAAAAAAA"},
        {"type": "message_start", "reply_id": "r", "ordinal": 1},
        {"type": "message_end", "reply_id": "r", "text": "\U0001f600two"},
        {"type": "message_start", "reply_id": "s", "ordinal": 2},
        {"type": "message_end", "reply_id": "s", "text": "had"},
        {"type": "message_start", "reply_id": "t", "ordinal": 3},
        {"type": "message_end", "reply_id": "t", "text": "new"},
    ]
    rest = [(frame["type"], frame.get("delta", frame.get("text"))) for frame in position.rest(journal)]
    assert rest == [
        ("message_update", "two"),
        ("message_end", "\U0001f600two"),
        ("message_start", None),
        ("message_update", "new"),
        ("message_end", "new"),
    ]


def test_a_waking_that_the_reader_knows_of_is_not_told_again() -> None:
    woken: Frame = {"type": "agent_start", "agent": "a/b"}
    first: Frame = {"type": "turn_start", "attempt": 1, "event_id": "evt_AAAAAAAA"}
    again: Frame = {"type": "turn_start", "attempt": 1, "event_id": "evt_BBBBBBBB"}
    position = Position.parse(f"{MESSAGE}/1-AAAAAAAA.0.0.0", MESSAGE)
    assert list(position.rest([woken, first])) == []
    assert list(position.rest([woken, first, woken, again])) == [woken, again]
    assert list(position.rest([woken, again])) == [woken, again]
    assert list(Position.start(MESSAGE).rest([woken])) == [woken]


@pytest.mark.parametrize(
    ("had", "attempt", "retries"),
    [
        ("1-AAAAAAAA.1.0.0:1-7", 2, [1]),
        ("1-AAAAAAAA.1.0.0:1-7", 3, [1, 2]),
        ("1.retry", 2, []),
        ("1.retry", 3, [2]),
        ("0", 2, []),
    ],
)
def test_a_later_attempt_is_told_after_the_failures_of_those_before_though_no_source_tells_them(
    had: str, attempt: int, retries: list[int]
) -> None:
    later: Frame = {"type": "turn_start", "attempt": attempt, "event_id": "evt_BBBBBBBB"}
    reading = Reading(Position.parse(f"{MESSAGE}/{had}", MESSAGE))
    told = reading.feed(later)
    assert [(frame["type"], frame["attempt"]) for frame, _ in told] == [
        *(("turn_retry", number) for number in retries),
        ("turn_start", attempt),
    ]
    assert [position for _, position in told] == [
        *(f"{MESSAGE}/{number}.retry" for number in retries),
        f"{MESSAGE}/{attempt}-BBBBBBBB.0.0.0",
    ]
    assert all(frame["error"]["type"] == "HostLost" for frame, _ in told[:-1])


def test_a_message_that_was_put_back_begins_anew_for_a_reader_of_its_earlier_attempts() -> None:
    old = Position.parse(f"{MESSAGE}/3-AAAAAAAA.1.0.0:1-7", MESSAGE)
    anew: list[Frame] = [
        {"type": "turn_start", "attempt": 1, "event_id": "evt_BBBBBBBB"},
        {"type": "message_start", "reply_id": "r", "ordinal": 1},
        {"type": "message_update", "reply_id": "r", "delta": "text"},
    ]
    assert list(old.rest(anew)) == anew


@pytest.mark.parametrize(
    ("frame", "outcome"),
    [
        ({"type": "turn_end"}, "committed"),
        ({"type": "error", "error": {"type": "ValueError"}, "parked": True}, "parked"),
        ({"type": "error", "error": {"type": "Cancelled"}, "parked": False}, "cancelled"),
        ({"type": "error", "error": {"type": "AgentLoadError"}}, "failed"),
    ],
)
def test_outcomes(frame: dict[str, Any], outcome: str) -> None:
    assert outcome_of(frame) == outcome
    position = Position.parse(f"{MESSAGE}/{outcome}", MESSAGE)
    assert position.outcome == outcome
    assert not position.is_end
    assert list(position.rest([*STREAM[:-1], frame, STREAM[-1]])) == [STREAM[-1]]
