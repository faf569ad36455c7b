"""The response of a stream, as an ASGI server sees it: silence, clients that stall, clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from coordinator.gateway.event_stream import EventStreamResponse
from coordinator.streams.sse import KEEP_ALIVE, OPENING
from tests.waiting import until


class Event(NamedTuple):
    event: bytes


class Source:
    """A reader of a stream that a test feeds."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[list[Event]] = asyncio.Queue()
        self.is_complete = False
        self.is_open = False
        self.was_cut_off = False

    @contextmanager
    def open(self) -> Iterator[Source]:
        self.is_open = True
        yield self
        self.is_open = False

    async def next(self) -> list[Event]:
        return await self._events.get()

    def say(self, *events: bytes) -> None:
        self._events.put_nowait([Event(each) for each in events])

    def cut_off(self) -> None:
        self.was_cut_off = True
        self.say()


class Connection:
    """A client, as ASGI shows it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.takes.wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def answer(self, response: EventStreamResponse) -> None:
        await response({"type": "http"}, self.receive, self.send)


async def test_events_that_wait_are_sent_at_once() -> None:
    source, client = Source(), Connection()
    source.say(b"data: 1\n\n")
    source.say(b"data: 2\n\n", b"data: 3\n\n")
    source.say()
    await client.answer(EventStreamResponse(source.open()))
    start, *bodies = client.sent
    headers = dict(start["headers"])
    assert start["status"] == 200
    assert headers[b"content-type"].startswith(b"text/event-stream")  # S4.15
    assert b"no-cache" in headers[b"cache-control"]
    assert b"content-length" not in headers
    assert [each["body"] for each in bodies] == [OPENING, b"data: 1\n\n", b"data: 2\n\ndata: 3\n\n", b""]
    assert [each["more_body"] for each in bodies] == [True, True, True, False]
    assert not source.is_open


async def test_a_silent_stream_is_kept_alive() -> None:
    source, client = Source(), Connection()
    answering = asyncio.create_task(client.answer(EventStreamResponse(source.open(), look_s=0.01)))
    await until(lambda: client.body.count(KEEP_ALIVE) >= 2)
    source.say(b"data: 1\n\n")
    source.say()
    await answering
    assert client.body.endswith(b"data: 1\n\n")


async def test_a_client_that_takes_nothing_is_cut_off_and_can_resume() -> None:
    source, client = Source(), Connection()
    answering = asyncio.create_task(client.answer(EventStreamResponse(source.open(), look_s=0.01)))
    await until(lambda: client.sent)
    client.takes.clear()
    source.say(b"data: 1\n\n")
    await until(lambda: source.was_cut_off)
    client.takes.set()
    await answering
    assert client.sent[-1]["more_body"] is False
    assert client.body == OPENING + b"data: 1\n\n"


async def test_a_client_that_leaves_is_noticed_in_silence() -> None:
    for complete in (False, True):
        source, client = Source(), Connection()
        source.is_complete = complete
        abandoned: list[str] = []

        async def cancel(told: list[str] = abandoned) -> None:
            told.append("cancel")

        answering = asyncio.create_task(client.answer(EventStreamResponse(source.open(), cancel)))
        await until(lambda client=client: client.sent)  # type: ignore[misc]
        client.left.set()
        await answering
        assert source.was_cut_off
        assert not source.is_open
        assert abandoned == ([] if complete else ["cancel"])
        assert client.sent[-1]["more_body"] is True, "nothing is sent to nobody"
