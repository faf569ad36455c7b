"""Who gets the texts of errors: with `error_details = "operators"` only keys with the scope `admin`, from any route."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.models.calls import Attempt
from coordinator.operations.discreet_agents import DiscreetAgents
from coordinator.service.client import ServiceRefused
from coordinator.streams.event_tail import EventTails
from coordinator.streams.public_texts import is_plain, without_text
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.models.errors import ModelError
from tests.unit.coordinator.gateway.every_route import NAMES, routes_of, things_of_a_session
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.models.recorded import keep, record
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome

SECRET = "xyzzy"
AGENT = "/v1/agents/leaky/a"
EVENTS = {"Accept": "text/event-stream"}


class Leaky(BaseAgent):
    """Tells a secret in its errors."""

    agent_type = "leaky"
    max_attempts = 2

    class State(DeltaState):
        _entity_type = "leaky"
        _version = 1

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        raise ConnectionError(f"the password {SECRET} is wrong")


@pytest.fixture
def keys(tmp_path: Path) -> SqliteKeyRecords:
    (tmp_path / "keys").mkdir()
    return SqliteKeyRecords(tmp_path / "keys", "home1")


@pytest.fixture
async def home(tmp_path: Path, keys: SqliteKeyRecords) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Leaky, keys=keys, error_texts=False) as served:
        yield served
    keys.close()


def with_key(keys: SqliteKeyRecords, *scopes: Scope) -> dict[str, str]:
    return {"Authorization": f"Bearer {keys.create('test', 'default', scopes, 1)[1]}"}


async def told(home: ServedHome, key: dict[str, str]) -> dict[str, str]:
    """Return what the routes tell of a message that fails: while it is handled, and afterwards."""
    post, of_chat, of_run = (home.http.post(path, json=body, headers={**key, **more}) for path, body, more in SENDS)
    found = {"post": (await post).text, "chat": (await of_chat).text, "run": (await of_run).text}
    message_id = (await home.http.get(f"{AGENT}/inbox", headers=key)).json()["items"][0]["message_id"]
    for path in (f"/messages/{message_id}", "/inbox", "/why", "/events", "/ui"):
        found[path] = (await home.http.get(f"{AGENT}{path}", headers=key)).text
    stream = await home.http.get(f"{AGENT}/messages/{message_id}", headers={**key, **EVENTS})
    retried = await home.http.post(f"{AGENT}/messages/{message_id}/retry", json={}, headers=key)
    await until(lambda: not home.fleet.store.pending(home.fleet.store.session("leaky/a").session_id))
    return {**found, "stream": stream.text, "retry": retried.text}


SENDS: tuple[tuple[str, dict[str, Any], dict[str, str]], ...] = (
    (f"{AGENT}/messages", {"message": {"text": "hi"}}, {}),
    (
        f"{AGENT}/ui",
        {"id": "c", "messages": [{"id": "m", "role": "user", "parts": []}], "trigger": "submit-message"},
        {},
    ),
    (f"{AGENT}/ag-ui", {"threadId": "t", "runId": "r", "messages": [{"id": "n", "role": "user", "content": "hi"}]}, {}),
)


async def test_no_route_tells_the_text_of_an_error_but_to_administrators(
    home: ServedHome, keys: SqliteKeyRecords
) -> None:
    seen = await told(home, with_key(keys, Scope.WRITE))
    for place, text in seen.items():
        assert SECRET not in text, place
        if place != "retry":  # it is pending by then, without an error of its own
            assert "ConnectionError" in text or place in {"chat", "run"}, place
            assert "operators get the text" in text, place
    assert "under msg_" in seen["post"]
    everything = await told(home, with_key(keys, Scope.ADMIN))
    assert [place for place, text in everything.items() if SECRET not in text and place != "retry"] == []


async def test_a_tail_of_events_tells_it_neither(home: ServedHome, keys: SqliteKeyRecords) -> None:
    await told(home, with_key(keys, Scope.WRITE))
    agent = Address.parse("leaky/a")
    async with EventTails(home.agents) as tails:
        for agents, shown in ((home.agents, True), (DiscreetAgents(home.agents), False)):
            with tails.open(agent, types=("turn.failed",), history=agents) as reader:
                events = b"".join(event.event for event in await asyncio.wait_for(reader.next(), 30))
            assert b"ConnectionError" in events
            assert (SECRET.encode() in events) is shown


async def test_why_a_class_cannot_be_loaded_is_for_operators(
    home: ServedHome, keys: SqliteKeyRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    await told(home, with_key(keys, Scope.WRITE))
    await home.fleet.sleep("leaky/a")
    _ = (await home.fleet.harness("leaky/a")).admit({"text": "hi"})
    await home.fleet.sleep("leaky/a")
    facts = await home.fleet.facts("leaky/a")

    async def broken(_: str) -> Any:
        failed = {"in_s": 5.0, "failures": 2, "error": f"ValueError: {SECRET}"}
        return {**facts, "host": None, "problem": f"leaky.py raised ValueError: {SECRET}", "retry": failed}

    async def refuse(*_: object) -> Any:
        raise ServiceRefused("AgentFileBroken", f"leaky.py raised ValueError: {SECRET}")

    monkeypatch.setattr(home.fleet, "facts", broken)
    monkeypatch.setattr(home.fleet, "admit", refuse)
    for scope, shown in ((Scope.WRITE, False), (Scope.ADMIN, True)):
        key = with_key(keys, scope)
        why = (await home.http.get(f"{AGENT}/why", headers=key)).json()
        for name in ("problem", "wake_error", "waits_for"):
            assert (SECRET in why[name]) is shown, name
        refused = await home.http.post(f"{AGENT}/messages", json={"message": {}}, headers=key)
        assert "AgentFileBroken" in refused.text or shown
        assert (SECRET in refused.text) is shown


async def told_of_models(home: ServedHome, key: dict[str, str]) -> dict[str, str]:
    """Return what the routes tell of a model that fails, of a profile that there is not, and of recorded calls."""
    ask = {"model": "code.fast", "input": "hi"}

    async def respond(**fields: Any) -> str:
        return (await home.http.post("/v2/responses", json={**ask, **fields}, headers=key)).text

    found = {"whole": await respond(), "stream": await respond(stream=True), "unknown": await respond(model="nope")}
    path = f"/v2/responses/{json.loads(found['whole'])['error']['response_id']}"
    for place, parameters in (("kept", {}), ("replayed", {"stream": "true"})):
        found[place] = (await home.http.get(path, params=parameters, headers=key)).text
    found["calls"] = (await home.http.get("/v1/models/calls", headers=key)).text
    return found


def a_call_of_a_model_that_failed(home: ServedHome) -> None:
    """Record one, and have further ones fail."""
    home.models.answer = lambda _: [ModelError(f"no connection to {SECRET}", "unavailable")]
    failed = Attempt("openai", "m", 10, None, 30, f"unavailable: no connection to {SECRET}", "code.fast")
    error: Any = {"kind": "unavailable", "message": f"no connection to {SECRET}"}
    keep(home.agents.stores.home.path, record("call_1", status="failed", error=error, attempts=(failed,)))


async def test_what_models_say_is_for_operators(home: ServedHome, keys: SqliteKeyRecords) -> None:
    a_call_of_a_model_that_failed(home)
    seen = await told_of_models(home, with_key(keys, Scope.WRITE))
    for place, text in seen.items():
        assert SECRET not in text, place
        assert "operators get the text" in text, place
        assert ("code.fast" in text) is (place in {"stream", "kept", "replayed", "calls"}), "no other profile is named"
        assert ("unknown_profile" if place == "unknown" else "unavailable") in text, place
    everything = await told_of_models(home, with_key(keys, Scope.ADMIN))
    assert [place for place, text in everything.items() if SECRET not in text] == ["unknown"]
    assert "code.fast" in everything["unknown"]


HAVE_TEXTS = {
    *("explain_agent", "get_message", "list_events", "list_inbox", "list_model_calls"),
    *("get_agent_chat", "get_chat", "get_response"),
}
"""The routes that read something with the text of an error, for callers who may get it."""


async def test_no_reading_route_of_the_document_tells_the_text_of_an_error(
    home: ServedHome, keys: SqliteKeyRecords
) -> None:
    admin = with_key(keys, Scope.ADMIN)
    await told(home, admin)
    parked, *_ = (await home.http.get(f"{AGENT}/inbox", headers=admin)).json()["items"]
    ids = {**NAMES, **await things_of_a_session(home, keys, "default"), "message_id": parked["message_id"]}
    a_call_of_a_model_that_failed(home)
    asked = {"model": "code.fast", "input": "hi", "session_id": ids["session_id"], "branch_id": ids["branch_id"]}
    body = {**asked, "head_event_id": ids["event_id"]}
    failed = (await home.http.post("/v2/responses", json=body, headers=admin)).json()
    ids["response_id"] = failed["error"]["response_id"]
    routes = [route for route in routes_of(home.app) if route.method == "GET"]

    async def telling(key: dict[str, str]) -> set[str]:
        answers = {route.name: await home.http.get(route.at("leaky/a", ids), headers=key) for route in routes}
        return {name for name, answer in answers.items() if SECRET in answer.text}

    assert await telling(with_key(keys, Scope.WRITE)) == set(), "see DiscreetAgents"
    assert await telling(admin) == HAVE_TEXTS


async def test_a_deadline_is_told_to_everyone(home: ServedHome, keys: SqliteKeyRecords) -> None:
    body = {"model": "code.fast", "input": "hi", "qos": {"deadline_ms": 0}}
    late = await home.http.post("/v2/responses", json=body, headers=with_key(keys, Scope.WRITE))
    assert late.json()["error"]["message"] == "the deadline of 0 ms is over"


async def test_without_the_setting_every_key_gets_it(tmp_path: Path, keys: SqliteKeyRecords) -> None:
    async with served_home(tmp_path / "open", Leaky, keys=keys) as home:
        seen = await told(home, with_key(keys, Scope.WRITE))
        assert [place for place, text in seen.items() if SECRET not in text and place != "retry"] == []
    keys.close()


@pytest.mark.parametrize("kind", ["HostLost", "Cancelled", "AgentAsleep", "InboxFull"])
def test_what_podium_itself_says_is_for_everyone(kind: str) -> None:
    error = {"type": kind, "message": "its process ended"}
    assert is_plain(kind)
    assert without_text(error, "msg_1") == error


@pytest.mark.parametrize(
    "kind", ["ModelError", "AgentFileBroken", "AskFailed", "StepFailed", "Permanent", "ValueError"]
)
def test_what_agents_and_models_say_is_not(kind: str) -> None:
    hidden = without_text({"type": kind, "message": SECRET}, "msg_1")
    assert hidden["type"] == kind
    assert SECRET not in hidden["message"]
    assert "msg_1" in hidden["message"]
