"""Random streams of messages: what an agent may say in its attempts, and the forms in which a reader may get it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from coordinator.service.client import ServiceError
from podium.turn.stream import VOIDING_FRAMES, Backlog, Frame, Subscription, turn_start

MESSAGE = "msg_01HF7YAT0011C2DAFNMCSD6H1C"
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@dataclass
class Attempt:
    """One attempt: its frames, and the forms in which it is recorded."""

    number: int
    event_id: str
    frames: list[Frame] = field(default_factory=list)
    recorded: list[Frame] = field(default_factory=list)
    """Replies and artifacts in the order of the journal."""
    ending: str = "committed"

    @property
    def texts(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for frame in self.frames:
            if frame["type"] == "message_start":
                found[frame["reply_id"]] = ""
            elif frame["type"] == "message_update":
                found[frame["reply_id"]] += frame["delta"]
        return found


@dataclass(repr=False)
class Story:
    """A message's stream, from its first attempt to its end."""

    attempts: list[Attempt]
    terminal: Frame

    def __repr__(self) -> str:
        """Name the frames in short, for a failing example."""
        return " ".join(
            f"{frame['type']}:{str(frame.get('event_id', frame.get('reply_id', '')))[-5:]}{frame.get('delta', '')}"
            for frame in self.live
        )

    @property
    def live(self) -> list[Frame]:
        """All frames in the order in which the agent's process published them."""
        return [*(frame for attempt in self.attempts for frame in attempt.frames), *self.ends]

    @property
    def ends(self) -> list[Frame]:
        return [self.terminal, {"type": "agent_end", "message_id": MESSAGE, "agent": "a/b", "outcome": "x"}]

    @property
    def journal(self) -> list[Frame]:
        """The frames as they are read back after the end."""
        last = self.attempts[-1]
        retries = [frame for frame in self.live if frame["type"] == "turn_retry"]
        said: list[Frame] = []
        if last.ending == "committed" or (last.ending == "interrupted" and any(last.texts.values())):
            said = [last.frames[0], *last.recorded]
        return [*retries, *said, *self.ends]

    def backlog(self, published: int) -> list[Frame]:
        """What a reader gets first who subscribes after a number of frames."""
        so_far = Backlog()
        for frame in self.live[:published]:
            if frame["type"] in VOIDING_FRAMES:
                so_far.drop_attempts()
            so_far.add(frame)
        return so_far.frames()


