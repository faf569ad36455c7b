"""Streams over real HTTP: two gateways on sockets over one home, streams cut at any byte and resumed at the other."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
import httpx_sse
import pytest
import uvicorn

from chronicle.ids import MessageId
from coordinator.access.caller import OpenAccess
from coordinator.client.sse_parser import SseParser
from coordinator.gateway.app import create_app
from coordinator.streams.home_streams import HomeStreams
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from tests.unit.coordinator.gateway.served_home import ServedHome, served_home
from tests.unit.coordinator.streams.stories import Reader
from tests.waiting import until

SSE = {"Accept": "text/event-stream"}
AGENT = "/v1/agents/talker/a"


class Talker(BaseAgent):
    """Does what its message tells, and waits where it tells to."""

    agent_type = "talker"
    steps: ClassVar[asyncio.Semaphore]
    """The waits that end."""
    failures: ClassVar[int] = 0

    class State(DeltaState):
        said: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        replies: dict[str, Any] = {}
        for step in message["script"]:
            match step:
                case ["begin", name]:
                    replies[name] = await ctx.send_message()
                case ["say", name, text]:
                    await replies[name].stream_token(text)
                case ["end", name]:
                    await replies[name].finish()
                case ["artifact", name]:
                    await ctx.add_artifact(name, "content")
                case ["emit", name]:
                    await ctx.emit(name, {"at": name})
                case ["wait"]:
                    await Talker.steps.acquire()
                case ["fail"] if Talker.failures:
                    Talker.failures -= 1
                    raise ValueError("as told")
        ctx.state.said += 1


SCRIPT: list[Any] = [
    ["begin", "one"],
    ["say", "one", "Grüße "],
    ["emit", "started"],
    ["say", "one", "\U0001f600\U0001f680 "],
    ["wait"],
    ["begin", "two"],
    ["say", "two", "second\n\nreply "],
    ["say", "one", "x" * 200],
    ["artifact", "a.txt"],
    ["fail"],
    ["wait"],
    ["say", "two", "goes on"],
    ["end", "two"],
    ["emit", "nearly"],
    ["artifact", "b.txt"],
    ["wait"],
    ["say", "one", " and ends last"],
]
TEXTS = ["Grüße \U0001f600\U0001f680 " + "x" * 200 + " and ends last", "second\n\nreply goes on"]


@asynccontextmanager
async def on_a_socket(app: Any) -> AsyncIterator[str]:
    """Serve an application; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=5))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


class Gateways:
    """Two gateways of one home, and a client of both."""

    def __init__(self, home: ServedHome, clients: list[httpx.AsyncClient]) -> None:
        self.home = home
        self.clients = clients

    async def send(self, script: list[Any], **options: Any) -> str:
        answer = await self.clients[0].post(
            f"{AGENT}/messages", json={"message": {"script": script}, **options}, headers={"Prefer": "respond-async"}
        )
        assert answer.status_code == 202, answer.text
        message_id: str = answer.json()["message_id"]
        return message_id

    async def read(
        self, which: int, message_id: str, last_event_id: str = "", most_bytes: int | None = None
    ) -> tuple[list[dict[str, Any]], str, bool]:
        """Read a stream, or some bytes of it; return its frames, the last id, and whether it ended."""
        headers = {**SSE, **({"Last-Event-ID": last_event_id} if last_event_id else {})}
        parser = SseParser(last_event_id=last_event_id)
        frames: list[dict[str, Any]] = []
        left = most_bytes
        async with self.clients[which].stream("GET", f"{AGENT}/messages/{message_id}", headers=headers) as answer:
            if answer.status_code == 204:
                return [], last_event_id, True
            assert answer.status_code == 200, await answer.aread()
            async for chunk in answer.aiter_raw():
                part = chunk if left is None else chunk[:left]
                frames += [json.loads(event.data) for event in parser.feed(part)]
                if left is not None:
                    left -= len(part)
                    if left <= 0:
                        return frames, parser.last_event_id, False
        return frames, parser.last_event_id, True


@asynccontextmanager
async def two_gateways(tmp_path: Path) -> AsyncIterator[Gateways]:
    Talker.steps = asyncio.Semaphore(0)
    Talker.failures = 0
    async with (
        served_home(tmp_path / "home", Talker) as home,
        HomeStreams(home.fleet.client, home.agents) as one,
        HomeStreams(home.fleet.client, home.agents) as two,
        on_a_socket(create_app(home.agents, OpenAccess(), one)) as url_of_one,
        on_a_socket(create_app(home.agents, OpenAccess(), two)) as url_of_two,
        httpx.AsyncClient(base_url=url_of_one, timeout=60) as client_of_one,
        httpx.AsyncClient(base_url=url_of_two, timeout=60) as client_of_two,
    ):
        try:
            yield Gateways(home, [client_of_one, client_of_two])
        finally:
            go_on()
            one.close()
            two.close()


