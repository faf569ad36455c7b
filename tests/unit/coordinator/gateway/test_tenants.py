"""No route tells a caller of one tenant anything about an agent of another: it answers as for one that does not exist.

The routes are those of the OpenAPI document, see `every_route`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from fastapi.routing import iter_route_contexts

from coordinator.access.caller import Scope
from coordinator.gateway.page.files import ANSWERING
from podium.address import Address
from tests.unit.coordinator.gateway.every_route import (
    FOREIGN,
    NOBODY,
    OWN,
    Tenants,
    tenants_of_home,
    things_of_a_session,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

SENDING: Final = {"run_agent", "send_chat_to_agent", "send_message"}
"""Those that make the agent that they name, if it does not exist."""
IDLE: Final = {"resume_chat", "resume_chat_of_agent"}
"""Those that answer 204 if nothing runs, also of an agent that does not exist: a page asks before its first message."""


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    async with tenants_of_home(tmp_path) as tenants:
        yield tenants


def unknown(ids: dict[str, str]) -> dict[str, str]:
    """Return ids of the same forms that name nothing."""
    return {name: value if name == "path" else value[:-4] + "0000" for name, value in ids.items()}


def told(answer: httpx.Response, agent: str, ids: dict[str, str]) -> tuple[int, dict[str, str], str]:
    """Return what an answer tells beyond the names that the request had."""
    text = answer.text
    for name, value in ids.items():
        text = text.replace(value, f"<{name}>")
    for name in (agent, agent.rpartition(":")[2], agent.rpartition("/")[2]):
        text = text.replace(name, "<agent>")
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return answer.status_code, headers, text


async def test_the_document_has_every_route(tenants: Tenants) -> None:
    contexts = iter_route_contexts(tenants.home.app.routes)
    served = {(method, context.path_format) for context in contexts for method in context.methods or ()}
    described = {(route.method, route.path) for route in tenants.routes()}
    assert len(described) > 25
    assert served - described == {("GET", path) for path in ("/openapi.json", *ANSWERING)}


async def test_an_agent_of_another_tenant_is_answered_as_one_that_does_not_exist(tenants: Tenants) -> None:
    """By its name in the own tenant, and by its name with the other tenant's."""
    before = await tenants.everything()
    asked = 0
    for route in tenants.routes():
        if not route.has_agent or route.name in SENDING:
            continue
        for prefix in ("", "default:", "other:"):
            for accept in ("application/json", "text/event-stream"):
                for ids in (tenants.ids, unknown(tenants.ids)):
                    there, absent = f"{prefix}notes/{FOREIGN}", f"{prefix}notes/{NOBODY}"
                    real = await tenants.ask(route, there, ids, "acme", Accept=accept)
                    none = await tenants.ask(route, absent, ids, "acme", Accept=accept)
                    assert told(real, there, ids) == told(none, absent, ids), (route, prefix, accept)
                    allowed = {403, 404, 204} if route.name in IDLE else {403, 404}
                    assert real.status_code in allowed, (route, prefix, real.text)
                    asked += 1
    assert asked > 100
    assert await tenants.everything() == before


async def test_a_message_goes_to_an_agent_of_the_own_tenant_only(tenants: Tenants) -> None:
    before = await tenants.everything()
    for route in tenants.routes():
        if route.name not in SENDING:
            continue
        for prefix in ("default:", "other:"):
            there, absent = f"{prefix}notes/{FOREIGN}", f"{prefix}notes/{NOBODY}"
            real = await tenants.ask(route, there, tenants.ids, "acme")
            none = await tenants.ask(route, absent, {}, "acme")
            assert told(real, there, {}) == told(none, absent, {})
            assert real.status_code == 404
    (route,) = (route for route in tenants.routes() if route.name == "send_message")
    answer = await tenants.ask(route, f"notes/{FOREIGN}", tenants.ids, "acme")
    assert (answer.status_code, answer.json()["data"]) == (200, {"count": 1})
    assert await tenants.everything() == before


@pytest.mark.parametrize("named", [f"notes/{NOBODY}", f"acme:notes/{NOBODY}"])
async def test_an_answer_names_agents_without_the_callers_tenant(tenants: Tenants, named: str) -> None:
    answer = await tenants.home.http.get(f"/v1/agents/{named}", headers=tenants.headers("acme"))
    assert answer.status_code == 404
    assert f"notes/{NOBODY}" in answer.json()["error"]["message"]
    assert "acme" not in answer.text


async def test_things_of_another_tenant_are_not_found_below_an_own_agent(tenants: Tenants) -> None:
    """Messages and artifacts have ids that are unique in the whole home."""
    before = await tenants.everything()
    asked = 0
    for route in tenants.routes():
        named = [name for name in ("message_id", "artifact_id") if f"{{{name}}}" in route.path]
        if not route.has_agent or not named:
            continue
        own = f"notes/{OWN}"
        real = await tenants.ask(route, own, tenants.ids, "acme")
        none = await tenants.ask(route, own, unknown(tenants.ids), "acme")
        assert told(real, own, tenants.ids) == told(none, own, unknown(tenants.ids)), route
        assert real.status_code == 404, (route, real.text)
        asked += 1
    assert asked >= 5
    assert await tenants.everything() == before


