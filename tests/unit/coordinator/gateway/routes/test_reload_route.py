"""``POST /v1/reload``: who may, what it answers, and a project that is not valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput
from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.registry.reloading import Reloaded
from podium.errors import AgentFileBroken
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REGISTRY = Registry([RegisteredAgent("notes", "/notes.py", "Notes")])


class Project:
    """Counts reloads; raises its error, if it has one."""

    def __init__(self) -> None:
        self.reloads = 0
        self.error: Exception | None = None

    async def reload(self) -> Reloaded:
        self.reloads += 1
        if self.error is not None:
            raise self.error
        return Reloaded(REGISTRY, ["notes/alice"], ["API_KEY"])


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[SqliteKeyRecords]:
    (tmp_path / "keys").mkdir()
    store = SqliteKeyRecords(tmp_path / "keys", "home1")
    yield store
    store.close()


async def test_an_operator_reloads_the_project(tmp_path: Path, keys: SqliteKeyRecords) -> None:
    project = Project()

    def with_key(scope: Scope, tenant: str = "default") -> dict[str, str]:
        return {"Authorization": f"Bearer {keys.create('test', tenant, [scope], 1)[1]}"}

    async with served_home(tmp_path / "home", Notes, keys=keys, reload=project.reload) as home:
        answer = await home.http.post("/v1/reload", headers=with_key(Scope.ADMIN))
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"types": ["notes"], "reloaded": ["notes/alice"], "restart_for": ["API_KEY"]}
        for headers in (with_key(Scope.WRITE), with_key(Scope.ADMIN, "acme")):
            error = await home.error("POST", "/v1/reload", 403, headers=headers)
            assert (error["type"], error["code"]) == ("permission_error", "not_permitted")
        assert project.reloads == 1


async def test_a_project_that_is_not_valid_is_a_conflict_and_says_why(tmp_path: Path) -> None:
    project = Project()
    async with served_home(tmp_path / "home", Notes, reload=project.reload) as home:
        for failure in (InvalidInput("podium.toml: agents: it is empty"), AgentFileBroken("agents[0]: syntax error")):
            project.error = failure
            error = await home.error("POST", "/v1/reload", 409)
            assert (error["type"], error["code"]) == ("conflict_error", "invalid_project")
            assert error["message"] == str(failure)


async def test_without_a_project_there_is_nothing_to_reload(tmp_path: Path) -> None:
    async with served_home(tmp_path / "home", Notes) as home:
        error = await home.error("POST", "/v1/reload", 404)
        assert error["code"] == "no_project"
