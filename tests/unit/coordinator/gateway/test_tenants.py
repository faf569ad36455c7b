"""No route tells a caller of one tenant anything about an agent of another: it answers as for one that does not exist.

The routes are those of the OpenAPI document, so a new one is tested without being named here. One whose body has
required fields needs an example in `BODIES`: without it the request would be refused before the agent is looked for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from fastapi.routing import iter_route_contexts

from chronicle.ids import IdSource
from coordinator.access.caller import Scope
from coordinator.access.key_store import KeyStore
from podium.address import Address
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.models.recorded import keep, record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    import httpx

    from tests.unit.coordinator.gateway.served_home import ServedHome

_UI: Final = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "x"}]}
_AG_UI: Final = {"id": "m1", "role": "user", "content": "x"}
BODIES: Final[dict[str, Any]] = {
    "append_event": {
        "expected_version": 1,
        "expected_head_event_id": "<event_id>",
        "event": {"event_type": "note", "payload_ref": "<stored_artifact_id>"},
    },
    "create_bundle": {"items": [{"artifact_id": "<stored_artifact_id>"}]},
    "create_key": {"name": "x"},
    "create_response": {
        "model": "code.fast",
        "input": "x",
        "session_id": "<session_id>",
        "branch_id": "<branch_id>",
        "head_event_id": "<event_id>",
    },
    "create_session": {"base_bundle_ids": ["<bundle_id>"]},
    "create_stored_artifact": {"content": "x", "retention_class": "session", "session_id": "<session_id>"},
    "create_token": {"agent": "AGENT"},
    "erase_events": {"events": ["evt_00000000000000000000000000"]},
    "fold_agent": {"dry_run": True},
    "fork_agent": {"key": "fork"},
    "fork_branch": {"fork_from_branch_id": "<branch_id>", "fork_from_event_id": "<event_id>"},
    "rewind_agent": {"turn": 1},
    "run_agent": {"threadId": "t", "runId": "r", "messages": [_AG_UI]},
    "run_thread": {"threadId": "own-thread", "runId": "r", "messages": [_AG_UI]},
    "send_chat": {"id": "own-chat", "messages": [_UI]},
    "send_chat_to_agent": {"id": "c", "messages": [_UI]},
    "send_message": {"message": {"text": "x"}},
}
"""By operation: a body that it accepts. ``AGENT`` stands for an agent's address, ``<…>`` for an id of a thing."""
SENDING: Final = {"run_agent", "send_chat_to_agent", "send_message"}
"""Those that make the agent that they name, if it does not exist."""
IDLE: Final = {"resume_chat", "resume_chat_of_agent"}
"""Those that answer 204 if nothing runs, also of an agent that does not exist: a page asks before its first message."""
QUERIES: Final = {"get_difference": "?from=0"}
SESSION_IDS: Final = ("session_id", "branch_id", "event_id", "stored_artifact_id", "bundle_id", "response_id")
NAMES: Final = {
    name: f"<{name}>" for name in (*SESSION_IDS, "message_id", "artifact_id", "path", "key_id", "name", "chat_id")
}
FOREIGN: Final = "alice"
"""The key of an agent that the other tenant has."""
NOBODY: Final = "nobody"
"""The key of an agent that no tenant has."""
OWN: Final = "own"
"""The key of an agent of the caller's tenant."""


@dataclass(frozen=True)
class Route:
    name: str
    method: str
    path: str

    @property
    def has_agent(self) -> bool:
        return "{type}/{key}" in self.path

    def at(self, agent: str, ids: dict[str, str]) -> str:
        """Return a URL of the route: for an agent ``[tenant:]type/key``, with the ids of one of its things."""
        path = self.path.replace("{type}/{key}", agent).replace("{type}", "notes")
        if path.startswith("/v2/"):
            path = path.replace("{artifact_id}", "{stored_artifact_id}")
        return re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], path) + QUERIES.get(self.name, "")

    @property
    def names_of_sessions(self) -> list[str]:
        """The names of the things of sessions that a request has, in its path or body."""
        text = self.at("", NAMES) + json.dumps(self.body("", NAMES))
        return [name for name in SESSION_IDS if f"<{name}>" in text]

    def body(self, agent: str, ids: dict[str, str]) -> Any:
        body = BODIES.get(self.name, {} if self.method in {"POST", "PUT"} else None)
        text = json.dumps(body).replace("AGENT", agent)
        for name in SESSION_IDS:
            text = text.replace(f"<{name}>", ids.get(name, name))
        return json.loads(text)