async def test_lists_and_cursors_have_the_own_tenant_only(tenants: Tenants) -> None:
    listed = (await tenants.home.http.get("/v1/agents", headers=tenants.headers("acme"))).json()
    assert [item["agent"] for item in listed["items"]] == [f"notes/{OWN}"]
    await tenants.home.send("notes/bob", "hi")
    first = await tenants.home.http.get("/v1/agents?limit=1", headers=tenants.headers("default"))
    cursor = first.json()["next_cursor"]
    refused = await tenants.home.http.get(f"/v1/agents?limit=1&cursor={cursor}", headers=tenants.headers("acme"))
    assert refused.json()["error"]["code"] == "invalid_cursor"
    empty = (await tenants.home.http.get("/v1/agents", headers=tenants.headers("other"))).json()
    assert empty == {"items": [], "next_cursor": None, "remaining": 0}


async def test_routes_without_an_agent_tell_nothing_of_other_tenants(tenants: Tenants) -> None:
    """The names, ids and contents of the other tenant are in no answer."""
    before = await tenants.everything()
    for route in tenants.routes():
        if route.has_agent:
            continue
        for agent in (f"notes/{FOREIGN}", f"default:notes/{FOREIGN}"):
            answer = await tenants.ask(route, agent, tenants.ids, "acme")
            assert answer.status_code < 500, (route, answer.text)
            secrets = {FOREIGN, "theirs", *tenants.ids.values()} - (
                {FOREIGN} if route.name == "create_token" else set()
            )
            secrets -= set(route.at(agent, tenants.ids).split("/"))
            secrets -= {tenants.ids[name] for name in route.names_of_sessions}
            assert not [secret for secret in secrets if secret in answer.text], (route, answer.text)
    assert await tenants.everything() == before
    assert tenants.keys.listed("default")


async def test_things_of_sessions_of_another_tenant_are_answered_as_those_that_do_not_exist(tenants: Tenants) -> None:
    """One foreign id at a time, below things of the own tenant, and all of them."""
    before = await tenants.everything()
    own = {**tenants.ids, **await things_of_a_session(tenants.home, tenants.keys, "acme")}
    absent = unknown(tenants.ids)
    asked = 0
    for route in sorted(tenants.routes(), key=lambda route: route.method == "DELETE"):
        named = route.names_of_sessions
        for foreign in [*([name] for name in named), named] if named else ():
            real_ids = {**own, **{name: tenants.ids[name] for name in foreign}}
            none_ids = {**own, **{name: absent[name] for name in foreign}}
            real = await tenants.ask(route, "", real_ids, "acme")
            none = await tenants.ask(route, "", none_ids, "acme")
            assert told(real, "-", real_ids) == told(none, "-", none_ids), (route, foreign)
            assert real.status_code in {404, 409}, (route, foreign, real.text)
            assert "secret" not in real.text
            asked += 1
    assert asked > 25
    assert await tenants.everything() == before


# S0.1
async def test_the_same_requests_reach_the_callers_own_sessions(tenants: Tenants) -> None:
    order = sorted(tenants.routes(), key=lambda route: (route.method == "DELETE", "sessions" in route.path))
    for route in order:
        if route.names_of_sessions:
            answer = await tenants.ask(route, "", tenants.ids, "default")
            assert answer.status_code < 300, (route, answer.text)


async def test_a_key_of_one_agent_reads_its_session_and_no_other(tenants: Tenants) -> None:
    address = Address.parse(f"notes/{FOREIGN}")
    key = tenants.keys.create("one", "default", [Scope.WRITE], 1, agent=address)[1]
    headers = {"Authorization": f"Bearer {key}"}
    store = tenants.home.fleet.store
    own, mine = store.session(address.name), f"/v2/sessions/{tenants.ids['session_id']}"

    async def status(method: str, path: str) -> int:
        return (await tenants.home.http.request(method, path, json={}, headers=headers)).status_code

    for part in ("", "/branches", f"/branches/{own.main_branch_id}", f"/branches/{own.main_branch_id}/events"):
        assert await status("GET", f"/v2/sessions/{own.session_id}{part}") == 200
    branch = tenants.ids["branch_id"]
    for part in ("", "/branches", f"/branches/{branch}", f"/branches/{branch}/events"):
        assert await status("GET", mine + part) == 404
    for path in ("/v2/sessions", "/v2/artifacts", "/v2/bundles", f"/v2/bundles/{tenants.ids['bundle_id']}"):
        assert await status("GET", path) == 403
    assert await status("DELETE", mine) == 403
    assert await status("POST", "/v2/sessions") == 403


async def test_the_same_requests_reach_the_callers_own_agent(tenants: Tenants) -> None:
    """Each request of the tests above is one that would be served: nothing but the tenant refuses it."""
    routes = sorted(
        (route for route in tenants.routes() if route.has_agent), key=lambda route: route.name == "delete_agent"
    )
    for route in routes:
        answer = await tenants.ask(route, f"notes/{FOREIGN}", tenants.ids, "default")
        error = answer.json()["error"]["code"] if answer.status_code >= 400 and answer.content else ""
        if route.method == "HEAD":
            assert answer.status_code == 200, route
        else:
            assert answer.status_code < 400 or answer.status_code == 409 or route.name in MAY_BE_REFUSED, (route, error)
            assert error not in {"unknown_agent", "missing_field", "unknown_field", "invalid_json"}, (route, error)


MAY_BE_REFUSED: Final = {
    *("retry_message", "drop_message", "cancel_message"),
    *("delete_file", "get_file", "head_file"),
    *("erase_events", "import_agent", "read_agent"),
}
"""The message was handled, and is neither parked nor pending; the file was deleted by an earlier request; there is no
such event, the body is no archive, and the class has no read-only handler."""
