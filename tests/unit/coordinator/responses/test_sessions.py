"""Responses on sessions: what the model is sent of bundles, branches, artifacts and earlier responses."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from coordinator.home import Home
from coordinator.operations.errors import UnknownBranch, UnknownSession, UnknownSessionArtifact, UnknownSessionEvent
from coordinator.operations.stores import HomeStores
from coordinator.responses.body import ResponseBody
from coordinator.responses.reading import SessionReader
from coordinator.responses.responses import HomeResponses
from coordinator.sessions.artifacts import NewArtifact, create_artifact, delete_artifact
from podium.models.port import ImageBlock, LLMMessage, TextDelta, ToolCall, ToolCallDone
from tests.unit.coordinator.responses.loops import Loop
from tests.unit.coordinator.responses.model_calls import TestModels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from coordinator.responses.objects import ResponseObject


class Served:
    """A session, and a model that repeats what it is told last."""

    def __init__(self, home: Home, clock: ManualClock) -> None:
        self.clock = clock
        self.stores = HomeStores(home)
        self.models = TestModels()
        self.loop = Loop(self.stores.writable_journal, self.stores.blobs, IdSource(), clock, "acme")
        self.responses = HomeResponses(
            self.stores, lambda store, blobs: SessionReader(store, blobs, clock), self.models, clock, IdSource()
        )

    async def respond(self, text: Any, loop: Loop | None = None, tenant: str = "acme", **more: Any) -> ResponseObject:
        self.clock.advance(0.01)
        at = loop or self.loop
        where = {"session_id": at.session_id, "branch_id": at.branch_id}
        body = ResponseBody.model_validate({"model": "code.fast", "input": text, **where, **more})
        answer = await (await self.responses.respond(tenant, body)).result()
        self.clock.advance(0.01)
        return answer

    async def turn(self, text: str, loop: Loop | None = None) -> ResponseObject:
        at = loop or self.loop
        at.append("user_message")
        answer = await self.respond(text, at)
        at.append("assistant_message")
        return answer

    def sent(self) -> list[str]:
        """Return what the model was sent last, each message with the first letter of its role."""
        return [f"{message.role[0]}:{message.text}" for message in self.models.requests[-1].messages]

    def artifact(self, content: Any, **more: Any) -> str:
        new = NewArtifact(content, **more)
        store, blobs = self.loop.store, self.loop.blobs
        made = create_artifact(store, blobs, "acme", new, new.data(), None, IdSource(), self.clock.now_ms())
        return made["id"]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(Home(tmp_path / "home").create(), ManualClock())
    try:
        async with served.responses:
            yield served
    finally:
        served.stores.close()


async def test_the_loop_remembers_and_a_response_appends_nothing(served: Served) -> None:
    """S0.23, S0.26"""
    served.loop.open()
    first = await served.turn("I am Ann")
    assert (first["output_text"], first["version"]) == ("echo: I am Ann", 1)
    second = await served.turn("who am I?")
    assert served.sent() == ["u:I am Ann", "a:echo: I am Ann", "u:who am I?"]
    assert (second["session_id"], second["branch_id"]) == (served.loop.session_id, served.loop.branch_id)
    assert second["version"] == 3
    await served.respond("a response that nobody appends")
    assert served.loop.store.branch(served.loop.branch_id).head.seq == 4  # type: ignore[arg-type]


async def test_a_fork_remembers_and_leaves_the_main_line(served: Served) -> None:
    """S0.20, S0.22"""
    served.loop.open()
    await served.turn("one")
    fork = served.loop.fork()
    await served.turn("aside", fork)
    assert served.sent() == ["u:one", "a:echo: one", "u:aside"]
    await served.turn("two")
    assert served.sent() == ["u:one", "a:echo: one", "u:two"]
    await served.respond([], fork)
    assert served.sent() == ["u:one", "a:echo: one", "u:aside", "a:echo: aside"]


async def test_bundles_are_the_stable_beginning(served: Served) -> None:
    """S0.29, S0.30"""
    served.loop.open("first document", "second document")
    await served.turn("q1")
    before = served.models.requests[-1].messages
    await served.turn(
        "q2",
    )
    after = served.models.requests[-1].messages
    assert "first document" in before[0].text
    assert "second document" in before[1].text
    assert (before[0].role, before[0].cache, before[1].cache) == ("system", None, "long")
    assert after[:2] == before[:2]
    assert after[-2].cache == "short"
    assert served.models.requests[0].prompt_cache_key == served.models.requests[1].prompt_cache_key
    other = Loop(**{**vars(served.loop), "version": 0, "head": None})
    other.open()
    await served.respond("q3", other)
    assert served.models.requests[-1].messages[:2] == before[:2]


async def test_instructions_come_between_bundles_and_transcript_and_hold_once(served: Served) -> None:
    served.loop.open("document")
    served.loop.append("user_message")
    rules = [{"role": "developer", "content": "rule"}, {"role": "user", "content": "q"}]
    await served.respond(rules, instructions="be brief")
    assert served.sent()[1:] == ["s:be brief", "s:rule", "u:q"]
    served.loop.append("assistant_message")
    await served.respond("next")
    assert served.sent()[1:] == ["u:q", "a:echo: q", "u:next"]


async def test_artifacts_are_read_for_the_model(served: Served) -> None:
    """S0.18"""
    served.loop.open()
    text = served.artifact("a long text")
    image = served.artifact("iVBORw0KGgo=", content_encoding="base64", content_media_type="image/png")
    binary = served.artifact("/w==", content_encoding="base64")
    gone = served.artifact("gone")
    served.loop.append("tool_result", None, text)
    for name in (image, binary, gone):
        served.loop.append("user_message", None, name)
    delete_artifact(served.loop.store, "acme", gone, served.clock.now_ms())
    await served.respond("q")
    messages = served.models.requests[-1].messages
    assert messages[0].text == "Result of a tool:\na long text"
    assert messages[1].content == (ImageBlock("image/png", b"\x89PNG\r\n\x1a\n"),)
    assert messages[2].text == f"(the artifact {binary}, application/octet-stream, 1 bytes)"
    assert messages[3].text == f"(the artifact {gone} was deleted)"


async def test_an_artifact_that_is_deleted_or_expires_is_told_no_more(served: Served) -> None:
    served.loop.open()
    secret = served.artifact("a secret")
    passing = served.artifact("for a week", retention_class="temporary")
    for name in (secret, passing):
        served.loop.append("user_message", None, name)
    await served.respond("q")
    assert served.sent() == ["u:a secret", "u:for a week", "u:q"]
    delete_artifact(served.loop.store, "acme", secret, served.clock.now_ms())
    gone = [f"u:(the artifact {name} was deleted)" for name in (secret, passing)]
    await served.respond("q")
    assert served.sent() == [gone[0], "u:for a week", "u:q"]
    served.clock.advance(timedelta(days=7).total_seconds())
    await served.respond("q")
    assert served.sent() == [*gone, "u:q"]


async def test_a_tool_that_the_client_runs(served: Served) -> None:
    served.loop.open()
    served.models.answer = lambda _: [ToolCallDone(ToolCall("c1", "find", {"a": 1}))]
    tool = {"type": "function", "name": "find", "description": "Finds.", "parameters": {"type": "object"}}
    served.loop.append("user_message")
    asked = await served.respond("find it", tools=[tool])
    assert served.models.requests[-1].tools == [
        {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}
    ]
    assert asked["output"][0]["arguments"] == '{"a":1}'
    served.loop.append("assistant_message")
    served.loop.append("tool_result", "42")
    served.models.answer = lambda _: [TextDelta("it is 42")]
    await served.respond([], tools=[tool], tool_choice="none")
    last = served.models.requests[-1]
    assert last.tools is None
    assert last.messages == [
        LLMMessage("user", "find it"),
        LLMMessage("assistant", "", (ToolCall("c1", "find", {"a": 1}, None, 0),)),
        LLMMessage("tool", "42", tool_call_id="c1", cache="short"),
    ]


async def test_a_deleted_response_is_forgotten(served: Served) -> None:
    served.loop.open()
    first = await served.turn("secret")
    await served.turn("next")
    await served.responses.delete("acme", first["id"])
    await served.respond("q")
    assert served.sent() == ["u:next", "a:echo: next", "u:q"]


async def test_a_head_names_what_is_answered(served: Served) -> None:
    served.loop.open()
    await served.turn("one")
    head = served.loop.append("user_message")
    served.loop.append("note", "somebody else was faster")
    answer = await served.respond("two", head_event_id=head)
    assert served.sent() == ["u:one", "a:echo: one", "u:two"]
    assert (answer["head_event_id"], answer["version"]) == (head, 3)
    with pytest.raises(UnknownSessionEvent):
        await served.respond("q", head_event_id="evt_none")


async def test_what_is_not_of_the_tenant_or_the_session_is_unknown(served: Served) -> None:
    served.loop.open()
    mine = served.loop
    other = Loop(mine.store, mine.blobs, IdSource(), served.clock, "other")
    other.open()
    with pytest.raises(UnknownSession):
        await served.respond("q", mine, tenant="other")
    with pytest.raises(UnknownSession):
        await served.respond("q", other)
    foreign = Loop(mine.store, mine.blobs, IdSource(), served.clock, "acme", mine.session_id, other.branch_id)
    with pytest.raises(UnknownBranch):
        await served.respond("q", foreign)
    with pytest.raises(UnknownSessionArtifact):
        mine.append("user_message", None, "art_none")
    assert served.models.requests == []


async def test_a_process_that_starts_again_tells_the_same(served: Served) -> None:
    served.loop.open("document")
    for number in range(3):
        await served.turn(f"q{number}")
    await served.respond("last")
    warm = served.models.requests[-1].messages
    again = HomeResponses(
        served.stores,
        lambda store, blobs: SessionReader(store, blobs, served.clock),
        served.models,
        served.clock,
        IdSource(),
    )
    async with again:
        where = {"session_id": served.loop.session_id}
        body = ResponseBody.model_validate({"model": "code.fast", "input": "last", **where})
        await (await again.respond("acme", body)).result()
    assert served.models.requests[-1].messages == warm
