"""Which scope each route needs: a key without it gets 403, and one that has no more than it is served.

The routes are those of the OpenAPI document: a new one has to be added to `SCOPES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from coordinator.access.caller import Scope
from podium.address import Address
from tests.unit.coordinator.gateway.every_route import FOREIGN, NOBODY, OF_LINKS, OWN, tenants_of_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from tests.unit.coordinator.gateway.every_route import Route, Tenants

ANYONE: Final = {"healthz", "readyz"}
SCOPES: Final = {
    Scope.READ: {
        *("list_agents", "get_agent", "explain_agent", "get_state", "list_events", "list_turns"),
        "get_difference",
        "get_context",
        *("list_root", "get_file", "head_file", "get_file_history"),
        *("list_artifacts", "get_artifact", "head_artifact", "find_artifact"),
        *(
            "get_message",
            "list_inbox",
            "list_reminders",
            "list_model_calls",
            "list_runs",
            "get_run",
            "list_types",
            "read_agent",
        ),
        *("get_chat", "resume_chat", "get_agent_chat", "resume_chat_of_agent"),
        *("list_sessions", "get_session", "list_branches", "get_branch", "list_session_events"),
        *("list_stored_artifacts", "get_stored_artifact", "list_bundles", "get_bundle", "get_response"),
    },
    Scope.ANSWER: {"decide_run", "create_link"},
    Scope.WRITE: {
        *("send_message", "cancel_message", "retry_message", "drop_message", "cancel_reminder"),
        *("send_chat", "send_chat_to_agent", "run_thread", "run_agent"),
        *("put_file", "delete_file", "fork_agent", "rewind_agent", "passivate_agent"),
        *("verify_agent", "export_agent"),  # they read all that an agent has stored
        *("create_session", "delete_session", "fork_branch", "append_event"),
        *("create_stored_artifact", "delete_stored_artifact", "create_bundle", "create_response"),
    },
    Scope.METRICS: {"get_metrics"},
    Scope.DEPLOY: {"list_deploys", "deploy_code", "deploy_previous", "withdraw_deploy"},
    Scope.ADMIN: {
        *("delete_agent", "fold_agent", "erase_events", "delete_response"),
        *("list_keys", "create_key", "revoke_key", "rotate_key", "create_token"),
        *("import_agent", "reload_project", "list_nodes", "drain_node"),
    },
}
OF_THE_HOME: Final = {
    *("import_agent", "reload_project", "list_nodes", "drain_node", "get_metrics"),
    *SCOPES[Scope.DEPLOY],
}
"""Those that need a key of the tenant ``default``: they are about the home, and not about one tenant."""
PERMITS: Final = {
    Scope.READ: SCOPES[Scope.READ],
    Scope.ANSWER: SCOPES[Scope.ANSWER],
    Scope.WRITE: SCOPES[Scope.READ] | SCOPES[Scope.ANSWER] | SCOPES[Scope.WRITE],
    Scope.METRICS: SCOPES[Scope.METRICS],
    Scope.DEPLOY: SCOPES[Scope.DEPLOY],
    Scope.ADMIN: set().union(*SCOPES.values()),
}
"""By scope of a key: all that it permits."""
IN_THEIR_BODIES: Final = {"run_thread", "send_chat"}
"""Routes that name their agent in the body; `every_route` names one that does not exist yet."""


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    async with tenants_of_home(tmp_path) as tenants:
        yield tenants


def assert_refused(answer: httpx.Response, route: Route, status: int, code: str) -> None:
    assert answer.status_code == status, (route, answer.text)
    if route.method != "HEAD":
        assert answer.json()["error"]["code"] == code, route


def deletions_last(route: Route) -> tuple[bool, bool]:
    return route.method == "DELETE", "sessions" in route.path


async def test_the_table_has_every_route_once_and_the_document_names_scopes_beyond_read_and_write(
    tenants: Tenants,
) -> None:
    listed = [*ANYONE, *OF_LINKS, *(name for names in SCOPES.values() for name in names)]
    assert sorted(listed) == sorted(route.name for route in tenants.routes())
    for path in tenants.home.app.openapi()["paths"].values():
        for operation in path.values():
            described = " ".join(operation.get("description", "").split())
            for scope in (Scope.ANSWER, Scope.METRICS, Scope.DEPLOY, Scope.ADMIN):
                needs = operation["operationId"] in SCOPES[scope]
                assert (f"the scope `{scope}`" in described) == needs, operation["operationId"]


async def test_a_key_without_the_scope_is_refused_and_nothing_is_changed(tenants: Tenants) -> None:
    before = await tenants.everything()
    keys = {scope: tenants.headers("default", scope) for scope in Scope}
    refused = 0
    for route in tenants.routes():
        if route.name in ANYONE:
            continue
        if route.name in OF_LINKS:
            for headers in keys.values():
                answer = await tenants.ask_with(headers, route, f"notes/{FOREIGN}", tenants.ids)
                assert_refused(answer, route, 401, "unknown_key")
            continue
        none = await tenants.ask_with({}, route, f"notes/{FOREIGN}", tenants.ids)
        assert_refused(none, route, 401, "missing_key")
        for scope, headers in keys.items():
            if route.name in PERMITS[scope]:
                continue
            answer = await tenants.ask_with(headers, route, f"notes/{FOREIGN}", tenants.ids)
            assert_refused(answer, route, 403, "not_permitted")
            refused += 1
    assert refused > 100
    assert await tenants.everything() == before


async def test_a_key_with_no_more_than_the_scope_is_served(tenants: Tenants) -> None:
    scopes = {name: scope for scope, names in SCOPES.items() for name in names}
    keys = {scope: tenants.headers("default", scope) for scope in Scope}
    for route in sorted(tenants.routes(), key=deletions_last):
        if route.name in OF_LINKS:
            continue
        headers = keys[scopes[route.name]] if route.name in scopes else {}
        answer = await tenants.ask_with(headers, route, f"notes/{FOREIGN}", tenants.ids)
        assert answer.status_code not in {401, 403}, (route, answer.text)
        assert answer.status_code < 500, (route, answer.text)


async def test_what_is_about_the_home_needs_a_key_of_the_default_tenant(tenants: Tenants) -> None:
    headers = tenants.headers("acme", Scope.ADMIN)
    asked = set()
    for route in tenants.routes():
        if route.name in OF_THE_HOME:
            answer = await tenants.ask_with(headers, route, f"notes/{OWN}", tenants.ids)
            assert_refused(answer, route, 403, "not_permitted")
            asked.add(route.name)
    assert asked == OF_THE_HOME


async def test_a_key_of_one_agent_reaches_no_other_and_nothing_that_is_of_no_agent(tenants: Tenants) -> None:
    """Agents are refused whether they exist or not. Sessions are as those that do not exist: one is its agent's own."""
    before = await tenants.everything()
    headers = tenants.headers("default", Scope.ADMIN, Address.parse("notes/other"))
    for route in tenants.routes():
        if not route.has_agent and route.name not in IN_THEIR_BODIES:
            continue
        for key in (FOREIGN, NOBODY):
            answer = await tenants.ask_with(headers, route, f"notes/{key}", tenants.ids)
            assert_refused(answer, route, 403, "not_permitted")
    for route in tenants.routes():
        if route.has_agent or route.name in ANYONE | IN_THEIR_BODIES | OF_LINKS:
            continue
        answer = await tenants.ask_with(headers, route, "notes/any", tenants.ids)
        if route.method == "GET" and "{session_id}" in route.path:
            assert_refused(answer, route, 404, answer.json()["error"]["code"])
        else:
            assert_refused(answer, route, 403, "not_permitted")
    assert await tenants.everything() == before
