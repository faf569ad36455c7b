"""Sessions, branches and events over HTTP. Comments name the rows of interfaces that a test stands for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.verification import Verifier
from tests.unit.coordinator.gateway.routes.sessions_client import BranchCursor, Client, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

EVENT_TYPES = ["user_message", "assistant_message", "tool_result", "retrieval_result", "checkpoint", "note"]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with opened(tmp_path / "home") as found:
        yield found


# S0.1, S0.4, S0.5, S0.6
async def test_a_session_is_opened_with_an_empty_body(client: Client) -> None:
    made = await client.post("/v2/sessions", {})
    assert made == {
        "id": made["id"],
        "object": "session",
        "project_id": "default",
        "status": "active",
        "default_branch_id": made["default_branch_id"],
        "agent": None,
        "base_bundle_ids": [],
        "metadata": {},
        "created_at": made["created_at"],
    }
    assert made["id"].startswith("ses_")
    assert await client.get(f"/v2/sessions/{made['id']}") == made
    (branch,) = (await client.get(f"/v2/sessions/{made['id']}/branches"))["items"]
    assert branch["id"] == made["default_branch_id"]
    assert (branch["is_default"], branch["parent"]) == (True, None)


# S0.7
async def test_a_new_branch_has_version_0_and_nothing_is_appended_to_it(client: Client) -> None:
    cursor = await client.session(metadata={"by": "test"})
    branch = await client.get(cursor.path)
    assert (branch["version"], branch["head_event_id"]) == (0, None)
    assert await client.types(cursor) == []
    cursor = await client.append(cursor)
    assert await client.types(cursor) == ["note"]


# S0.8, S0.9, S0.10, S0.11
async def test_events_are_appended_and_counted(client: Client) -> None:
    cursor = await client.session()
    first = await client.post(f"{cursor.path}/events", cursor.append_body("user_message"))
    assert first == {
        "id": first["id"],
        "object": "event",
        "session_id": cursor.session_id,
        "branch_id": cursor.branch_id,
        "sequence": 1,
        "event_type": "user_message",
        "payload": None,
        "payload_ref": None,
        "created_at": first["created_at"],
        "hash": first["hash"],
    }
    cursor = cursor.at(first)
    second = await client.post(f"{cursor.path}/events", cursor.append_body("note", payload={"text": "é", "n": [1.5]}))
    assert (second["sequence"], second["payload"]) == (2, {"text": "é", "n": [1.5]})
    branch = await client.get(cursor.path)
    assert (branch["version"], branch["head_event_id"]) == (2, second["id"])
    listed = await client.get(f"{cursor.path}/events")
    assert listed == {"items": [first, second], "next_cursor": None}


# S0.12, S0.13, S0.14, S0.15
async def test_a_stale_writer_is_refused_and_told_where_the_branch_is(client: Client) -> None:
    empty = await client.session()
    one = await client.append(empty, payload="one")
    two = await client.append(one, payload="two")
    stale = [empty, one, BranchCursor(*id_pair(two), version=2), BranchCursor(*id_pair(two), 1, two.head_event_id)]
    stale += [BranchCursor(*id_pair(two), 2, one.head_event_id), BranchCursor(*id_pair(two), 3, two.head_event_id)]
    for cursor in stale:
        error = await client.refused(f"{two.path}/events", cursor.append_body(), 409, "branch_version_conflict")
        assert (error["version"], error["head_event_id"]) == (2, two.head_event_id)
    assert [event["payload"] for event in (await client.get(f"{two.path}/events"))["items"]] == ["one", "two"]
    position = await client.get(two.path)
    assert BranchCursor(*id_pair(two), position["version"], position["head_event_id"]) == two
    await client.append(two, payload="three")


def id_pair(cursor: BranchCursor) -> tuple[str, str]:
    return cursor.session_id, cursor.branch_id


# S0.16
async def test_racing_writers_never_overwrite_each_other(client: Client) -> None:
    empty = await client.session()

    async def write(name: int) -> None:
        cursor = empty
        for number in range(5):
            while True:
                answer = await client.http.post(
                    f"{cursor.path}/events", json=cursor.append_body(payload=f"{name}.{number}")
                )
                if answer.status_code == 201:
                    cursor = cursor.at(answer.json())
                    break
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (409, "branch_version_conflict")
                cursor = BranchCursor(*id_pair(cursor), error["version"], error["head_event_id"])

    await asyncio.gather(*(write(name) for name in range(10)))
    events = (await client.get(f"{empty.path}/events"))["items"]
    assert [event["sequence"] for event in events] == list(range(1, 51))
    assert sorted(event["payload"] for event in events) == sorted(f"{a}.{b}" for a in range(10) for b in range(5))
    store = client.home.fleet.store
    check = Verifier(store, client.home.fleet.blobs).check(store.session(empty.session_id))
    assert (check.problem, check.events) == (None, 50)


# S0.17
async def test_there_are_six_types_of_events(client: Client) -> None:
    cursor = await client.session()
    for event_type in EVENT_TYPES:
        cursor = await client.append(cursor, event_type)
    assert await client.types(cursor) == EVENT_TYPES
    for event_type in ("turn.committed", "agent.created", "artifact.added", "", "USER_MESSAGE", "message"):
        error = await client.refused(f"{cursor.path}/events", cursor.append_body(event_type), 400, "unknown_event_type")
        assert error["param"] == "event.event_type"
    assert await client.types(cursor) == EVENT_TYPES
    schema = client.home.app.openapi()["components"]["schemas"]["EventBody"]
    assert schema["properties"]["event_type"]["enum"] == EVENT_TYPES


# S0.11, S0.20, S0.21, S0.22
async def test_a_fork_continues_at_the_head_or_after_an_event(client: Client) -> None:
    one = await client.append(await client.session(), payload="one")
    two = await client.append(one, payload="two")
    forks = f"/v2/sessions/{one.session_id}/branches"
    at_head = await client.post(forks, {"fork_from_branch_id": one.branch_id})
    at_event = await client.post(forks, {"fork_from_branch_id": one.branch_id, "fork_from_event_id": one.head_event_id})
    assert (at_head["version"], at_head["head_event_id"]) == (2, two.head_event_id)
    assert at_head["parent"] == {"branch_id": one.branch_id, "version": 2}
    assert (at_event["version"], at_event["head_event_id"], at_event["is_default"]) == (1, one.head_event_id, False)
    fork = BranchCursor(one.session_id, at_event["id"], at_event["version"], at_event["head_event_id"])
    fork = await client.append(fork, payload="other")
    assert fork.version == 2
    assert [event["payload"] for event in (await client.get(f"{fork.path}/events"))["items"]] == ["one", "other"]
    assert [event["payload"] for event in (await client.get(f"{two.path}/events"))["items"]] == ["one", "two"]
    main = await client.get(two.path)
    assert (main["version"], main["head_event_id"]) == (2, two.head_event_id)
    of_fork = await client.post(forks, {"fork_from_branch_id": fork.branch_id, "fork_from_event_id": one.head_event_id})
    assert of_fork["version"] == 1
    listed = (await client.get(f"{forks}?limit=3"))["items"]
    assert [branch["id"] for branch in listed] == [one.branch_id, at_head["id"], at_event["id"]]


async def test_forks_of_what_is_not_there_are_refused(client: Client) -> None:
    mine, other = await client.append(await client.session()), await client.append(await client.session())
    late = await client.append(mine)
    forks = f"/v2/sessions/{mine.session_id}/branches"
    early = await client.post(forks, {"fork_from_branch_id": mine.branch_id, "fork_from_event_id": mine.head_event_id})
    error = await client.refused(forks, {"fork_from_branch_id": other.branch_id}, 404, "unknown_branch")
    assert error["param"] == "fork_from_branch_id"
    for branch_id, event_id in (
        (mine.branch_id, other.head_event_id),
        (mine.branch_id, "evt_0"),
        (early["id"], late.head_event_id),
    ):
        body = {"fork_from_branch_id": branch_id, "fork_from_event_id": event_id}
        error = await client.refused(forks, body, 404, "unknown_event")
        assert error["param"] == "fork_from_event_id"
    await client.refused("/v2/sessions/ses_0/branches", {"fork_from_branch_id": mine.branch_id}, 404, "unknown_session")
    await client.refused(forks, {}, 400, "missing_field")
    assert len((await client.get(forks))["items"]) == 2


async def test_a_branch_of_another_session_is_not_found(client: Client) -> None:
    mine, other = await client.session(), await client.append(await client.session())
    mixed = BranchCursor(mine.session_id, other.branch_id, other.version, other.head_event_id)
    await client.refused(f"{mixed.path}/events", mixed.append_body(), 404, "unknown_branch")
    for path in (mixed.path, f"{mixed.path}/events"):
        await client.refused(path, None, 404, "unknown_branch", "GET")
    assert (await client.get(other.path))["version"] == 1


async def test_bad_bodies_append_nothing(client: Client) -> None:
    cursor = await client.append(await client.session())
    good = cursor.append_body()
    bad: list[tuple[Any, str]] = [
        ({**good, "more": 1}, "unknown_field"),
        ({**good, "event": {"event_type": "note", "text": "x"}}, "unknown_field"),
        ({**good, "event": {}}, "missing_field"),
        ({name: good[name] for name in ("event", "expected_version")}, "missing_field"),
        ({name: good[name] for name in ("event", "expected_head_event_id")}, "missing_field"),
        ({**good, "expected_version": "1"}, "invalid_parameter"),
        ({**good, "expected_version": -1}, "invalid_parameter"),
        ({**good, "expected_version": None}, "invalid_parameter"),
        ({**good, "expected_head_event_id": 7}, "invalid_parameter"),
        ({**good, "event": {"event_type": 5}}, "invalid_parameter"),
        ({**good, "event": {"event_type": "note", "payload": 1, "payload_ref": "art_1"}}, "invalid_input"),
        ([], "invalid_parameter"),
    ]
    for body, code in bad:
        await client.refused(f"{cursor.path}/events", body, 400, code)
    nan = f'{{"expected_version":1,"expected_head_event_id":"{cursor.head_event_id}",'
    for payload in ("NaN", '"\\ud800"', "[" * 300 + "]" * 300):
        answer = await client.http.post(
            f"{cursor.path}/events",
            content=f'{nan}"event":{{"event_type":"note","payload":{payload}}}}}',
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code == 400, answer.text
    await client.refused("/v2/sessions", {"name": "x"}, 400, "unknown_field")
    assert (await client.get(cursor.path))["version"] == 1


async def test_large_payloads_come_back(client: Client) -> None:
    cursor = await client.session()
    large = {"text": "é" * 100_000}
    cursor = await client.append(cursor, "tool_result", payload=large)
    (event,) = (await client.get(f"{cursor.path}/events"))["items"]
    assert event["payload"] == large
    falsy: list[Any] = [0, False, "", [], {}]
    for value in falsy:
        cursor = await client.append(cursor, payload=value)
    events = (await client.get(f"{cursor.path}/events?after=1"))["items"]
    assert [event["payload"] for event in events] == falsy


async def test_lists_are_paged_and_refuse_cursors_of_others(client: Client) -> None:
    cursors = [await client.session() for _ in range(3)]
    main = cursors[0]
    for number in range(5):
        main = await client.append(main, payload=number)
    forks = f"/v2/sessions/{main.session_id}/branches"
    for _ in range(2):
        await client.post(forks, {"fork_from_branch_id": main.branch_id})
    for _ in range(3):
        await client.post("/v2/artifacts", {"content": "x"})
        await client.post("/v2/bundles", {"items": [{"text": "x"}]})
    lists = ["/v2/sessions", forks, f"{main.path}/events", "/v2/artifacts", "/v2/bundles"]
    given: dict[str, str] = {}
    for path in lists:
        whole = (await client.get(path))["items"]
        items: list[Any] = []
        query = "?limit=2"
        while True:
            page = await client.get(path + query)
            items += page["items"]
            if page["next_cursor"] is None:
                break
            given.setdefault(path, page["next_cursor"])
            query = f"?limit=2&cursor={page['next_cursor']}"
        assert items == whole
        assert len(items) >= 3
    other = await client.append(await client.append(cursors[1]))
    refusing = [*lists, f"{other.path}/events", f"/v2/sessions/{other.session_id}/branches", "/v2/sessions?kind=client"]
    for path in refusing:
        for of, cursor in given.items():
            if of != path:
                joined = f"{path}{'&' if '?' in path else '?'}cursor={cursor}"
                await client.refused(joined, None, 400, "invalid_cursor", "GET")
        await client.refused(f"{path}{'&' if '?' in path else '?'}cursor=x", None, 400, "invalid_cursor", "GET")


async def test_sessions_of_agents_are_read_and_not_written(client: Client) -> None:
    await client.home.send("notes/alice", "hello")
    mine = await client.session()
    (session,) = (await client.get("/v2/sessions?kind=agent"))["items"]
    assert [each["id"] for each in (await client.get("/v2/sessions?kind=client"))["items"]] == [mine.session_id]
    assert len((await client.get("/v2/sessions"))["items"]) == 2
    assert (session["agent"], session["base_bundle_ids"]) == ("notes/alice", [])
    cursor = BranchCursor(session["id"], session["default_branch_id"])
    branch = await client.get(cursor.path)
    cursor = BranchCursor(cursor.session_id, cursor.branch_id, branch["version"], branch["head_event_id"])
    types = await client.types(cursor)
    assert "user_message" in types
    assert "turn.committed" in types
    events = (await client.get(f"{cursor.path}/events"))["items"]
    assert [event["sequence"] for event in events] == list(range(1, cursor.version + 1))
    (said,) = (event for event in events if event["event_type"] == "user_message")
    assert said["payload"]["message"] == {"text": "hello"}
    await client.refused(f"{cursor.path}/events", cursor.append_body(), 403, "session_read_only")
    fork = {"fork_from_branch_id": cursor.branch_id}
    await client.refused(f"/v2/sessions/{cursor.session_id}/branches", fork, 403, "session_read_only")
    await client.refused(f"/v2/sessions/{cursor.session_id}", None, 403, "session_read_only", "DELETE")
    bound = {"content": "x", "retention_class": "session", "session_id": cursor.session_id}
    await client.refused("/v2/artifacts", bound, 403, "session_read_only")
    assert await client.get(cursor.path) == branch
    assert len((await client.get("/v1/agents"))["items"]) == 1


async def test_a_session_is_deleted_with_what_belongs_to_it(client: Client) -> None:
    cursor = await client.append(await client.session())
    bound = await client.post(
        "/v2/artifacts", {"content": "x", "retention_class": "session", "session_id": cursor.session_id}
    )
    free = await client.post("/v2/artifacts", {"content": "x"})
    path = f"/v2/sessions/{cursor.session_id}"
    assert await client.ask("DELETE", path) == {
        "id": cursor.session_id,
        "object": "session",
        "status": "tombstoned",
        "events": 1,
    }
    for method, gone in (("GET", path), ("DELETE", path), ("GET", cursor.path), ("GET", f"{path}/branches")):
        await client.refused(gone, None, 404, "unknown_session", method)
    await client.refused(f"{cursor.path}/events", cursor.append_body(), 404, "unknown_session")
    await client.refused(f"/v2/artifacts/{bound['id']}", None, 404, "unknown_artifact", "GET")
    assert (await client.get(f"/v2/artifacts/{free['id']}"))["content"] == "x"
    assert (await client.get("/v2/sessions"))["items"] == []


async def test_a_page_of_large_events_ends_early(client: Client) -> None:
    cursor = await client.session()
    for number in range(3):
        cursor = await client.append(cursor, payload=f"{number}" * 5_000_000)
    first = await client.get(f"{cursor.path}/events?limit=1000")
    assert [event["sequence"] for event in first["items"]] == [1, 2]
    rest = await client.get(f"{cursor.path}/events?limit=1000&cursor={first['next_cursor']}")
    assert [event["sequence"] for event in rest["items"]] == [3]
    assert rest["next_cursor"] is None
