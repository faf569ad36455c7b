"""Streams to many readers: one subscription, shared bytes, slow readers, lost services, resumption elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.service.client import ServiceError, ServiceRefused
from coordinator.streams.message_streams import MessageReader, MessageStreams, StreamedFrame
from coordinator.streams.position import Position
from podium.address import Address
from podium.testing.simulation.virtual_time import VirtualLoop
from podium.turn.stream import Frame
from tests.unit.coordinator.streams.stories import MESSAGE, Attempt, Reader, Story, StoryService, stories
from tests.waiting import until

AGENT = Address("type", "key", "tenant")


def frame(kind: str, **keys: Any) -> Frame:
    return {"message_id": MESSAGE, "type": kind, **keys}


START = frame("turn_start", turn=5, attempt=1, event_id="evt_01HF7YAT0000000000AAAAAAAA")
END = frame("turn_end", turn=5, version=9, patch=[])


def told(*frames: Frame, end: Frame = END) -> Story:
    """A story of one attempt."""
    attempt = Attempt(1, START["event_id"], [START, *frames])
    attempt.recorded = [each for each in frames if each["type"] in {"message_start", "message_end", "artifact"}]
    return Story([attempt], end)


def reply(*texts: str) -> list[Frame]:
    start = frame("message_start", reply_id="rpl_1", ordinal=1)
    updates = [frame("message_update", reply_id="rpl_1", delta=text) for text in texts]
    return [start, *updates, frame("message_end", reply_id="rpl_1", text="".join(texts))]


async def rest_of(reader: MessageReader) -> list[Frame]:
    found: list[StreamedFrame] = []
    while batch := await reader.next():
        found += batch
    return [each.frame for each in found]


def kinds(frames: list[Frame]) -> list[str]:
    return [each["type"] for each in frames]


async def test_readers_share_one_subscription_and_its_bytes() -> None:
    service = StoryService(told(*reply("a", "b")))
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as one, streams.open(AGENT, MESSAGE) as two:
            await until(lambda: service.following == 1)
            seen: list[list[StreamedFrame]] = [[], []]
            while not service.is_over:
                service.tell()
                for reader, frames in zip((one, two), seen, strict=True):
                    frames.extend(await reader.next())
            for reader, frames in zip((one, two), seen, strict=True):
                while batch := await reader.next():
                    frames.extend(batch)
                assert reader.is_complete
    assert service.follows == 1
    assert all(mine is its for mine, its in zip(*(each[2:] for each in seen), strict=True)), "encoded once"
    assert kinds([each.frame for each in seen[0]]) == [
        "agent_start",
        "turn_start",
        "message_start",
        "message_update",
        "message_update",
        "message_end",
        "turn_end",
        "agent_end",
    ]
    for position, event, data in ((each.position, each.event, each.frame) for each in seen[0]):
        head = f"id: {position}\n" if position else ""
        assert event.startswith(f"{head}data: ".encode())
        assert event.endswith(b"\n\n")
        assert event.count(b"\n") == (3 if position else 2), "one line of data"
        assert json.loads(event[len(head) + len("data: ") :]) == data


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (END, "committed"),
        (frame("error", error={"type": "ValueError", "message": "m"}, parked=True), "parked"),
        (frame("error", error={"type": "Cancelled", "message": "m"}, parked=False), "cancelled"),
        (frame("error", error={"type": "HistoryDropped", "message": "m"}, parked=False), "failed"),
    ],
)
async def test_each_stream_has_a_begin_and_an_end_of_the_agent(end: Frame, outcome: str) -> None:
    service = StoryService(told(end=end))
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(9)
            frames = await rest_of(reader)
    assert frames == [
        frame("agent_start", agent="type/key", turn=4),
        START,
        end,
        frame("agent_end", agent="type/key", outcome=outcome),
    ]


async def test_a_waking_is_told_once() -> None:
    woken = frame(
        "agent_start", agent="tenant:type/key", turn=4, code={"source": "f:C", "file": "/srv/f", "stamp": "s"}
    )
    story = told(*reply("a"))
    story.attempts[0].frames.insert(0, woken)
    service = StoryService(story)
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE, accepted=frame("accepted", position=3, before=0)) as reader:
            await until(lambda: service.following)
            service.tell(99)
            frames = await rest_of(reader)
    assert kinds(frames[:3]) == ["accepted", "agent_start", "turn_start"]
    told_of = {"source": "f:C", "stamp": "s"}
    assert frames[1] == {**woken, "agent": "type/key", "code": told_of}, "neither the tenant nor a path is named"
    assert kinds(frames).count("agent_start") == 1


@pytest.mark.parametrize("settled_meanwhile", [False, True])
async def test_a_lost_service_is_followed_again_without_a_gap(*, settled_meanwhile: bool) -> None:
    service = StoryService(told(*reply("one ", "two ", "three")))
    client = Reader()
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(3)
            for streamed in await reader.next():
                client.take(streamed.frame)
            service.up = False
            service.lose()
            await until(lambda: not service.following)
            service.tell(99 if settled_meanwhile else 1)
            service.up = True
            await until(lambda: service.following or service.is_over)
            service.tell(99)
            for rest in await rest_of(reader):
                client.take(rest)
    assert list(client.attempts.values()) == [{"rpl_1": "one two three"}]
    assert client.once == [("turn_end",), ("agent_end",)]


async def test_a_service_that_does_not_come_back_ends_the_streams_to_be_resumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = StoryService(told(*reply("one ", "two")))
    async with MessageStreams(service.connect, lost_s=0.6) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(3)
            service.up = False
            service.lose()
            assert kinds(await rest_of(reader))[-1] == "message_update"
            assert not reader.is_complete
            position = reader.position
        assert "message_not_followed" in caplog.text
        service.up = True
        service.tell(99)
        with streams.open(AGENT, MESSAGE, Position.parse(position, MESSAGE)) as reader:
            assert [(each["type"], each.get("delta")) for each in await rest_of(reader)][:1] == [
                ("message_update", "two")
            ]


async def test_a_reader_that_does_not_read_costs_a_position_and_gets_merged_text() -> None:
    token = "ten chars "
    count = 50_000
    service = StoryService(told(*reply(*[token] * count)))
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as slow, streams.open(AGENT, MESSAGE) as fast:
            await until(lambda: service.following)
            read: list[Frame] = []
            for _ in range(count // 100):
                service.tell(100)
                read += [each.frame for each in await fast.next()]
                assert slow._pending_bytes <= 64 * 1024
            assert slow._pending == [], "its position is all there is"
            first = await slow.next()
            assert len(b"".join(each.event for each in first)) < 20 * len(token) * count
            assert kinds([each.frame for each in first]) == [
                "agent_start",
                "turn_start",
                "message_start",
                "message_update",
            ]
            service.tell(99)
            frames = [*(each.frame for each in first), *await rest_of(slow)]
            read += await rest_of(fast)
    for got in (frames, read):
        assert "".join(each["delta"] for each in got if each["type"] == "message_update") == token * count
        assert kinds(got)[-2:] == ["turn_end", "agent_end"]
    assert len(frames) < 20, "text was merged"


async def test_a_slow_reader_catches_up_in_parts() -> None:
    texts = [f"{n}" * 50_000 for n in range(8)]
    service = StoryService(told(*(each for n, text in enumerate(texts, 1) for each in _numbered(n, text))))
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(999)
            await until(lambda: not service.following)
            sizes = []
            while batch := await reader.next():
                sizes.append(sum(len(each.event) for each in batch))
    assert len(sizes) > 5
    assert max(sizes) < 250_000


def _numbered(number: int, text: str) -> list[Frame]:
    return [
        frame("message_start", reply_id=f"rpl_{number}", ordinal=number),
        frame("message_update", reply_id=f"rpl_{number}", delta=text),
        frame("message_end", reply_id=f"rpl_{number}", text=text),
    ]


async def test_what_is_missing_after_the_terminal_frame_needs_no_service() -> None:
    service = StoryService(told())
    service.up = False
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE, Position.parse(f"{MESSAGE}/parked", MESSAGE)) as reader:
            assert await rest_of(reader) == [frame("agent_end", agent="type/key", outcome="parked")]
            assert reader.is_complete
        with streams.open(AGENT, MESSAGE, Position.parse(f"{MESSAGE}/end", MESSAGE)) as reader:
            assert await rest_of(reader) == []
            assert reader.is_complete
    assert service.follows == 0


class Refusing:
    """A service that refuses to follow, or has a bug."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def connect(self) -> Refusing:
        return self

    async def follow(self, agent: str, message_id: str) -> AsyncGenerator[Frame, None]:
        if agent:
            raise self._error
        yield {}


