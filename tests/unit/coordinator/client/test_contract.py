"""The contract of the client's backends: a home on this machine, and that home behind a gateway, over a real socket.

The agents run in the test's process, by the code of production (`HarnessFleet`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import uvicorn

from chronicle.canonical import encode
from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from coordinator.access.caller import OpenAccess
from coordinator.client import (
    Answer,
    AsyncPodium,
    BadAnswer,
    ClientError,
    InvalidRequest,
    MessageCancelled,
    MessageFailed,
    RateLimited,
    RequestConflict,
    ResourceNotFound,
    ServerFailed,
)
from coordinator.client.backends.local_backend import LocalBackend
from coordinator.gateway.app import create_app
from coordinator.home import Home
from coordinator.operations.agents import HomeAgents
from coordinator.streams.home_streams import HomeStreams
from podium.agent import AgentContext, Answered, AnswerText, BaseAgent, handler
from podium.errors import InvalidMessage
from tests.unit.coordinator.gateway.agent_classes import Hits, Notes, Query, Searcher, Slow, Stepping, Troubled
from tests.unit.coordinator.gateway.served_home import HarnessFleet
from tests.waiting import DEADLINE_S, INTERVAL_S, until

AGENT = "notes/alice"
STREAMING = ["local", "http"]
"""The backends whose streams are tested."""


@asynccontextmanager
async def gateway(home: Home, fleet: HarnessFleet) -> AsyncIterator[str]:
    agents = HomeAgents(home, fleet, fleet.clock)
    streams = HomeStreams(fleet.client, agents)
    app = create_app(agents, OpenAccess(), streams)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    async with streams, asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
    agents.close()


@asynccontextmanager
async def fleet_of(home: Home) -> AsyncIterator[HarnessFleet]:
    fleet = HarnessFleet(home, ManualClock(), Notes, Stepping, Troubled, Slow, Searcher)
    try:
        yield fleet
    finally:
        await asyncio.shield(fleet.close())


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[HarnessFleet]:
    async with fleet_of(Home(tmp_path / "home").create()) as found:
        yield found


@asynccontextmanager
async def client_of(home: Home, fleet: HarnessFleet, *, over_http: bool) -> AsyncIterator[AsyncPodium]:
    if over_http:
        async with gateway(home, fleet) as url, AsyncPodium(url=url, reconnect_s=5) as client:
            yield client
    else:
        async with AsyncPodium(home=home.path) as client:
            client._backend = LocalBackend(home.path, 5, link=fleet)  # its service is the harnesses
            yield client


@pytest.fixture(params=["local", "http"])
async def podium(request: pytest.FixtureRequest, tmp_path: Path, fleet: HarnessFleet) -> AsyncIterator[AsyncPodium]:
    async with client_of(Home(tmp_path / "home").open(), fleet, over_http=request.param == "http") as client:
        yield client


@pytest.fixture(params=STREAMING)
async def streaming(request: pytest.FixtureRequest, tmp_path: Path, fleet: HarnessFleet) -> AsyncIterator[AsyncPodium]:
    async with client_of(Home(tmp_path / "home").open(), fleet, over_http=request.param == "http") as client:
        yield client


async def handled(podium: AsyncPodium, agent: str, message: str | dict[str, Any]) -> Answer:
    """Send a message and wait for its answer, without a stream."""
    receipt = await podium.send(agent, message)
    async with asyncio.timeout(DEADLINE_S):
        while (answer := (await podium.message(agent, receipt.message_id)).answer) is None:
            await asyncio.sleep(INTERVAL_S)
    return answer


# -- messages ----------------------------------------------------------------------------------------------------------


async def test_an_answer_has_what_the_agent_said_and_set(streaming: AsyncPodium) -> None:
    podium = streaming
    answer = await podium.ask(AGENT, {"text": "hi", "artifact": "<p>"}, timeout=60)
    assert (answer.agent, answer.turn, answer.text, answer.data) == (AGENT, 1, "1: hi", {"count": 1})
    assert [reply.text for reply in answer.replies] == ["1: hi"]
    (artifact,) = answer.artifacts
    assert (artifact.name, artifact.size) == ("report.html", 3)
    assert await podium.artifact(AGENT, artifact.artifact_id) == b"<p>"
    assert [found.artifact_id for found in await podium.artifacts(AGENT)] == [artifact.artifact_id]


async def test_a_handler_is_called_with_its_argument_and_returns_its_result(streaming: AsyncPodium) -> None:
    searcher = streaming.of(Searcher, "kim", timeout=60)
    assert await searcher.search(Query(text="cats")) == Hits(found=["cats", "cats"])
    once = streaming.of(Searcher, "kim", idempotency_key="once")
    assert await once.search(Query(text="a", limit=1)) == await once.search(Query(text="a", limit=1))
    assert (await streaming.agent("searcher/kim")).turn == 2
    with pytest.raises(InvalidMessage, match=r"message\.input: input should be .* instance of Query"):
        await searcher.search(Hits(found=[]))  # type: ignore[call-overload]
    with pytest.raises(AttributeError, match="Searcher has no handler find: its handlers are search"):
        await searcher.find(Query(text="x"))  # type: ignore[attr-defined]


async def test_the_parts_of_a_handlers_answer(streaming: AsyncPodium) -> None:
    parts = [part async for part in streaming.of(Searcher, "kim").search.stream(Query(text="cats"))]
    assert parts[0] == AnswerText("looking", 1)
    assert isinstance(parts[-1], Answered)
    assert parts[-1].result == Hits(found=["cats", "cats"])
    assert (parts[-1].answer.agent, parts[-1].answer.turn, parts[-1].answer.text) == ("searcher/kim", 1, "looking")
    assert len(parts) == 2


async def test_a_read_only_handler_is_read_beside_the_inbox(streaming: AsyncPodium) -> None:
    searcher = streaming.of(Searcher, "kim")
    with pytest.raises(ResourceNotFound):
        await searcher.turns(Query(text="x"))
    await searcher.search(Query(text="cats"))
    assert await searcher.turns(Query(text="x")) == 1
    read = await streaming.read("searcher/kim", {"handler": "turns", "input": {"text": "x"}})
    assert (read.agent, read.turn, read.data) == ("searcher/kim", 1, 1)
    for text, code in (("fail", "read_failed"), ("write", "read_only")):
        with pytest.raises(ServerFailed) as failed:
            await searcher.turns(Query(text=text))
        assert failed.value.code == code
    with pytest.raises(InvalidRequest) as wrong:
        await streaming.read("searcher/kim", {"handler": "search", "input": {"text": "x"}})
    assert wrong.value.code == "invalid_message"
    assert (await streaming.agent("searcher/kim")).turn == 1


class Changed(Hits):
    found: list[int]  # type: ignore[assignment]


class OtherSearcher(BaseAgent):
    """What another version of the class is."""

    agent_type = "searcher"

    @handler
    async def search(self, ctx: AgentContext[Any], query: Query) -> Changed: ...  # type: ignore[empty-body]


async def test_a_result_of_another_version_of_the_class(streaming: AsyncPodium) -> None:
    with pytest.raises(BadAnswer, match="runs with another class: the result of search does not fit") as caught:
        await streaming.of(OtherSearcher, "kim").search(Query(text="cats"))
    assert caught.value.message_id


async def test_the_frames_of_a_run_begin_with_its_receipt_and_end_with_its_outcome(streaming: AsyncPodium) -> None:
    podium = streaming
    async with await podium.stream(AGENT, "hi") as run:
        frames = [frame async for frame in run.events()]
        types = [frame["type"] for frame in frames]
        assert types[0] == "accepted"
        assert types[-2:] == ["turn_end", "agent_end"]
        assert frames[-1]["outcome"] == "committed"
        assert run.position.endswith("/end")
        assert "".join(frame["delta"] for frame in frames if frame["type"] == "message_update") == "1: hi"
        assert (await run.answer()).text == "1: hi"
    again = [frame["type"] async for frame in podium.follow(AGENT, run.message_id).events()]
    assert again == types
    after = podium.follow(AGENT, run.message_id, after=run.position)
    assert [frame async for frame in after.events()] == []


async def test_a_run_that_was_cut_at_any_frame_goes_on_there(streaming: AsyncPodium) -> None:
    podium = streaming
    run = await podium.stream(AGENT, "hello")
    whole, positions = [], []
    async for frame in run.events():
        whole.append(frame)
        positions.append(run.position)
    for cut in range(len(whole)):
        if positions[cut]:
            rest = [frame async for frame in podium.follow(AGENT, run.message_id, after=positions[cut]).events()]
            places = [place for place, position in enumerate(positions) if position == positions[cut]]
            assert [frame["type"] for frame in rest if frame["type"] != "agent_start"] == [
                frame["type"] for frame in whole[places[-1] + 1 :] if frame["type"] != "agent_start"
            ]


async def test_a_repetition_gets_the_same_receipt_and_another_message_is_refused(podium: AsyncPodium) -> None:
    first = await podium.send(AGENT, "hi", idempotency_key="k")
    assert (first.agent, first.position, first.before) == (AGENT, 1, 0)
    assert (await podium.send(AGENT, "hi", idempotency_key="k")).message_id == first.message_id
    with pytest.raises(RequestConflict) as caught:
        await podium.send(AGENT, "ho", idempotency_key="k")
    assert (caught.value.code, caught.value.status) == ("idempotency_conflict", 409)


async def test_an_unknown_type_names_the_known_ones(podium: AsyncPodium) -> None:
    with pytest.raises(ResourceNotFound, match="notes") as caught:
        await podium.send("nothing/a", "hi")
    assert (caught.value.code, caught.value.kind) == ("unknown_agent_type", "UnknownAgentType")


async def test_a_failed_message_raises_and_waits_parked(streaming: AsyncPodium) -> None:
    podium = streaming
    with pytest.raises(MessageFailed, match="RuntimeError: no hi") as caught:
        await podium.ask("troubled/a", "hi", timeout=60)
    failed = caught.value
    assert (failed.code, failed.error_type, failed.parked) == ("message_parked", "RuntimeError", True)
    assert failed.message_id is not None
    (parked,) = await podium.inbox("troubled/a")
    assert (parked.message_id, parked.status, parked.message) == (failed.message_id, "parked", {"text": "hi"})
    assert parked.error is not None
    assert parked.error.message == "no hi"
    assert (await podium.message("troubled/a", failed.message_id)).status == "parked"
    await podium.drop("troubled/a", failed.message_id)
    assert await podium.inbox("troubled/a") == []
    with pytest.raises(ResourceNotFound):
        await podium.retry("troubled/a", "msg_none")


async def test_a_retry_drops_steps_if_it_is_told_to(podium: AsyncPodium) -> None:
    Stepping.ran, Stepping.fails = [], True
    receipt = await podium.send("stepping/a", "hi")

    async def settled(status: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while (await podium.message("stepping/a", receipt.message_id)).status != status:
                await asyncio.sleep(INTERVAL_S)

    await settled("parked")
    await podium.retry("stepping/a", receipt.message_id)
    await settled("parked")
    assert Stepping.ran == ["hi"]
    (parked,) = await podium.inbox("stepping/a")
    assert [step.key for step in parked.steps] == ["note#1"]
    Stepping.fails = False
    await podium.retry("stepping/a", receipt.message_id, drop_steps=True)
    await settled("consumed")
    assert Stepping.ran == ["hi", "hi"]


async def test_reminders_are_listed_and_cancelled(streaming: AsyncPodium) -> None:
    podium = streaming
    for rule in (
        {"name": "odd/näme", "every": 90, "message": {"text": "again"}},
        {"name": "daily", "cron": "0 9 * * *", "tz": "Europe/Berlin"},
        {"name": "once", "at": "2100-01-01T00:00+00:00"},
    ):
        await podium.ask("notes/a", {"text": "hi", "remind": rule}, timeout=60)
    daily, odd, once = await podium.reminders("notes/a")
    assert (daily.name, daily.every_s, daily.cron, daily.tz) == ("daily", None, "0 9 * * *", "Europe/Berlin")
    assert (odd.name, odd.every_s, odd.cron, odd.message) == ("odd/näme", 90.0, None, {"text": "again"})
    assert (once.name, once.due, once.message) == ("once", 4102444800000, {})
    await podium.cancel_reminder("notes/a", "odd/näme")
    with pytest.raises(ResourceNotFound, match="notes/a has no reminder 'odd/näme'"):
        await podium.cancel_reminder("notes/a", "odd/näme")
    assert [reminder.name for reminder in await podium.reminders("notes/a")] == ["daily", "once"]
    for ask in (podium.reminders("notes/none"), podium.cancel_reminder("notes/none", "daily")):
        with pytest.raises(ResourceNotFound):
            await ask


async def test_a_running_message_is_cancelled(streaming: AsyncPodium) -> None:
    podium = streaming
    Slow.begun, Slow.go_on = asyncio.Event(), asyncio.Event()
    run = await podium.stream("slow/a", "hi")
    await asyncio.wait_for(Slow.begun.wait(), 60)
    await run.cancel()
    with pytest.raises(MessageCancelled) as caught:
        await run.answer()
    assert caught.value.message_id == run.message_id


async def test_a_run_that_begins_with_a_waiting_message_tells_its_place(streaming: AsyncPodium) -> None:
    podium = streaming
    Slow.begun, Slow.go_on = asyncio.Event(), asyncio.Event()
    await podium.send("slow/a", "one")
    await asyncio.wait_for(Slow.begun.wait(), 60)
    waiting = await podium.send("slow/a", "two")
    async with aclosing(podium.follow("slow/a", waiting.message_id).events()) as frames:
        accepted = await anext(frames)
    assert (accepted["type"], accepted["position"], accepted["before"]) == ("accepted", 2, 1)
    Slow.go_on.set()


async def test_a_full_inbox_and_a_message_that_is_no_json(podium: AsyncPodium, fleet: HarnessFleet) -> None:
    await podium.send(AGENT, "hi")
    await until(lambda: not fleet.store.pending(fleet.store.session(AGENT).session_id))
    fleet.inbox_limit = 0
    with pytest.raises(RateLimited) as caught:
        await podium.send(AGENT, "hi")
    assert (caught.value.code, caught.value.retry_after_s) == ("inbox_full", 1)


# -- agents and history ------------------------------------------------------------------------------------------------


async def test_agents_are_listed_over_pages_and_by_type(podium: AsyncPodium, fleet: HarnessFleet) -> None:
    ids, now_ms = IdSource(), fleet.clock.now_ms()
    for number in range(105):
        fleet.store.ensure_session(f"notes/{number:03}", ids.session(now_ms), ids.branch(now_ms), now_ms)
    await podium.send("slow/x y?%#", "hi")
    assert [found.key async for found in podium.agents(agent_type="notes")] == [f"{n:03}" for n in range(105)]
    assert [found.agent async for found in podium.agents(agent_type="slow")] == ["slow/x y?%#"]
    found = await podium.agent("slow/x y?%#")
    assert (found.type, found.key) == ("slow", "x y?%#")
    with pytest.raises(ResourceNotFound) as caught:
        await podium.agent("notes/none")
    assert (caught.value.code, caught.value.status) == ("unknown_agent", 404)
    with pytest.raises(InvalidRequest) as invalid:
        await podium.agent("notes")
    assert invalid.value.code == "invalid_address"


async def test_state_events_and_differences(podium: AsyncPodium) -> None:
    await handled(podium, AGENT, "one")
    await handled(podium, AGENT, "two")
    assert (await podium.state(AGENT)).state["count"] == 2
    first = await podium.state(AGENT, at=1)
    assert (first.state["count"], first.turn) == (1, 1)
    events = [event async for event in podium.events(AGENT)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.seq async for event in podium.events(AGENT, after=3)] == [event.seq for event in events[3:]]
    committed = [event async for event in podium.events(AGENT, types=["turn.committed"])]
    assert [event.turn for event in committed] == [1, 2]
    changed = await podium.diff(AGENT, 1)
    assert jsonpatch.apply_patch(first.state, list(changed.state)) == (await podium.state(AGENT)).state
    assert [found["path"] for found in changed.files] == ["notes.txt"]
    with pytest.raises(ResourceNotFound) as caught:
        await podium.state(AGENT, at=9)
    assert (caught.value.code, caught.value.kind) == ("unknown_turn", "UnknownMoment")


async def test_turns_are_listed_with_what_they_did(podium: AsyncPodium, fleet: HarnessFleet) -> None:
    for said in ("one", "two"):
        await handled(podium, AGENT, said)
    await podium.rewind(AGENT, 1, only=["state"])
    turns = [turn async for turn in podium.turns(AGENT)]
    assert [(turn.turn, turn.cause) for turn in turns] == [
        (0, "created"),
        (1, "message"),
        (2, "message"),
        (3, "rewound"),
    ]
    events = {event.seq: event async for event in podium.events(AGENT)}
    for turn in turns:
        end = events[turn.seq]
        assert (turn.turn, turn.ended_at, turn.message_id) == (end.turn, end.ts, end.correlation_id)
        state = end.payload["state"]
        assert turn.patch_bytes == len(encode(state if turn.turn == 0 else state["patch"]))
        of_turn = [event.ts for event in events.values() if event.turn == turn.turn]
        assert turn.began_at == min(of_turn)
    assert [turn.files_changed for turn in turns] == [0, 1, 1, 0]
    assert len((await podium.diff(AGENT, 1, 2)).files) == 1
    first = await podium.pages().turns(AGENT, limit=3)
    assert (list(first.items), first.remaining) == (turns[:3], 1)
    rest = await podium.pages().turns(AGENT, cursor=first.next_cursor)
    assert (list(rest.items), rest.next_cursor, rest.remaining) == (turns[3:], None, 0)
    forked = await podium.fork(AGENT, "bob", at=1)
    fleet.clock.advance(1e9)  # beyond the clock of this machine, by which the fork was made
    await handled(podium, forked.agent, "three")
    *inherited, own = [turn async for turn in podium.turns(forked.agent)]
    assert (inherited, own.turn, own.files_changed) == (turns[:2], 2, 1)
    assert own.began_at == fleet.clock.now_ms()
    with pytest.raises(ResourceNotFound):
        await podium.pages().turns("notes/none")
    with pytest.raises(InvalidRequest) as caught:
        await podium.pages().turns(AGENT, cursor=(await podium.pages().turns(forked.agent, limit=1)).next_cursor)
    assert caught.value.code == "invalid_cursor"


async def test_a_turn_has_its_steps_and_the_times_of_its_last_attempt(podium: AsyncPodium) -> None:
    Stepping.ran, Stepping.fails = [], True
    receipt = await podium.send("stepping/a", "hi")
    async with asyncio.timeout(DEADLINE_S):
        while (await podium.message("stepping/a", receipt.message_id)).status != "parked":
            await asyncio.sleep(INTERVAL_S)
    assert [turn.turn async for turn in podium.turns("stepping/a")] == [0]
    Stepping.fails = False
    await podium.retry("stepping/a", receipt.message_id)
    async with asyncio.timeout(DEADLINE_S):
        while (await podium.message("stepping/a", receipt.message_id)).status != "consumed":
            await asyncio.sleep(INTERVAL_S)
    _, turn = [turn async for turn in podium.turns("stepping/a")]
    assert (turn.message_id, [(step["key"], step["status"]) for step in turn.steps]) == (
        receipt.message_id,
        [("note#1", "done")],
    )


async def test_the_types_and_their_handlers(podium: AsyncPodium) -> None:
    types = {each.agent_type: each for each in await podium.types()}
    assert (types["notes"].class_name, types["notes"].on_message, types["notes"].handlers) == (
        "agents.py:Notes",
        True,
        {},
    )
    assert types["searcher"].handlers["search"]["result"]["required"] == ["found"]


async def test_why_and_nodes(podium: AsyncPodium) -> None:
    await handled(podium, AGENT, "one")
    why = await podium.why(AGENT)
    assert (why.agent, why.service, why.turn, why.pending, why.parked) == (AGENT, True, 1, 0, 0)
    assert (why.waits_for, why.host_id, why.isolation) == ("a message", "host_1", "process")
    assert why.epoch == 1
    assert why.last_error is None
    await podium.passivate(AGENT)
    why = await podium.why(AGENT)
    assert (why.status, why.host_id, why.holder) == ("asleep", None, None)
    with pytest.raises(ResourceNotFound) as caught:
        await podium.why("notes/none")
    assert caught.value.code == "unknown_agent"
    (node,) = await podium.nodes()
    assert (node.node, node.warm, node.problem, node.drained) == ("local", 1, "its manager does not answer", False)


async def test_a_node_is_drained_and_used_again(podium: AsyncPodium) -> None:
    assert (await podium.drain("local")).drained
    (node,) = await podium.nodes()
    assert node.drained
    assert not (await podium.drain("local", undo=True)).drained
    with pytest.raises(ResourceNotFound, match="there is no node n9; there is local"):
        await podium.drain("n9")


async def test_fork_rewind_passivate_verify_and_delete(podium: AsyncPodium) -> None:
    for said in ("one", "two"):
        await handled(podium, AGENT, said)
    forked = await podium.fork(AGENT, "bob", at=1)
    assert (forked.agent, forked.source.agent, forked.turn) == ("notes/bob", AGENT, 1)
    with pytest.raises(RequestConflict) as caught:
        await podium.fork(AGENT, "bob")
    assert caught.value.code == "agent_exists"
    rewound = await podium.rewind(AGENT, 1, only=["state"])
    assert (rewound.before, rewound.to, rewound.turn, rewound.only) == (2, 1, 3, ("state",))
    assert (await podium.state(AGENT)).state["count"] == 1
    await podium.passivate(AGENT)
    assert (await podium.agent(AGENT)).status == "asleep"
    checked = await podium.verify(AGENT)
    assert (checked.ok, checked.problem) == (True, None)
    with pytest.raises(RequestConflict) as in_use:
        await podium.delete(AGENT)
    assert in_use.value.code == "agent_in_use"
    assert (await podium.delete(AGENT, detach=True)).detached == ("notes/bob",)
    assert [found.agent async for found in podium.agents()] == ["notes/bob"]


async def test_two_agents_are_compared(podium: AsyncPodium) -> None:
    for said in ("one", "two"):
        await handled(podium, AGENT, said)
    await podium.fork(AGENT, "bob", at=1)
    found = await podium.diff(AGENT, other="notes/bob")
    assert (found.before.agent, found.before.turn) == (AGENT, 2)
    assert (found.after.agent, found.after.turn) == ("notes/bob", 1)
    assert list(found.state) == [{"op": "replace", "path": "/count", "value": 1}]
    assert (await podium.diff(AGENT, 1, 1, other="notes/bob")).diff == ""
    with pytest.raises(ResourceNotFound):
        await podium.diff(AGENT, other="notes/none")


async def test_history_is_dropped_and_messages_are_erased(podium: AsyncPodium) -> None:
    for said in ("one", "two"):
        await handled(podium, AGENT, said)
    await podium.passivate(AGENT)
    planned = await podium.fold(AGENT, keep_turns=1, dry_run=True)
    assert (planned.agent, planned.marked, planned.turn) == (AGENT, True, 2)
    *_, last = [event async for event in podium.events(AGENT, types=["user_message"])]
    erased = await podium.erase(AGENT, [last.event_id])
    assert [(event.event_id, event.type, event.turn) for event in erased.erased] == [(last.event_id, last.type, 2)]
    with pytest.raises(ResourceNotFound):
        await podium.erase(AGENT, ["evt_00000000000000000000000000"])
    folded = await podium.fold(AGENT)
    assert (folded.first_turn, folded.dropped.turns, folded.later) == (2, 2, None)
    with pytest.raises(ResourceNotFound) as caught:
        await podium.state(AGENT, at=1)
    assert caught.value.code == "unknown_turn"


async def test_an_agent_goes_through_a_file(podium: AsyncPodium) -> None:
    await handled(podium, AGENT, "one")
    archive = b"".join([chunk async for chunk in podium.export(AGENT)])

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(archive), 1000):
            yield archive[start : start + 1000]

    made = await podium.import_archive("notes/copy", pieces())
    assert (made.agent, made.exported_as, made.turn) == ("notes/copy", AGENT, 1)
    assert (await podium.state("notes/copy")).state == (await podium.state(AGENT)).state
    with pytest.raises(RequestConflict):
        await podium.import_archive("notes/copy", archive)
    with pytest.raises(InvalidRequest):
        await podium.import_archive("notes/bad", archive[:-100])


async def test_files_are_read_written_listed_and_deleted(podium: AsyncPodium) -> None:
    await handled(podium, AGENT, "one")
    files = podium.files(AGENT)
    assert await files.read("notes.txt") == b"one\n"
    data = bytes(range(256)) * 4096

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    changed = await files.upload("dir/new file?#.bin", pieces())
    assert (changed.turn, changed.size, changed.iteration) == (2, len(data), 1)
    assert b"".join([piece async for piece in files.chunks("dir/new file?#.bin")]) == data
    assert (await files.upload("notes.txt", b"mine")).iteration == 2
    assert await files.read("notes.txt", iteration=1) == await files.read("notes.txt", turn=1) == b"one\n"
    assert [version.size for version in await files.history("notes.txt")] == [4, 4]
    assert {(entry.name, entry.type) for entry in await files.list()} == {("notes.txt", "file"), ("dir", "directory")}
    assert [entry.name for entry in await files.list("dir")] == ["new file?#.bin"]
    await files.delete("notes.txt")
    with pytest.raises(ResourceNotFound) as caught:
        await files.read("notes.txt")
    assert caught.value.code == "unknown_file"
    for wrong in (files.read("dir"), files.list("dir/new file?#.bin")):
        with pytest.raises(InvalidRequest):
            await wrong
    for path in ("../x", "/etc/passwd", "", "a/../../b"):
        with pytest.raises(InvalidRequest) as invalid:
            await files.read(path)
        assert invalid.value.code == "invalid_path"


async def test_a_state_is_followed_by_the_patches_of_its_turns(streaming: AsyncPodium) -> None:
    podium = streaming
    await podium.ask(AGENT, "one", timeout=60)
    states = podium.follow_state(AGENT)
    seen = [await anext(states)]
    for said in ("two", "three"):
        await podium.ask(AGENT, said, timeout=60)
        seen.append(await asyncio.wait_for(anext(states), 60))
    await podium.rewind(AGENT, 1, only=["state"])
    seen.append(await asyncio.wait_for(anext(states), 60))
    await states.aclose()
    assert [(state.turn, state.state["count"]) for state in seen] == [(1, 1), (2, 2), (3, 3), (4, 1)]
    assert seen[-1] == await podium.state(AGENT)


# -- the local backend alone -------------------------------------------------------------------------------------------


async def test_a_home_without_a_service_is_read_and_says_what_messages_need(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    async with fleet_of(home) as fleet:
        await (await fleet.harness(AGENT)).send({"text": "hi"})
    async with AsyncPodium(home=home.path) as podium:
        assert (await podium.state(AGENT)).state["count"] == 1
        with pytest.raises(ServerFailed, match="no service runs on the home") as caught:
            await podium.send(AGENT, "hi")
        assert (caught.value.code, caught.value.status) == ("service_unavailable", 503)


async def test_a_directory_that_is_no_home_and_a_client_that_is_never_used(tmp_path: Path) -> None:
    async with AsyncPodium(home=tmp_path) as podium:
        with pytest.raises(ServerFailed, match="is not a podium home") as caught:
            await podium.agent(AGENT)
        assert caught.value.code == "home_error"
    async with AsyncPodium(home=tmp_path):
        pass
    with pytest.raises(InvalidRequest, match="not both"):
        AsyncPodium(home=tmp_path, url="http://127.0.0.1:8700")


def test_errors_have_one_root() -> None:
    assert all(issubclass(kind, ClientError) for kind in (InvalidRequest, MessageFailed, ServerFailed))


async def test_metrics_are_those_of_the_home(podium: AsyncPodium, fleet: HarnessFleet) -> None:
    fleet.measured = {
        ("podium_service_up", ()): 1,
        ("podium_agents_awake", ("notes", "default")): 2,
        ("podium_commit_duration_seconds", ("notes", "default")): [0.25, *[0.0] * 14, 1.0],
    }
    assert await podium.metrics() == fleet.measured
