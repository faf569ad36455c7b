"""Requests to every route of the OpenAPI document, on a home with things of two tenants.

The routes are those of the document, so a new one is tested without being named here. One whose body has required
fields needs an example in `BODIES`: without it the request would be refused before anything is looked for.
"""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.registry.reloading import Reloaded
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.models.recorded import keep, record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    import httpx
    from fastapi import FastAPI

    from podium.address import Address
    from tests.unit.coordinator.gateway.served_home import ServedHome

__all__ = [
    "FOREIGN",
    "NAMES",
    "NOBODY",
    "OF_LINKS",
    "OWN",
    "Route",
    "Tenants",
    "routes_of",
    "tenants_of_home",
    "things_of_a_session",
]

_UI: Final = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "x"}]}
_AG_UI: Final = {"id": "m1", "role": "user", "content": "x"}
OF_LINKS: Final = {"get_question", "answer_question"}
"""Routes that take the token of a link, and no key."""
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
    "read_agent": {"message": {"handler": "x"}},
    "rewind_agent": {"turn": 1},
    "run_agent": {"threadId": "t", "runId": "r", "messages": [_AG_UI]},
    "run_thread": {"threadId": "own-thread", "runId": "r", "messages": [_AG_UI]},
    "send_chat": {"id": "own-chat", "messages": [_UI]},
    "send_chat_to_agent": {"id": "c", "messages": [_UI]},
    "send_message": {"message": {"text": "x"}},
}
"""By operation: a body that it accepts. ``AGENT`` stands for an agent's address, ``<…>`` for an id of a thing."""
QUERIES: Final = {"get_difference": "?from=0", "list_runs": "?status=paused"}
SESSION_IDS: Final = ("session_id", "branch_id", "event_id", "stored_artifact_id", "bundle_id", "response_id")
NAMES: Final = {
    name: f"<{name}>"
    for name in (*SESSION_IDS, "message_id", "run_id", "artifact_id", "path", "key_id", "name", "chat_id", "node")
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


def routes_of(app: FastAPI) -> Iterator[Route]:
    document = app.openapi()
    assert document["paths"], "the application has no routes"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield Route(operation["operationId"], method.upper(), path)


@dataclass
class Tenants:
    """A home in which the tenant ``default`` has an agent ``notes/alice``, and ``acme`` has ``notes/own``."""

    home: ServedHome
    keys: SqliteKeyRecords
    ids: dict[str, str]
    """Of the things of ``notes/alice``: a message, an artifact, a path, a key, a reminder; and of a session."""

    def routes(self) -> Iterator[Route]:
        return routes_of(self.home.app)

    def headers(self, tenant: str, scope: Scope = Scope.ADMIN, agent: Address | None = None) -> dict[str, str]:
        """Make a key, for one agent or for all; return the headers that send it."""
        return {"Authorization": f"Bearer {self.keys.create('test', tenant, [scope], 1, agent=agent)[1]}"}

    async def ask(self, route: Route, agent: str, ids: dict[str, str], tenant: str, **headers: str) -> httpx.Response:
        return await self.ask_with({**self.headers(tenant), **headers}, route, agent, ids)

    async def ask_with(
        self, headers: Mapping[str, str], route: Route, agent: str, ids: dict[str, str]
    ) -> httpx.Response:
        return await self.home.http.request(
            route.method, route.at(agent, ids), json=route.body(agent, ids), headers=headers
        )

    async def everything(self) -> tuple[Any, ...]:
        """Return all that is stored of the other tenant's agents."""
        store = self.home.fleet.store
        return tuple(
            (session, store.branches(session.session_id), store.pending(session.session_id))
            for session in store.sessions(namespace="default")
        ) + tuple(each for each in store.all_objects() if each.namespace == "default")


@asynccontextmanager
async def tenants_of_home(tmp_path: Path) -> AsyncIterator[Tenants]:
    """Make the home, in which all agents sleep."""
    (tmp_path / "keys").mkdir()
    keys = SqliteKeyRecords(tmp_path / "keys", "home1")
    async with served_home(tmp_path / "home", Notes, keys=keys, reload=_reload) as home:
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
            "run_id": str(said["message_id"]),
            "artifact_id": str(artifact[1]["artifact_id"]),
            "path": "notes.txt",
            "key_id": other.key_id,
            "name": reminder["name"],
            **await things_of_a_session(home, keys, "default"),
            "chat_id": "chat-9f2c",
            "node": "local",
        }
        keep(tmp_path / "home", record("call_1", owner=f"notes/{FOREIGN}"))
        for agent in (f"notes/{FOREIGN}", f"acme:notes/{OWN}"):
            await home.fleet.sleep(agent)
        assert store.sessions(namespace="acme")
        yield Tenants(home, keys, ids)
    keys.close()


async def _reload() -> Reloaded:
    return Reloaded(Registry([RegisteredAgent("notes", "/notes.py", "Notes")]), [], [])


async def things_of_a_session(home: ServedHome, keys: SqliteKeyRecords, tenant: str) -> dict[str, str]:
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
