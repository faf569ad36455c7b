"""Reading agents over HTTP: lists, states and events, their parameters, and the errors of what cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from coordinator.service.client import ServiceError, ServiceRefused
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Notes) as served:
        yield served


async def test_agents_are_listed_by_address_a_page_at_a_time(home: ServedHome) -> None:
    for key in ("bob", "alice", "carol"):
        await home.send(f"notes/{key}", "hi")
    await home.fleet.sleep("notes/bob")
    first = await home.get("/agents", limit=2)
    assert [(item["agent"], item["status"]) for item in first["items"]] == [
        ("notes/alice", "awake"),
        ("notes/bob", "asleep"),
    ]
    assert first["items"][0] == {
        **(await home.get("/agents/notes/alice")),
        "type": "notes",
        "key": "alice",
        "turn": 1,
        "pending": 0,
        "parked": 0,
        "isolation": "process",
        "sandbox": "landlock",
        "memory": 1024,
    }
    assert (first["items"][1]["isolation"], first["items"][1]["memory"]) == (None, None)
    rest = await home.get("/agents", limit=2, cursor=first["next_cursor"])
    assert [item["agent"] for item in rest["items"]] == ["notes/carol"]
    assert (first["remaining"], rest["remaining"], rest["next_cursor"]) == (1, 0, None)
    assert [item["agent"] for item in (await home.get("/agents", awake="true"))["items"]] == [
        "notes/alice",
        "notes/carol",
    ]
    assert (await home.get("/agents", type="other")) == {"items": [], "next_cursor": None, "remaining": 0}


@pytest.mark.parametrize("silence", [ServiceError("no service"), ServiceRefused("InvalidInput", "an older one")])
async def test_agents_are_listed_without_a_service(home: ServedHome, silence: Exception) -> None:
    await home.send("notes/a", "hi")
    home.fleet.silence = silence
    (agent,) = (await home.get("/agents"))["items"]
    assert (agent["status"], agent["turn"], agent["isolation"], agent["memory"]) == ("awake", 1, None, None)
    assert await home.get("/agents/notes/a") == agent
    assert (await home.error("GET", "/v1/agents/notes/nobody", 404))["type"]


async def test_a_cursor_serves_its_own_list_only(home: ServedHome) -> None:
    for key in ("a", "b"):
        await home.send(f"notes/{key}", "hi", "ho")
    cursor = (await home.get("/agents", limit=1))["next_cursor"]
    events = (await home.get("/agents/notes/a/events", limit=1))["next_cursor"]
    for path in (
        f"/v1/agents/notes/a/events?cursor={cursor}",
        f"/v1/agents/notes/b/events?cursor={events}",
        f"/v1/agents/notes/a/events?cursor={events}&type=user_message",
        f"/v1/agents?cursor={events}",
        f"/v1/agents?type=notes&cursor={cursor}",
        "/v1/agents?cursor=%C3%A4",
        "/v1/agents?cursor=W10",
        "/v1/agents?cursor=",
    ):
        assert (await home.error("GET", path, 400))["code"] == "invalid_cursor", path


async def test_the_state_after_any_turn(home: ServedHome) -> None:
    await home.send("notes/a", "one", "two")
    assert (await home.get("/agents/notes/a/state"))["state"] == {"count": 2}
    first = await home.get("/agents/notes/a/state", at=1)
    assert (first["agent"], first["turn"], first["state"]) == ("notes/a", 1, {"count": 1})
    assert (await home.error("GET", "/v1/agents/notes/a/state?at=9", 404))["code"] == "unknown_turn"
    assert (await home.error("GET", "/v1/agents/notes/nobody/state", 404))["code"] == "unknown_agent"
    error = await home.error("GET", "/v1/agents/notes/a/state?at=now", 400)
    assert (error["code"], error["param"], error["type"]) == ("invalid_parameter", "at", "invalid_request_error")


async def test_events_are_paged_and_filtered(home: ServedHome) -> None:
    await home.send("notes/a", "one", "two", "three")
    seen: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = await home.get("/agents/notes/a/events", limit=4, **cursor)
        seen += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert all(event["visible"] for event in seen)
    said = await home.get("/agents/notes/a/events", type=["user_message"], after=3)
    assert [event["payload"]["message"]["text"] for event in said["items"]] == ["two", "three"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nothing", 404, "unknown_path"),
        ("/v1/agents/notes", 404, "unknown_path"),
        ("/v1/agents/notes/a/state/", 404, "unknown_path"),
        ("/v1/agents/no%20tes/a", 400, "invalid_address"),
        ("/v1/agents/notes/a..b", 400, "invalid_address"),
        ("/v1/agents?limit=0", 400, "invalid_parameter"),
        ("/v1/agents?limit=100000", 400, "invalid_parameter"),
        ("/v1/agents/notes/a/state?at=99999999999999999999", 400, "invalid_parameter"),
    ],
)
async def test_what_cannot_be_read_is_refused_in_one_shape(home: ServedHome, path: str, status: int, code: str) -> None:
    assert (await home.error("GET", path, status))["code"] == code
    assert (await home.error("PATCH", "/v1/agents", 405))["code"] == "method_not_allowed"


async def test_a_method_that_a_path_does_not_have_is_told_those_that_it_has(home: ServedHome) -> None:
    for path, allowed in (
        ("/v1/agents/notes/a", "DELETE, GET"),
        ("/v1/agents/notes/a/files/x/y", "DELETE, GET, HEAD, PUT"),
        ("/v1/agents/notes/a/rewind", "POST"),
    ):
        answer = await home.http.patch(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_health_needs_nothing_of_the_agents(home: ServedHome) -> None:
    assert (await home.http.get("/healthz")).json() == {"status": "ok"}
    assert (await home.http.get("/readyz")).json() == {"status": "ready"}


async def test_a_home_that_cannot_be_used_is_not_ready(home: ServedHome, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost() -> None:
        raise ServiceError("no service runs on the home /srv/secret; podium up starts one")

    monkeypatch.setattr(home.fleet, "client", lost)
    error = await home.error("GET", "/readyz", 503)
    assert (error["code"], "secret" in error["message"]) == ("service_unavailable", False)
    assert (await home.http.get("/healthz")).json() == {"status": "ok"}


async def test_an_unexpected_error_is_logged_and_tells_nothing(
    home: ServedHome, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("the password is 1234")

    monkeypatch.setattr(home.agents, "agent", fail)
    error = await home.error("GET", "/v1/agents/notes/a", 500)
    assert (error["type"], error["code"], error["param"]) == ("api_error", "internal_error", None)
    assert "1234" not in error["message"]
    logged = caplog.text
    caplog.clear()
    assert error["message"].rpartition(" ")[2] in logged
    assert "1234" in logged


async def test_the_document_names_each_operation_once(home: ServedHome) -> None:
    document = (await home.http.get("/openapi.json")).json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert all("500" in operation["responses"] for operation in operations)
    assert "HTTPValidationError" not in str(document), "what is not so is not told"
    errors = [
        (operation["operationId"], list(answer["content"]))
        for operation in operations
        for status, answer in operation["responses"].items()
        if int(status) >= 400
    ]
    assert [name for name, content in errors if content != ["application/json"]] == []


async def test_limits_have_their_names_of_json_schema(home: ServedHome) -> None:
    # Of a number that a validator of Python reads first, Pydantic writes them as it has them, and no client reads them.
    def keywords(schema: object) -> Iterator[str]:
        if isinstance(schema, dict):
            for name, value in schema.items():
                if not isinstance(value, dict):
                    yield name
                yield from keywords(value)
        elif isinstance(schema, list):
            for item in schema:
                yield from keywords(item)

    document = (await home.http.get("/openapi.json")).json()
    found = set(keywords(document))
    assert {"minimum", "maximum", "maxLength"} <= found
    assert not {"ge", "le", "gt", "lt", "min_length", "max_length", "multiple_of"} & found
