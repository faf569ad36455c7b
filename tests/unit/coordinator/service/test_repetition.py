"""Frames that a host tells again: followers get each once, however the second telling merges and ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from coordinator.service.repetition import Told
from podium.turn.stream import Backlog

if TYPE_CHECKING:
    from podium.turn.stream import Frame

START: Frame = {"type": "turn_start", "turn": 1, "attempt": 1, "event_id": "ev_1"}
END: Frame = {"type": "turn_end", "turn": 1}


def attempt(replies: list[list[str]], events: int) -> list[Frame]:
    """An attempt as a host tells it live: replies piece by piece, and events between them."""
    frames = [START]
    for number, pieces in enumerate(replies):
        reply = {"reply_id": f"r{number}"}
        frames.append({"type": "message_start", **reply})
        frames += [{"type": "message_update", **reply, "delta": piece} for piece in pieces]
        frames.append({"type": "message_end", **reply, "text": "".join(pieces)})
        frames.append({"type": "artifact", "name": f"a{number}"})
    for number in range(1, events + 1):
        frames.insert(1 + number % len(frames), {"type": "event", "ordinal": 0, "size": 1, "name": "e", "data": None})
    ordinal = 0
    for frame in frames:
        if frame["type"] == "event":
            frame["ordinal"] = ordinal = ordinal + 1
    return frames


def merged(frames: list[Frame]) -> list[Frame]:
    backlog = Backlog()
    for frame in frames:
        backlog.add(frame)
    return backlog.frames()


def of_the_journal(replies: list[list[str]]) -> list[Frame]:
    """The same attempt when it was committed."""
    frames = [START]
    for number, pieces in enumerate(replies):
        frames.append({"type": "message_start", "reply_id": f"r{number}"})
        frames.append({"type": "message_end", "reply_id": f"r{number}", "text": "".join(pieces)})
        frames.append({"type": "artifact", "name": f"a{number}"})
    return [*frames, END]


REPLIES = st.lists(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4), max_size=3)


@given(replies=REPLIES, events=st.integers(0, 4), data=st.data())
def test_each_frame_comes_once_wherever_the_first_telling_broke_off(
    replies: list[list[str]], events: int, data: st.DataObject
) -> None:
    frames = attempt(replies, events)
    cut = data.draw(st.integers(0, len(frames)))
    told = Told()
    told.add(frames[:cut])
    later = data.draw(st.integers(cut, len(frames)))
    again = told.repetition().new([*merged(frames[:later]), *frames[later:], END])
    assert merged([*frames[:cut], *again]) == merged([*frames, END])


@given(replies=REPLIES, data=st.data())
def test_of_an_attempt_that_was_committed_meanwhile_the_rest_is_told(
    replies: list[list[str]], data: st.DataObject
) -> None:
    frames = attempt(replies, 0)
    cut = data.draw(st.integers(0, len(frames)))
    told = Told()
    told.add(frames[:cut])
    found = [*frames[:cut], *told.repetition().new(of_the_journal(replies))]
    assert [frame for frame in found if frame["type"] != "message_update"] == of_the_journal(replies)
    for number, pieces in enumerate(replies):
        begun = [each for each in found[:cut] if each.get("reply_id") == f"r{number}" and "delta" in each]
        said = [each["delta"] for each in found if each.get("reply_id") == f"r{number}" and "delta" in each]
        if begun:
            assert "".join(said) == "".join(pieces)


def test_another_attempt_is_left_as_it_is() -> None:
    told = Told()
    told.add([START, {"type": "message_start", "reply_id": "r0"}])
    other = [{**START, "event_id": "ev_2"}, {"type": "message_start", "reply_id": "r0"}, END]
    assert told.repetition().new(other) == other
    told.add([{"type": "turn_retry", "attempt": 1}])
    again = [START, {"type": "message_start", "reply_id": "r0"}]
    assert told.repetition().new(again) == again, "what was void is not had"