@pytest.mark.parametrize(("kind", "pending"), [("AgentLoadError", {"pending": True}), ("UnknownAgent", {})])
async def test_a_refusal_ends_the_stream_with_an_error(kind: str, pending: dict[str, bool]) -> None:
    service = Refusing(ServiceRefused(kind, "it is gone"))
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            error, end = await rest_of(reader)
            assert reader.is_complete
    assert error == frame("error", error={"type": kind, "message": "it is gone"}, parked=False, **pending)
    assert end["outcome"] == "failed"


async def test_a_bug_ends_its_stream_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    broken = Refusing(ZeroDivisionError("a bug"))
    good = StoryService(told())
    services: list[Any] = [broken, good]

    async def connect() -> Any:
        return services.pop(0)

    async with MessageStreams(connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            assert await rest_of(reader) == []
            assert not reader.is_complete
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: good.following)
            good.tell(9)
            assert kinds(await rest_of(reader))[-1] == "agent_end"
    assert "ZeroDivisionError" in caplog.text


async def test_a_message_that_nobody_reads_is_followed_for_a_while() -> None:
    service = StoryService(told(*reply("a", "b")))
    async with MessageStreams(service.connect, unread_s=0.2) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(3)
            await reader.next()
        assert service.following == 1
        with streams.open(AGENT, MESSAGE, Position.parse(reader.position, MESSAGE)) as reader:
            assert service.follows == 1, "it was not followed anew"
            service.tell(1)
            assert kinds([each.frame for each in await reader.next()]) == ["message_update"]
        await until(lambda: not service.following)
        with streams.open(AGENT, MESSAGE, Position.parse(reader.position, MESSAGE)) as reader:
            await until(lambda: service.follows == 2)
            service.tell(99)
            assert kinds(await rest_of(reader)) == ["message_end", "turn_end", "agent_end"]


