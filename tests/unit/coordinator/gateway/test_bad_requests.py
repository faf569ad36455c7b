"""Bad requests to every route that takes such a one: refused in the one shape of errors, and nothing is changed.

The routes are those of the OpenAPI document, see `every_route`. What only one route refuses is tested beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from chronicle.clock import ManualClock
from coordinator.gateway.protection.middleware import Protection
from coordinator.gateway.protection.rules import Rules
from tests.unit.coordinator.gateway.documented_answers import checking
from tests.unit.coordinator.gateway.every_route import FOREIGN, OF_LINKS, tenants_of_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.every_route import Route, Tenants

AGENT: Final = f"notes/{FOREIGN}"
EXTENDED_BY_CLIENTS: Final = {"send_chat", "send_chat_to_agent", "run_thread", "run_agent"}
"""Front ends add fields of their own to these bodies."""
CUT: Final = b'{"message": {"text": "hal'


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    async with tenants_of_home(tmp_path) as tenants:
        yield tenants


def operations(tenants: Tenants) -> Iterator[tuple[Route, dict[str, Any]]]:
    """Return each route with its operation in the document."""
    paths = tenants.home.app.openapi()["paths"]
    for route in tenants.routes():
        yield route, paths[route.path][route.method.lower()]


def with_json_bodies(tenants: Tenants) -> list[Route]:
    found = [
        route
        for route, operation in operations(tenants)
        if "application/json" in operation.get("requestBody", {}).get("content", {}) and route.name not in OF_LINKS
    ]
    assert len(found) > 15
    return found


def with_parameter(tenants: Tenants, name: str) -> list[Route]:
    return [
        route
        for route, operation in operations(tenants)
        if name in {parameter["name"].lower() for parameter in operation.get("parameters", ())}
    ]


def assert_refused(answer: httpx.Response, route: Route, status: int, code: str, param: str | None = None) -> None:
    assert answer.status_code == status, (route, answer.text)
    error = answer.json()["error"]
    assert {"message", "type", "code", "param"} <= error.keys()
    assert (error["code"], error["type"], error["param"]) == (code, "invalid_request_error", param), route


async def test_bodies_that_are_not_json_or_of_another_type(tenants: Tenants) -> None:
    before, key = await tenants.everything(), tenants.headers("default")
    for route in with_json_bodies(tenants):
        url = route.at(AGENT, tenants.ids)
        for content, kind, status, code in (
            (CUT, "application/json", 400, "invalid_json"),
            (b'{"message": "\xff"}', "application/json", 400, "invalid_json"),
            (b"{}", "text/plain", 415, "unsupported_media_type"),
            (b"message=x", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        ):
            headers = {**key, "Content-Type": kind}
            answer = await tenants.home.http.request(route.method, url, content=content, headers=headers)
            assert_refused(answer, route, status, code)
    assert await tenants.everything() == before


async def test_fields_that_are_not_known(tenants: Tenants) -> None:
    before, key = await tenants.everything(), tenants.headers("default")
    for route in with_json_bodies(tenants):
        if route.name in EXTENDED_BY_CLIENTS:
            continue
        body = {**(route.body(AGENT, tenants.ids) or {}), "mesage": 1}
        answer = await tenants.home.http.request(route.method, route.at(AGENT, tenants.ids), json=body, headers=key)
        assert_refused(answer, route, 400, "unknown_field", "mesage")
    assert await tenants.everything() == before


async def test_cursors_of_another_list(tenants: Tenants) -> None:
    await tenants.home.send("notes/bob", "hi")
    key = tenants.headers("default")

    async def cursor_of(path: str) -> str:
        answer = await tenants.home.http.get(f"{path}?limit=1", headers=key)
        return str(answer.json()["next_cursor"])

    agents, events = await cursor_of("/v1/agents"), await cursor_of(f"/v1/agents/{AGENT}/events")
    routes = with_parameter(tenants, "cursor")
    assert len(routes) > 10
    for route in routes:
        url = route.at(AGENT, tenants.ids)
        for cursor in (events if route.name == "list_agents" else agents, "x"):
            answer = await tenants.home.http.get(url, params={"cursor": cursor}, headers=key)
            assert_refused(answer, route, 400, "invalid_cursor", "cursor")


async def test_ids_of_events_of_another_stream(tenants: Tenants) -> None:
    key = {**tenants.headers("default"), "Accept": "text/event-stream"}
    routes = with_parameter(tenants, "last-event-id")
    assert {route.name for route in routes} >= {"get_message", "list_events"}
    for route in routes:
        for last in ("msg_00000000000000000000000000/0", "none"):
            headers = {**key, "Last-Event-ID": last}
            answer = await tenants.home.http.get(route.at(AGENT, tenants.ids), headers=headers)
            assert_refused(answer, route, 400, "invalid_last_event_id", answer.json()["error"]["param"])


async def test_what_is_refused_before_a_route_is_in_its_document(tenants: Tenants) -> None:
    before, key, app = await tenants.everything(), tenants.headers("default"), tenants.home.app
    protected = Protection(app, Rules(), ManualClock())
    transport = httpx.ASGITransport(protected)
    hooks = {"response": [checking(app, tenants.home.leaving)]}
    refused: list[tuple[dict[str, str], int]] = [
        ({"X-Long": "x" * 70_000}, 431),
        ({"Content-Length": "2", "Transfer-Encoding": "chunked"}, 400),
        ({"Host": "elsewhere.example"}, 403),
        ({"Origin": "https://elsewhere.example"}, 403),
    ]
    of_posts = [({"Content-Type": "text/plain"}, 415), ({"Content-Length": str(1 << 40)}, 413)]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", event_hooks=hooks) as http:
        for route in tenants.routes():
            json = {"Content-Type": "application/json"} if route.method == "POST" else {}
            for headers, status in [*refused, *(of_posts if route.method == "POST" else [])]:
                sent = {**key, **json, **headers}
                answer = await http.request(route.method, route.at(AGENT, tenants.ids), headers=sent)
                if status == 403 and "Host" in headers and route.path in {"/healthz", "/readyz"}:
                    status = 200  # noqa: PLW2901 - probes ask by any name
                assert answer.status_code == status, (route, headers, answer.text)
    assert await tenants.everything() == before