@dataclass
class Tenants:
    """A home in which the tenant ``default`` has an agent ``notes/alice``, and ``acme`` has ``notes/own``."""

    home: ServedHome
    keys: KeyStore
    ids: dict[str, str]
    """Of the things of ``notes/alice``: a message, an artifact, a path, a key, a reminder; and of a session."""

    def routes(self) -> Iterator[Route]:
        document = self.home.app.openapi()
        assert document["paths"], "the application has no routes"
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                yield Route(operation["operationId"], method.upper(), path)

    def headers(self, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys.create('test', tenant, [Scope.ADMIN], 1)[1]}"}

    async def ask(self, route: Route, agent: str, ids: dict[str, str], tenant: str, **headers: str) -> httpx.Response:
        return await self.home.http.request(
            route.method, route.at(agent, ids), json=route.body(agent, ids), headers={**self.headers(tenant), **headers}
        )

    async def everything(self) -> tuple[Any, ...]:
        """Return all that is stored of the other tenant's agents."""
        store = self.home.fleet.store
        return tuple(
            (session, store.branches(session.session_id), store.pending(session.session_id))
            for session in store.sessions(namespace="default")
        ) + tuple(each for each in store.all_objects() if each.namespace == "default")


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    (tmp_path / "keys").mkdir()
    keys = KeyStore(tmp_path / "keys", "home1", IdSource())
    async with served_home(tmp_path / "home", Notes, keys=keys) as home:
        alice = await home.send(f"notes/{FOREIGN}", "one", "two")
        reminder = {"name": "morning-9f2c", "cron": "0 9 * * *"}
        assert (await alice.send({"text": "three", "artifact": "<html>", "remind": reminder})).ok
        await home.send(f"acme:notes/{OWN}", "mine")
        store = home.fleet.store
        (artifact,) = alice.events("artifact.added")
        (*_, (_, said)) = alice.events("user_message")
        other, _ = keys.create("theirs", "default", [Scope.READ], 1)
        ids = {
            "message_id": str(said["message_id"]),
            "artifact_id": str(artifact[1]["artifact_id"]),
            "path": "notes.txt",
            "key_id": other.key_id,
            "name": reminder["name"],
            **await things_of_a_session(home, keys, "default"),
            "chat_id": "chat-9f2c",
        }
        keep(tmp_path / "home", record("call_1", owner=f"notes/{FOREIGN}"))
        for agent in (f"notes/{FOREIGN}", f"acme:notes/{OWN}"):
            await home.fleet.sleep(agent)
        assert store.sessions(namespace="acme")
        yield Tenants(home, keys, ids)
    keys.close()


async def things_of_a_session(home: ServedHome, keys: KeyStore, tenant: str) -> dict[str, str]:
    """Open a session with an event, an artifact, a bundle and a response; return their ids."""
    headers = {"Authorization": f"Bearer {keys.create('sessions', tenant, [Scope.WRITE], 1)[1]}"}

    async def post(path: str, body: Any) -> Any:
        return (await home.http.post(path, json=body, headers=headers)).json()

    artifact = await post("/v2/artifacts", {"content": "a secret"})
    bundle = await post("/v2/bundles", {"items": [{"text": "another secret"}]})
    session = await post("/v2/sessions", {"base_bundle_ids": [bundle["id"]]})
    ids = {"session_id": session["id"], "branch_id": session["default_branch_id"]}
    event = {"event_type": "note", "payload": "a third secret"}
    body = {"expected_version": 0, "expected_head_event_id": None, "event": event}
    appended = await post(f"/v2/sessions/{ids['session_id']}/branches/{ids['branch_id']}/events", body)
    ids |= {"event_id": appended["id"], "stored_artifact_id": artifact["id"], "bundle_id": bundle["id"]}
    response = await post("/v2/responses", {"model": "code.fast", "input": "a fourth secret"})
    return {**ids, "response_id": response["id"]}


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
    assert served - described == {("GET", "/openapi.json")}


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
    assert empty == {"items": [], "next_cursor": None}


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


# S0.1
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
    *("erase_events", "import_agent"),
}
"""The message was handled, and is neither parked nor pending; the file was deleted by an earlier request; there is no
such event, and the body is no archive."""