async def test_streams_that_are_closed_are_resumed_at_another_process() -> None:
    service = StoryService(told(*reply("one ", "two")))
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(3)
            first = await reader.next()
            streams.close()
            assert await reader.next() == []
            with streams.open(AGENT, MESSAGE) as late:
                assert await late.next() == []
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE, Position.parse(reader.position, MESSAGE)) as resumed:
            await until(lambda: service.following)
            service.tell(99)
            rest = await rest_of(resumed)
    frames = [*(each.frame for each in first), *rest]
    assert "".join(each["delta"] for each in frames if each["type"] == "message_update") == "one two"
    assert kinds(frames).count("message_start") == 1


async def test_readers_that_are_cut_off_end_at_once() -> None:
    service = StoryService(told(*reply("a")))
    async with MessageStreams(service.connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(3)
            reader.cut_off()
            assert await reader.next() == []


async def test_a_gateway_that_has_lost_the_service_does_not_tell_a_void_attempt_again() -> None:
    again = Attempt(2, "evt_01HF7YAT0000000000BBBBBBBB")
    again.frames = [{**START, "attempt": 2, "event_id": again.event_id}]
    failed = Attempt(1, START["event_id"], [START, frame("turn_retry", attempt=1, error={"type": "E", "message": "m"})])
    service = StoryService(Story([failed, again], END))
    async with MessageStreams(service.connect) as one, MessageStreams(service.connect) as two:
        service.tell(1)
        with two.open(AGENT, MESSAGE) as reader:
            assert kinds([each.frame for each in await reader.next()]) == ["agent_start", "turn_start"]
        service.lose()
        await until(lambda: not service.following)
        service.tell(2)
        with one.open(AGENT, MESSAGE, Position.parse(reader.position, MESSAGE)) as reader:
            assert kinds([each.frame for each in await reader.next()]) == ["turn_retry", "agent_start", "turn_start"]
        with two.open(AGENT, MESSAGE, Position.parse(reader.position, MESSAGE)) as reader:
            assert reader.take() == []
            await until(lambda: service.following == 2)
            service.tell()
            assert kinds(await rest_of(reader)) == ["turn_end", "agent_end"]


@settings(max_examples=150)
@given(stories(), st.data())
def test_any_schedule_of_readers_losses_and_processes(story: Story, data: st.DataObject) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:  # the pauses after losses take no time
        runner.run(_any_schedule(story, data))


async def _any_schedule(story: Story, data: st.DataObject) -> None:
    """Readers read or not, leave and resume at one of two processes; connections break; the story goes on."""
    service = StoryService(story)
    async with MessageStreams(service.connect) as one, MessageStreams(service.connect) as two:
        with ExitStack() as stack:
            clients = [Client(stack.enter_context(ExitStack())) for _ in range(3)]
            for _ in range(data.draw(st.integers(3, 25))):
                client = data.draw(st.sampled_from(clients))
                match data.draw(st.sampled_from(["tell", "tell", "read", "leave", "lose"])):
                    case "tell":
                        service.tell(data.draw(st.integers(1, 5)))
                    case "lose":
                        service.lose()
                    case "leave":
                        client.leave()
                    case "read":
                        client.come(data.draw(st.sampled_from([one, two])))
                        for _ in range(3):  # the tasks of the streams get on
                            await asyncio.sleep(0)
                        client.read()
                await asyncio.sleep(0)
            service.tell(999)
            for client in clients:
                while not Position.parse(client.position, MESSAGE).is_end:
                    client.leave()
                    for each in await rest_of(client.come(one)):
                        client.got.take(each)
                    assert client.reader is not None
                    client.position = client.reader.position
                client.got.has_all_of(story, events=False)


class Client:
    """One that reads in steps."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.reader: MessageReader | None = None
        self.position = str(Position.start(MESSAGE))
        self.got = Reader()

    def come(self, streams: MessageStreams) -> MessageReader:
        if self.reader is None:
            opening = streams.open(AGENT, MESSAGE, Position.parse(self.position, MESSAGE))
            self.reader = self._stack.enter_context(opening)
        return self.reader

    def leave(self) -> None:
        self._stack.close()
        self.reader = None

    def read(self) -> None:
        """Take what is there, without waiting."""
        assert self.reader is not None
        for streamed in self.reader.take():
            self.got.take(streamed.frame)
        self.position = self.reader.position


async def test_a_connection_that_cannot_be_made_is_tried_again() -> None:
    service = StoryService(told())
    failures = 2

    async def connect() -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ServiceError("not yet")
        return service

    async with MessageStreams(connect) as streams:
        with streams.open(AGENT, MESSAGE) as reader:
            await until(lambda: service.following)
            service.tell(9)
            assert kinds(await rest_of(reader))[-1] == "agent_end"
