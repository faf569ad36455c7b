"""``GET /metrics``: who may read it, in which format, and what it says while the service is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.service.client import ServiceError, ServiceRefused
from coordinator.telemetry.exposition import parsed
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coordinator.telemetry.recorder import Series, Value

MEASURED: dict[Series, Value] = {
    ("podium_service_up", ()): 1,
    ("podium_agents_awake", ("notes", "acme")): 2,
    ("podium_commit_duration_seconds", ("notes", "acme")): [0.25, *[0.0] * 6, 2.0, *[0.0] * 7, 1.0],
}


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[SqliteKeyRecords]:
    (tmp_path / "keys").mkdir()
    store = SqliteKeyRecords(tmp_path / "keys", "home1")
    yield store
    store.close()


async def test_prometheus_reads_the_metrics_with_a_key_for_them(tmp_path: Path, keys: SqliteKeyRecords) -> None:
    def with_key(*scopes: Scope, tenant: str = "default") -> dict[str, str]:
        return {"Authorization": f"Bearer {keys.create('prometheus', tenant, scopes, 1)[1]}"}

    async with served_home(tmp_path / "home", Notes, keys=keys) as home:
        home.fleet.measured = MEASURED
        for scopes in ((Scope.METRICS,), (Scope.ADMIN,), (Scope.READ, Scope.METRICS)):
            answer = await home.http.get("/metrics", headers=with_key(*scopes))
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"].startswith("text/plain; version=")
            assert parsed(answer.text) == MEASURED
        for headers in (
            with_key(Scope.WRITE),
            with_key(Scope.READ),
            with_key(Scope.METRICS, tenant="acme"),
            with_key(Scope.ADMIN, tenant="acme"),
        ):
            error = await home.error("GET", "/metrics", 403, headers=headers)
            assert error["code"] == "not_permitted"
            assert "scope metrics" in error["message"]
        assert (await home.error("GET", "/metrics", 401))["code"] == "missing_key"


async def test_a_key_for_the_metrics_is_for_nothing_else(tmp_path: Path, keys: SqliteKeyRecords) -> None:
    headers = {"Authorization": f"Bearer {keys.create('prometheus', 'default', [Scope.METRICS], 1)[1]}"}
    async with served_home(tmp_path / "home", Notes, keys=keys) as home:
        for method, path in (("GET", "/v1/agents"), ("GET", "/v1/agents/notes/a/state"), ("GET", "/v1/keys")):
            await home.error(method, path, 403, headers=headers)
        await home.error("POST", "/v1/agents/notes/a/messages", 403, headers=headers, json={"message": {"text": "hi"}})


async def test_a_token_is_never_for_the_metrics(tmp_path: Path, keys: SqliteKeyRecords) -> None:
    headers = {"Authorization": f"Bearer {keys.create('operator', 'default', [Scope.ADMIN], 1)[1]}"}
    async with served_home(tmp_path / "home", Notes, keys=keys) as home:
        body = {"agent": "notes/a", "scopes": ["metrics"]}
        await home.error("POST", "/v1/tokens", 400, headers=headers, json=body)


async def test_open_metrics_is_answered_to_an_accept_header(tmp_path: Path) -> None:
    async with served_home(tmp_path / "home", Notes) as home:
        home.fleet.measured = MEASURED
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        answer = await home.http.get("/metrics", headers=accept)
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize("failure", [ServiceError("gone"), ServiceRefused("TimeoutError", "later"), TimeoutError()])
async def test_without_the_service_the_scrape_says_what_the_journal_has(tmp_path: Path, failure: Exception) -> None:
    async with served_home(tmp_path / "home", Notes) as home:
        await home.send("notes/alice", "hi")
        home.fleet.silence = failure
        answer = await home.http.get("/metrics")
        assert answer.status_code == 200
        found = parsed(answer.text)
        assert found["podium_service_up", ()] == 0
        assert (found["podium_agents_asleep", ()], found["podium_inbox_messages", ()]) == (1, 0)
        assert "podium_agents_awake" not in {name for name, _ in found}