class Reader:
    """A client: folds the frames that it gets, and checks that they make sense."""

    def __init__(self) -> None:
        self.attempts: dict[str, dict[str, str]] = {}
        """Of each attempt, by its event id, the text of each reply."""
        self.once: list[tuple[Any, ...]] = []
        """The frames that must come once."""
        self._current = ""
        self._attempt = 0
        self._ended: set[str] = set()

    def take(self, frame: Frame) -> None:
        match frame["type"]:
            case "turn_start":
                assert frame["event_id"] not in self.attempts, "an attempt began twice"
                if self._attempt:
                    missed = [("turn_retry", number) for number in range(self._attempt, frame["attempt"])]
                    assert set(missed) <= set(self.once), "an attempt that the reader saw was replaced without a word"
                self._attempt = frame["attempt"]
                self._current = frame["event_id"]
                self.attempts[self._current] = {}
                self._ended = set()
            case "message_start":
                assert frame["reply_id"] not in self.attempts[self._current], "a reply began twice"
                self.attempts[self._current][frame["reply_id"]] = ""
            case "message_update":
                assert frame["reply_id"] not in self._ended, "text after the end of its reply"
                assert frame["delta"], "an update without text"
                self.attempts[self._current][frame["reply_id"]] += frame["delta"]
            case "message_end":
                assert frame["reply_id"] not in self._ended, "a reply ended twice"
                self._ended.add(frame["reply_id"])
                assert self.attempts[self._current][frame["reply_id"]] == frame["text"]
            case "artifact":
                self.once.append(("artifact", self._current, frame["artifact_id"]))
            case "event":
                self.once.append(("event", self._current, frame["ordinal"]))
            case "turn_retry":
                self.once.append(("turn_retry", frame["attempt"]))
            case "turn_end" | "error" | "agent_end":
                self.once.append((frame["type"],))

    def has_all_of(self, story: Story, *, events: bool) -> None:
        """Check that a whole stream was read, whatever its cuts."""
        last = story.attempts[-1]
        if last.ending in {"committed", "interrupted"} and (last.event_id in self.attempts or any(last.texts.values())):
            texts = self.attempts[last.event_id]
            if last.ending == "interrupted":  # a reply without text is not recorded
                assert texts.items() <= last.texts.items()
                assert {text for text in last.texts.items() if text[1]} <= texts.items()
            else:
                assert texts == last.texts
        for attempt in story.attempts[:-1]:  # what is void need not be complete, but it is not wrong
            for reply_id, text in self.attempts.get(attempt.event_id, {}).items():
                assert attempt.texts[reply_id].startswith(text)
        assert len(set(self.once)) == len(self.once), "something came twice"
        wanted = Reader()
        for frame in story.live:
            wanted.take(frame)
        of_last = {each for each in wanted.once if each[0] not in {"artifact", "event"} or each[1] == last.event_id}
        if last.ending != "committed":
            of_last = {each for each in of_last if each[0] != "artifact"}
        if not events:
            of_last = {each for each in of_last if each[0] != "event"}
        assert of_last <= set(self.once) <= set(wanted.once)
        for kind in ("turn_retry", "artifact", "event"):
            of_kind = [each for each in self.once if each[0] == kind]
            assert of_kind == [each for each in wanted.once if each in of_kind], "out of order"
        assert [each[0] for each in self.once[-2:]] == [story.terminal["type"], "agent_end"]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Streams with interleaved replies, artifacts, events, failed and uncounted attempts, and all kinds of ends."""
    attempts = []
    number = 1
    for execution in range(draw(st.integers(1, 4))):
        attempt = Attempt(number, f"evt_01HF7YAT00{execution:016d}")
        attempts.append(attempt)
        _say(draw, attempt)
        attempt.ending = draw(
            st.sampled_from(["retried", "repeated", "committed", "parked", "cancelled", "interrupted"])
        )
        if attempt.ending == "retried":
            attempt.frames.append(_frame("turn_retry", attempt=number, error={"type": "E", "message": "m"}))
            number += 1
        elif attempt.ending != "repeated":  # its activation ended: it begins again, under its number
            break
    last = attempts[-1]
    if last.ending in {"retried", "repeated"}:
        if last.ending == "retried":
            last = Attempt(number, "evt_01HF7YAT00ZZZZZZZZZZZZZZZZ")
            attempts.append(last)
            _say(draw, last)
        last.ending = "committed"
    _finish(last)
    if last.ending == "committed":
        terminal = _frame("turn_end", turn=1, version=9, patch=[])
    else:
        kind = "ValueError" if last.ending == "parked" else "Cancelled"
        terminal = _frame("error", error={"type": kind, "message": "m"}, parked=last.ending == "parked")
    return Story(attempts, terminal)


def _say(draw: st.DrawFn, attempt: Attempt) -> None:
    start = turn_start(1, attempt.number, attempt.event_id)  # type: ignore[arg-type]
    attempt.frames.append({"message_id": MESSAGE, **start})
    begun = artifacts = events = 0
    open_replies: dict[str, int] = {}
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["begin", "text", "text", "text", "finish", "artifact", "event"]))
        if kind == "begin" and len(open_replies) < 3:
            begun += 1
            reply_id = f"rpl_{attempt.event_id[-4:]}{begun}"
            open_replies[reply_id] = begun
            attempt.frames.append(_frame("message_start", reply_id=reply_id, ordinal=begun))
        elif kind == "text" and open_replies:
            reply_id = draw(st.sampled_from(sorted(open_replies)))
            attempt.frames.append(_frame("message_update", reply_id=reply_id, delta=draw(TEXT)))
        elif kind == "finish" and open_replies:
            reply_id = draw(st.sampled_from(sorted(open_replies)))
            del open_replies[reply_id]
            _end(attempt, reply_id)
        elif kind == "artifact":
            artifacts += 1
            attempt.frames.append(_frame("artifact", artifact_id=f"art_{attempt.event_id[-4:]}{artifacts}", name="n"))
        elif kind == "event":
            events += 1
            attempt.frames.append(_frame("event", name="e", data={}, ordinal=events, size=3))


def _finish(last: Attempt) -> None:
    """End the open replies of a turn that is committed, and record what was said as the journal does."""
    starts = {frame["reply_id"]: frame for frame in last.frames if frame["type"] == "message_start"}
    ended = {frame["reply_id"]: frame for frame in last.frames if frame["type"] == "message_end"}
    for reply_id in starts:
        if last.ending == "committed" and reply_id not in ended:
            _end(last, reply_id)
            ended[reply_id] = last.frames[-1]
    slots = [frame for frame in last.frames if frame["type"] in {"message_end", "artifact"}]
    replies = iter(sorted(ended, key=lambda reply_id: int(starts[reply_id]["ordinal"])))
    for slot in slots:
        if slot["type"] == "artifact":
            if last.ending == "committed":
                last.recorded.append(slot)
        elif last.ending == "committed":
            reply_id = next(replies)
            last.recorded += [starts[reply_id], ended[reply_id]]
    if last.ending == "interrupted":
        for reply_id, text in last.texts.items():
            if reply_id in ended:
                last.recorded += [starts[reply_id], ended[reply_id]]
            elif text:
                last.recorded += [starts[reply_id], _frame("message_update", reply_id=reply_id, delta=text)]


def _end(attempt: Attempt, reply_id: str) -> None:
    attempt.frames.append(_frame("message_end", reply_id=reply_id, text=attempt.texts[reply_id]))


def _frame(kind: str, **keys: Any) -> Frame:
    return {"message_id": MESSAGE, "type": kind, **keys}


def merged(frames: Iterable[Frame], flushes: Sequence[bool]) -> list[Frame]:
    """Return frames as a slow reader gets them: text is merged between its reads.

    Args:
        flushes: whether the reader reads before a frame; without an end, it is used again.
    """
    found: list[Frame] = []
    pending = Backlog()
    for number, frame in enumerate(frames):
        if flushes and flushes[number % len(flushes)]:
            found += pending.frames()
            pending = Backlog()
        pending.add(frame)
    return [*found, *pending.frames()]


class StoryService:
    """A service that tells a story, as far as it has happened; after its end from the journal."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._told = 0
        self._followers: set[Subscription] = set()
        self.follows = 0
        self.up = True

    @property
    def following(self) -> int:
        return len(self._followers)

    @property
    def _frames(self) -> list[Frame]:
        return self._story.live[:-1]  # agent_end is not the service's

    @property
    def is_over(self) -> bool:
        return self._told == len(self._frames)

    def tell(self, frames: int = 1) -> None:
        """Have frames happen."""
        for frame in self._frames[self._told : self._told + frames]:
            self._told += 1
            for follower in self._followers:
                follower.push(frame)

    def lose(self) -> None:
        """Break all connections."""
        for follower in self._followers:
            follower.fail(ServiceError("the connection broke"))

    async def connect(self) -> StoryService:
        if not self.up:
            raise ServiceError("no service runs")
        return self

    async def follow(self, agent: str, message_id: str) -> AsyncGenerator[Frame, None]:
        self.follows += 1
        if self.is_over:
            for frame in self._story.journal[:-1]:
                yield frame
            return
        follower = Subscription(self._story.backlog(self._told))
        self._followers.add(follower)
        try:
            async for batch in follower.batches():
                for frame in batch:
                    yield frame
        finally:
            self._followers.discard(follower)