def go_on(steps: int = 1000) -> None:
    for _ in range(steps):
        Talker.steps.release()


def of_type(frames: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [frame for frame in frames if frame["type"] in kinds]


# S4.15, S4.16
async def test_a_message_is_streamed_as_it_is_handled(tmp_path: Path) -> None:
    async with two_gateways(tmp_path) as gateways:
        body = {"message": {"script": SCRIPT}}
        async with gateways.clients[0].stream("POST", f"{AGENT}/messages", json=body, headers=SSE) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
            raw = b""
            async for chunk in answer.aiter_raw():
                raw += chunk
                if "\U0001f680".encode() in raw:  # the first part came before the turn went on
                    go_on()
    assert raw.startswith(b"retry: 1000\nid: ")
    events = [event.split("\n") for event in raw.decode().removeprefix("retry: 1000\n").split("\n\n") if event]
    assert all(line[-1].startswith("data: {") and len(line) <= 2 for line in events), "one event as JSON in data:"
    frames = [json.loads(line[-1].removeprefix("data: ")) for line in events]
    kinds = [frame["type"] for frame in frames]
    assert kinds[:3] == ["accepted", "agent_start", "turn_start"]
    assert kinds[-2:] == ["turn_end", "agent_end"]
    assert {"message_start", "message_update", "message_end"} <= set(kinds)
    emitted = of_type(frames, "event")
    assert [set(frame) for frame in emitted] == [{"type", "message_id", "name", "data", "ordinal"}] * 2
    assert frames[-1]["outcome"] == "committed"
    assert [frame["text"] for frame in of_type(frames, "message_end")] == TEXTS[::-1]
    with_id = {frame["type"] for line, frame in zip(events, frames, strict=True) if line[0].startswith("id: ")}
    assert with_id == set(kinds) - {"agent_start"}


# S4.29: the run id is the message id
@pytest.mark.parametrize("seed", range(16))
async def test_a_stream_is_cut_at_any_byte_and_resumed_anywhere(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    async with two_gateways(tmp_path) as gateways:
        Talker.failures = chosen.randrange(2)
        retries = Talker.failures
        message_id = await gateways.send(SCRIPT)
        reader, last_id, ended = Reader(), "", False
        cuts = 0
        while not ended:
            limit = chosen.randrange(1, 1500) if cuts < 12 else None
            cuts += 1
            go_on(chosen.randrange(3))
            reading = asyncio.create_task(gateways.read(chosen.randrange(2), message_id, last_id, limit))
            while not (await asyncio.wait({reading}, timeout=0.05))[0]:
                go_on(1)
            frames, last_id, ended = await reading
            for frame in frames:
                reader.take(frame)
        assert last_id == f"{message_id}/end"
        assert list(list(reader.attempts.values())[-1].values()) == TEXTS
        assert len(set(reader.once)) == len(reader.once), "something came twice"
        last = list(reader.attempts)[-1]
        artifacts = [each for each in reader.once if each[:2] == ("artifact", last)]
        assert len(artifacts) == 2
        assert [each for each in reader.once if each[0] == "turn_retry"] == [("turn_retry", 1)] * retries
        assert reader.once[-2:] == [("turn_end",), ("agent_end",)]


async def test_the_whole_stream_can_be_read_after_the_commit(tmp_path: Path) -> None:
    async with two_gateways(tmp_path) as gateways:
        go_on()
        message_id = await gateways.send(SCRIPT)
        await until(lambda: gateways.home.fleet.store.message(MessageId(message_id)).status.is_settled)
        frames, last_id, ended = await gateways.read(1, message_id)
        assert ended
        assert [frame["type"] for frame in frames][:3] == ["accepted", "agent_start", "turn_start"]
        assert [frame["text"] for frame in of_type(frames, "message_end")] == TEXTS
        assert "".join(frame["delta"] for frame in of_type(frames, "message_update")) == "".join(TEXTS)
        answer = await gateways.clients[0].get(
            f"{AGENT}/messages/{message_id}", headers={**SSE, "Last-Event-ID": last_id}
        )
        assert answer.status_code == 204, "an EventSource stops here"
        answer = await gateways.clients[0].get(
            f"{AGENT}/messages/{message_id}", headers=SSE, params={"last_event_id": last_id}
        )
        assert answer.status_code == 204


@pytest.mark.parametrize("how", ["header", "parameter"])
async def test_an_id_that_is_not_of_the_stream_is_refused(tmp_path: Path, how: str) -> None:
    async with two_gateways(tmp_path) as gateways:
        go_on()
        message_id = await gateways.send(SCRIPT)
        other = await gateways.send(SCRIPT)
        for path, wrong in (
            (f"/messages/{message_id}", "nonsense"),
            (f"/messages/{message_id}", f"{other}/end"),
            (f"/messages/{message_id}", "7"),
            ("/events", f"{message_id}/end"),
            ("/events", "-1"),
            ("/events", "99999"),
        ):
            headers, parameters = dict(SSE), {}
            if how == "header":
                headers["Last-Event-ID"] = wrong
            else:
                parameters["last_event_id"] = wrong
            answer = await gateways.clients[0].get(f"{AGENT}{path}", headers=headers, params=parameters)
            assert answer.status_code == 400, (path, wrong, answer.text)
            assert answer.json()["error"]["code"] == "invalid_last_event_id"
        for path, code in (
            ("talker/a/messages/msg_01HF7YAT00ZZZZZZZZZZZZZZZZ", "not_found"),
            (f"talker/nobody/messages/{message_id}", "unknown_agent"),
            ("talker/nobody/events", "unknown_agent"),
        ):
            answer = await gateways.clients[0].get(f"/v1/agents/{path}", headers=SSE)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_client_that_leaves_cancels_only_if_it_asked_for_that(tmp_path: Path, *, cancels: bool) -> None:
    async with two_gateways(tmp_path) as gateways:
        body = {"message": {"script": SCRIPT}, "cancel_on_disconnect": cancels}
        async with gateways.clients[0].stream("POST", f"{AGENT}/messages", json=body, headers=SSE) as answer:
            parser = SseParser()
            async for chunk in answer.aiter_raw():
                if any("message_update" in event.data for event in parser.feed(chunk)):
                    break
        message_id = parser.last_event_id.partition("/")[0]
        store = gateways.home.fleet.store
        if not cancels:
            go_on()
        await until(lambda: store.message(MessageId(message_id)).status.is_settled)
        frames, _, _ = await gateways.read(1, message_id)
        assert frames[-1]["outcome"] == ("cancelled" if cancels else "committed")


async def test_clients_of_other_makes_read_the_streams(tmp_path: Path) -> None:
    async with two_gateways(tmp_path) as gateways:
        go_on()
        body = {"message": {"script": SCRIPT}}
        async with httpx_sse.aconnect_sse(gateways.clients[0], "POST", f"{AGENT}/messages", json=body) as source:
            events = [event async for event in source.aiter_sse()]
    frames = [event.json() for event in events]
    assert {event.event for event in events} == {"message"}
    assert events[-1].id.endswith("/end")
    assert {event.retry for event in events} <= {None, 1000}
    assert sorted(frame["text"] for frame in of_type(frames, "message_end")) == sorted(TEXTS)


async def test_a_client_that_asks_for_json_gets_json(tmp_path: Path) -> None:
    async with two_gateways(tmp_path) as gateways:
        go_on()
        for accept in ("*/*", "application/json", "text/event-stream;q=0, application/json"):
            answer = await gateways.clients[0].post(
                f"{AGENT}/messages", json={"message": {"script": SCRIPT}}, headers={"Accept": accept}
            )
            assert answer.json()["text"], accept


# -- recorded events ---------------------------------------------------------------------------------------------------


async def tail(
    client: httpx.AsyncClient, until_seq: Callable[[int], Awaitable[bool]], **headers: str
) -> list[dict[str, Any]]:
    """Read a tail until a condition of the last seq holds."""
    parser = SseParser()
    events: list[dict[str, Any]] = []
    async with client.stream("GET", f"{AGENT}/events", headers={**SSE, **headers}) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for chunk in answer.aiter_raw():
            for event in parser.feed(chunk):
                events.append(json.loads(event.data))
                assert event.id == str(events[-1]["seq"])
            if events and await until_seq(events[-1]["seq"]):
                return events
    raise AssertionError("the tail ended")


async def test_recorded_events_are_followed_and_resumed(tmp_path: Path) -> None:
    async with two_gateways(tmp_path) as gateways:
        go_on()
        await gateways.send(SCRIPT)
        sent = 1

        async def three_turns(seq: int) -> bool:
            nonlocal sent
            if sent < 3:
                await gateways.send(SCRIPT)
                sent += 1
            page = (await gateways.clients[1].get(f"{AGENT}/events?type=turn.committed")).json()
            committed = [item["seq"] for item in page["items"]]
            return len(committed) == 3 and seq >= committed[-1]

        events = await tail(gateways.clients[0], three_turns)
        listed = (await gateways.clients[0].get(f"{AGENT}/events?limit=1000")).json()["items"]
        assert events == listed, "each once, in order, as the list has them"

        async def at_the_end(seq: int) -> bool:
            return seq == int(listed[-1]["seq"])

        middle = listed[len(listed) // 2]["seq"]
        resumed = await tail(gateways.clients[1], at_the_end, **{"Last-Event-ID": str(middle)})
        assert resumed == [each for each in listed if each["seq"] > middle]
