"""The blocking client: the methods of the asynchronous one, from threads without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.client import AsyncFiles, AsyncPodium, AsyncRun, Files, Podium, RequestConflict, Run
from coordinator.client.loop_thread import LoopThread
from coordinator.testing import (
    ScriptedRequest,
    ScriptedResponse,
    ScriptedServer,
    parse_sse_stream,
    scripted_sse_response,
)
from tests.unit.coordinator.client.message_script import AGENT, MESSAGE, RECORD, STREAM
from tests.unit.coordinator.gateway.agent_classes import Hits, Query, Searcher


def answer(request: ScriptedRequest) -> ScriptedResponse:
    match request.method, request.target.partition("?")[0].rpartition("/")[2]:
        case "POST", "messages" if "/searcher/" in request.target:
            result = {"found": [json.loads(request.body)["message"]["input"]["text"]]}
            return scripted_sse_response(
                *((place, {**told, "data": result} if told["type"] == "turn_end" else told) for place, told in STREAM)
            )
        case "POST", "messages":
            return scripted_sse_response(*STREAM)
        case "POST", "cancel":
            error = {"message": "handled already", "type": "conflict_error", "code": "settled", "param": None}
            return ScriptedResponse.json({"error": error}, 409)
        case "GET", "report.md":
            return ScriptedResponse(
                200, {"Content-Type": "text/plain", "Accept-Ranges": "bytes"}, (b"first ", b"second")
            )
        case "GET", "agents":
            return ScriptedResponse.json(PAGES["cursor=2" in request.target])
        case _:
            return ScriptedResponse.json(RECORD)


def agent(key: str) -> dict[str, object]:
    counts = {"turn": 1, "version": 4, "pending": 0, "parked": 0, "created_at": 1, "updated_at": 2}
    return {"agent": f"hello/{key}", "type": "hello", "key": key, "status": "asleep", **counts}


PAGES = [
    {"items": [agent("a"), agent("b")], "next_cursor": "2"},
    {"items": [agent("c")], "next_cursor": None},
]


@pytest.fixture
def podium() -> Iterator[Podium]:
    """A client of a server that runs on a loop of its own."""
    loop = LoopThread()
    server = ScriptedServer(answer)
    loop.run(server.__aenter__())
    with Podium(url=server.url, key="pk_test") as client:
        yield client
    loop.run(server.__aexit__(None, None, None))
    loop.close()


def test_messages_are_sent_and_answers_read(podium: Podium) -> None:
    with podium.stream(AGENT, "hi") as run:
        assert [frame["type"] for frame in run.events()][-1] == "agent_end"
        assert (run.agent, run.message_id, run.position) == (AGENT, MESSAGE, "msg_1/end")
        assert run.receipt is not None
        assert run.text() == run.answer().text == "Hello"
    assert podium.ask(AGENT, "hi", timeout=60).replies[0].text == "Hello"
    assert podium.follow(AGENT, MESSAGE).message_id == MESSAGE


def test_handlers_wait_for_their_results(podium: Podium) -> None:
    assert podium.of(Searcher, "kim").search(Query(text="cats")) == Hits(found=["cats"])


def test_errors_are_raised_in_the_caller(podium: Podium) -> None:
    with pytest.raises(RequestConflict, match="handled already"):
        podium.cancel(AGENT, MESSAGE)


def test_lists_are_iterated_over_their_pages(podium: Podium) -> None:
    assert [found.key for found in podium.agents()] == ["a", "b", "c"]
    agents = podium.agents()
    assert next(agents).key == "a"
    agents.close()  # type: ignore[attr-defined]  # it is a generator


def test_files_and_streams_are_iterated_in_pieces(podium: Podium) -> None:
    assert podium.files(AGENT).read("report.md") == b"first second"
    assert b"".join(podium.files(AGENT).chunks("./report.md")) == b"first second"
    events = parse_sse_stream(podium.stream(AGENT, "hi").to_readable_stream())
    assert len(events) == len(STREAM)


def test_several_threads_share_a_client(podium: Podium) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda number: podium.ask(AGENT, f"{number}").text, range(16))
    assert set(answers) == {"Hello"}


def test_a_closed_client_says_so_and_its_thread_ends(podium: Podium) -> None:
    podium.close()
    podium.close()
    with pytest.raises(RuntimeError, match="this client was closed"):
        podium.ask(AGENT, "hi")
    assert not podium._loop._thread.is_alive()


def test_a_loop_refuses_calls_from_its_own_thread_and_cancels_what_runs_at_its_end() -> None:
    loop = LoopThread()

    async def call_itself() -> None:
        loop.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="its own thread"):
        loop.run(call_itself())
    started = threading.Event()
    outcome: list[BaseException] = []

    async def wait_for_ever() -> None:
        started.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            loop.run(wait_for_ever())
        except BaseException as error:  # noqa: BLE001  whatever ends it
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert started.wait(60)
    loop.close()
    waiting.join(60)
    assert [type(error).__name__ for error in outcome] == ["CancelledError"]


@pytest.mark.parametrize(("twin", "of"), [(Podium, AsyncPodium), (Run, AsyncRun), (Files, AsyncFiles)])
def test_every_method_has_a_blocking_twin_with_its_signature_and_documentation(twin: type, of: type) -> None:
    names = {name for name in vars(of) if not name.startswith("_")} - {"to_response"}  # ASGI needs a loop
    assert names <= set(dir(twin))
    for name in names:
        theirs, ours = getattr(of, name), getattr(twin, name)
        if name == "of":  # type checkers see another type, and it says so
            assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
        elif inspect.isfunction(theirs) and name != "close":
            assert inspect.signature(ours) == inspect.signature(theirs)
            assert ours.__doc__ == theirs.__doc__
