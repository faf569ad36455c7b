"""Repeated requests with an ``Idempotency-Key``: each is done once, and its answer comes again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.access.quotas import Quota
from coordinator.homes.opening import open_records
from coordinator.sessions.artifacts import drop_expired
from tests.unit.coordinator.gateway.routes.sessions_client import Client, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DAY_S = 24 * 60 * 60


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with opened(tmp_path / "home") as found:
        yield found


async def test_repeats_get_the_first_answer(client: Client) -> None:
    cursor = await client.append(await client.session())
    artifact = await client.post("/v2/artifacts", {"content": "x"})
    requests: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("/v2/sessions", {"metadata": {"a": 1}}, {}),
        ("/v2/artifacts", {"content": "one"}, {"content": "two"}),
        ("/v2/bundles", {"items": [{"text": "one"}]}, {"items": [{"artifact_id": artifact["id"]}]}),
        (
            f"/v2/sessions/{cursor.session_id}/branches",
            {"fork_from_branch_id": cursor.branch_id},
            {"fork_from_branch_id": cursor.branch_id, "fork_from_event_id": cursor.head_event_id},
        ),
        (f"{cursor.path}/events", cursor.append_body("note", payload=1), cursor.append_body("note", payload=2)),
    ]
    for path, body, other in requests:
        first = await client.post(path, body, Idempotency_Key="key")
        assert await client.post(path, body, Idempotency_Key="key") == first
        error = await client.refused(path, other, 409, "idempotency_conflict", Idempotency_Key="key")
        assert "idempotency key 'key' was used before" in error["message"]
        assert await client.post(path, body, Idempotency_Key="key") == first
    assert len((await client.get("/v2/sessions"))["items"]) == 2
    assert len((await client.get("/v2/artifacts"))["items"]) == 2
    assert len((await client.get("/v2/bundles"))["items"]) == 1
    assert len((await client.get(f"/v2/sessions/{cursor.session_id}/branches"))["items"]) == 2
    assert await client.types(cursor) == ["note", "note"]


async def test_keys_are_kept_longer_than_a_day(client: Client) -> None:
    cursor = await client.append(await client.session())
    requests: list[tuple[str, dict[str, Any], int]] = [
        ("/v2/sessions", {"metadata": {"a": 1}}, 201),
        ("/v2/artifacts", {"content": "one", "retention_class": "temporary"}, 201),
        ("/v2/bundles", {"items": [{"text": "one"}]}, 201),
        (f"/v2/sessions/{cursor.session_id}/branches", {"fork_from_branch_id": cursor.branch_id}, 201),
        (f"{cursor.path}/events", cursor.append_body("note", payload=1), 201),
        ("/v2/responses", {"model": "code.fast", "input": "hi"}, 200),
    ]
    posts = {
        path for path, methods in client.home.app.openapi()["paths"].items() if path[:4] == "/v2/" and "post" in methods
    }
    assert len(posts) == len(requests), "each POST takes a key"
    first = [await client.post(path, body, status, Idempotency_Key="key") for path, body, status in requests]
    client.home.fleet.clock.advance(DAY_S + 60)
    drop_expired(client.home.fleet.store, client.home.fleet.clock.now_ms())
    again = [await client.post(path, body, status, Idempotency_Key="key") for path, body, status in requests]
    assert again == first


# S0.14
async def test_an_append_whose_answer_was_lost_is_no_conflict(client: Client) -> None:
    empty = await client.session()
    body = empty.append_body("user_message", payload="hello")
    await client.refused(f"{empty.path}/events", {**body, "expected_version": 1}, 409, "branch_version_conflict")
    first = await client.post(f"{empty.path}/events", body, Idempotency_Key="key")
    later = await client.append(empty.at(first))
    assert await client.post(f"{empty.path}/events", body, Idempotency_Key="key") == first
    await client.refused(f"{empty.path}/events", body, 409, "branch_version_conflict")
    for other in (later.append_body("user_message", payload="hello"), {**body, "expected_head_event_id": "evt_0"}):
        await client.refused(f"{empty.path}/events", other, 409, "idempotency_conflict", Idempotency_Key="key")
    assert (await client.get(empty.path))["version"] == 2


async def test_a_key_of_a_refused_append_serves_the_next_attempt(client: Client) -> None:
    empty = await client.session()
    one = await client.append(empty)
    stale = empty.append_body(payload="x")
    await client.refused(f"{empty.path}/events", stale, 409, "branch_version_conflict", Idempotency_Key="key")
    made = await client.post(f"{one.path}/events", one.append_body(payload="x"), Idempotency_Key="key")
    assert made["sequence"] == 2


async def test_a_fork_at_the_head_stays_where_it_was_made(client: Client) -> None:
    cursor = await client.append(await client.session())
    forks, body = f"/v2/sessions/{cursor.session_id}/branches", {"fork_from_branch_id": cursor.branch_id}
    first = await client.post(forks, body, Idempotency_Key="key")
    await client.append(cursor)
    again = await client.post(forks, body, Idempotency_Key="key")
    assert (again["id"], again["version"], again["parent"]) == (first["id"], 1, first["parent"])


async def test_keys_serve_one_route_and_one_branch(client: Client) -> None:
    one, two = await client.session(), await client.session()
    for cursor in (one, two):
        made = await client.post(f"{cursor.path}/events", cursor.append_body(payload="x"), Idempotency_Key="key")
        assert made["branch_id"] == cursor.branch_id
    assert (await client.post("/v2/sessions", {}, Idempotency_Key="key"))["id"] not in {one.session_id, two.session_id}
    assert (await client.post("/v2/artifacts", {"content": ""}, Idempotency_Key="key"))["size"] == 0


async def test_repeats_at_the_same_time_are_done_once(client: Client) -> None:
    cursor = await client.session()
    paths = [("/v2/sessions", {}), ("/v2/artifacts", {"content": 1}), (f"{cursor.path}/events", cursor.append_body())]
    for path, body in paths:
        answers = await asyncio.gather(*(client.post(path, body, Idempotency_Key="key") for _ in range(12)))
        assert len({answer["id"] for answer in answers}) == 1
    assert len((await client.get("/v2/sessions"))["items"]) == 2
    assert (await client.get(cursor.path))["version"] == 1


async def test_bad_keys_are_refused(client: Client) -> None:
    for key in ("", "k" * 256):
        await client.refused("/v2/sessions", {}, 400, "invalid_parameter", Idempotency_Key=key)


async def test_a_repeated_bundle_needs_its_artifacts_no_more(client: Client) -> None:
    artifact = await client.post("/v2/artifacts", {"content": "text"})
    body = {"items": [{"artifact_id": artifact["id"]}]}
    first = await client.post("/v2/bundles", body, Idempotency_Key="key")
    await client.ask("DELETE", f"/v2/artifacts/{artifact['id']}")
    assert await client.post("/v2/bundles", body, Idempotency_Key="key") == first
    other = {"items": [*body["items"], {"text": "more"}]}
    await client.refused("/v2/bundles", other, 409, "idempotency_conflict", Idempotency_Key="key")
    await client.refused("/v2/bundles", body, 404, "unknown_artifact", Idempotency_Key="another")
    assert [each["id"] for each in (await client.get("/v2/bundles"))["items"]] == [first["id"]]


async def test_a_repeat_needs_no_room_in_the_quota(client: Client) -> None:
    place = client.home.agents.stores.home
    open_records(place).set_quotas({"default": Quota(bytes=12_000)})
    artifact, bundle = {"content": "x" * 6000}, {"items": [{"text": "y" * 4000}]}
    requests = [("/v2/artifacts", artifact), ("/v2/bundles", bundle)]
    first = [await client.post(path, body, Idempotency_Key="key") for path, body in requests]
    for path, body in requests:
        await client.refused(path, body, 403, "quota_exceeded", Idempotency_Key="another")
    assert [await client.post(path, body, Idempotency_Key="key") for path, body in requests] == first


async def test_what_a_bundle_takes_from_artifacts_counts(client: Client) -> None:
    place = client.home.agents.stores.home
    open_records(place).set_quotas({"default": Quota(bytes=1000)})
    artifact = await client.post("/v2/artifacts", {"content": "x" * 300})
    body = {"items": [{"artifact_id": artifact["id"]}] * 3}
    await client.refused("/v2/bundles", body, 403, "quota_exceeded")
