"""Runs that pause, over HTTP: listing them, and resolving and rejecting what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.gateway.shop import Shop, paused, settled, with_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome


@pytest.fixture
def keys(tmp_path: Path) -> SqliteKeyRecords:
    (tmp_path / "keys").mkdir()
    return SqliteKeyRecords(tmp_path / "keys", "home1")


@pytest.fixture
async def home(tmp_path: Path, keys: SqliteKeyRecords) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Shop, keys=keys) as served:
        yield served
    keys.close()


async def test_a_promise_is_resolved_by_its_name_and_once(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    run = await paused(home, writer)
    (listed,) = (await home.http.get("/v1/runs", headers=writer)).json()["items"]
    assert (listed["run_id"], listed["kind"], listed["call_id"]) == (run, "promise", "promise payment#1")
    path = f"/v1/runs/{run}/decision"
    for body, status, code in (
        ({"answer": 5, "promise": "other"}, 409, "run_not_paused"),
        ({"answer": "five", "promise": "payment"}, 400, "invalid_decision"),
        ({"answer": 5, "rejection": "no"}, 400, None),
        ({"rejection": "x" * 2001}, 400, None),
        ({"answer": 5, "promise": "x" * 101}, 400, None),
    ):
        error = await home.error("POST", path, status, json=body, headers=writer)
        assert code in (None, error["code"])
    for headers, status in (
        (with_key(keys, Scope.READ), 403),
        (with_key(keys, Scope.METRICS), 403),
        (with_key(keys, Scope.WRITE, "zeta"), 404),
        (with_key(keys, Scope.ADMIN, "default"), 404),
        ({}, 401),
    ):
        await home.error("POST", path, status, json={"answer": 5}, headers=headers)
    answer = await home.http.post(path, json={"answer": 5, "promise": "payment"}, headers=writer)
    assert answer.status_code == 200, answer.text
    await settled(home, writer, run)
    assert (await home.http.get("/v1/agents/shop/a/state", headers=writer)).json()["state"]["paid"] == 5
    for late in ({"answer": 5, "promise": "payment"}, {"rejection": "no"}):
        assert (await home.error("POST", path, 409, json=late, headers=writer))["code"] == "run_not_paused"


async def test_the_files_that_a_paused_turn_has_changed(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    first = await paused(home, writer)
    found = (await home.http.get(f"/v1/runs/{first}", headers=writer)).json()
    shown = [(each["change"], each["path"]) for each in found["files"]]
    assert (found["base_turn"], found["files_changed"], shown) == (
        0,
        3,
        [("added", "dir"), ("added", "dir/new"), ("added", "order")],
    )
    (listed,) = (await home.http.get("/v1/runs", headers=writer)).json()["items"]
    assert listed.items() <= found.items()
    await home.http.post(f"/v1/runs/{first}/decision", json={"answer": 5}, headers=writer)
    await settled(home, writer, first)
    assert (await home.error("GET", f"/v1/runs/{first}", 409, headers=writer))["code"] == "run_not_paused"
    run = await paused(home, writer)
    path = f"/v1/runs/{run}"
    found = (await home.http.get(path, headers=with_key(keys, Scope.READ))).json()
    shown = [(each["change"], each["path"]) for each in found["files"]]
    assert found["base_turn"] == 1
    assert shown == [("removed", "dir/new"), ("changed", "order")]
    for headers, status in (
        (with_key(keys, Scope.METRICS), 403),
        (with_key(keys, Scope.WRITE, "zeta"), 404),
        (with_key(keys, Scope.ADMIN, "default"), 404),
        ({}, 401),
    ):
        await home.error("GET", path, status, headers=headers)
    for agent, status in (("shop/a", 200), ("shop/b", 403)):
        made = {"agent": agent, "scopes": ["read"]}
        token = (await home.http.post("/v1/tokens", json=made, headers=with_key(keys, Scope.ADMIN))).json()["token"]
        answer = await home.http.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status, answer.text
    assert (await home.error("GET", "/v1/runs/msg_none", 404, headers=writer))["code"] == "unknown_run"


async def test_a_promise_is_rejected(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    run = await paused(home, writer)
    rejected = {"rejection": "card refused", "promise": "payment"}
    answer = await home.http.post(f"/v1/runs/{run}/decision", json=rejected, headers=writer)
    assert answer.status_code == 200, answer.text
    assert (await settled(home, writer, run))["answer"]["data"] == "card refused"
