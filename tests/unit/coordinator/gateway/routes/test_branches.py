"""Forks, rewinds, comparisons, deletion and verification of agents over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome

AGENT = "/v1/agents/notes/a"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Notes) as served:
        await served.send("notes/a", "one", "two", "three")
        yield served


async def post(home: ServedHome, path: str, body: Any = None, status: int = 200, key: str | None = None) -> Any:
    headers = {"Idempotency-Key": key} if key is not None else {}
    answer = await home.http.post(f"{AGENT}{path}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def visible(home: ServedHome) -> list[str]:
    """Return the visible texts of users."""
    events = (await home.get("/agents/notes/a/events", type="user_message"))["items"]
    return [event["payload"]["message"]["text"] for event in events if event["visible"]]


async def file_text(home: ServedHome) -> str:
    return (await home.http.get(f"{AGENT}/files/notes.txt")).text


async def test_a_fork_continues_a_turn(home: ServedHome) -> None:
    forked = await post(home, "/fork", {"key": "b", "at": 1}, 201)
    assert forked == {
        "agent": "notes/b",
        "turn": 1,
        "version": forked["version"],
        "from": {"agent": "notes/a", "turn": 1, "seq": forked["from"]["seq"]},
    }
    assert (await home.get("/agents/notes/b/state"))["state"] == {"count": 1}
    assert (await post(home, "/fork", {"key": "b"}, 409))["error"]["code"] == "agent_exists"
    assert (await post(home, "/fork", {"key": "c", "at": 9}, 404))["error"]["code"] == "unknown_turn"
    assert (await post(home, "/fork", {"key": "c/d"}, 400))["error"]["code"] == "invalid_address"
    assert (await post(home, "/fork", {"key": "c", "at": True}, 400))["error"]["param"] == "at"


@pytest.mark.parametrize("asleep", [True, False])
async def test_a_rewind_restores_everything_and_can_be_undone(home: ServedHome, asleep: bool) -> None:
    if asleep:
        await home.fleet.sleep("notes/a")
    rewound = await post(home, "/rewind", {"turn": 1})
    parts = ["state", "files", "transcript"]
    assert rewound == {"agent": "notes/a", "from": 3, "to": 1, "only": parts, "turn": 4}
    assert (await home.get("/agents/notes/a/state"))["state"] == {"count": 1}
    assert (await visible(home), await file_text(home)) == (["one"], "one\n")
    await home.send("notes/a", "four")
    assert await visible(home) == ["one", "four"]
    assert (await post(home, "/rewind", {"turn": 3}))["turn"] == 6
    assert await visible(home) == ["one", "two", "three"]
    assert (await post(home, "/rewind", {"turn": 3}))["turn"] is None
    hidden = (await home.get("/agents/notes/a/diff", **{"from": 5, "to": 6}))["transcript"]
    assert [event["payload"]["message"]["text"] for event in hidden["removed"] if event["type"] == "user_message"] == [
        "four"
    ]


@pytest.mark.parametrize("asleep", [True, False])
async def test_a_repeated_rewind_is_one(home: ServedHome, asleep: bool) -> None:
    if asleep:
        await home.fleet.sleep("notes/a")
    first, second = await asyncio.gather(*(post(home, "/rewind", {"turn": 1}, key="r") for _ in range(2)))
    assert first == second
    assert first["turn"] == 4
    await home.send("notes/a", "four")
    assert await post(home, "/rewind", {"turn": 1}, key="r") == first
    assert await visible(home) == ["one", "four"]
    assert (await post(home, "/rewind", {"turn": 2}, 409, key="r"))["error"]["code"] == "idempotency_conflict"
    assert (await post(home, "/rewind", {"turn": 2}, key="other"))["turn"] == 6
    assert (await post(home, "/rewind", {"turn": 99}, 404, key="failed"))["error"]["code"] == "unknown_turn"
    assert (await post(home, "/rewind", {"turn": 1}, key="failed"))["turn"] == 7, "what was refused keeps no key"


async def test_a_repeated_fork_is_one(home: ServedHome) -> None:
    first = await post(home, "/fork", {"key": "b"}, 201, key="f")
    await home.send("notes/b", "more")
    assert await post(home, "/fork", {"key": "b"}, 201, key="f") == first
    assert (await post(home, "/fork", {"key": "c"}, 409, key="f"))["error"]["code"] == "idempotency_conflict"
    assert (await post(home, "/fork", {"key": "b"}, 409, key="other"))["error"]["code"] == "agent_exists"
    await home.fleet.sleep("notes/b")
    assert (await home.http.delete("/v1/agents/notes/b")).status_code == 200
    assert await post(home, "/fork", {"key": "b"}, 201, key="f") == first, "a repeat makes nothing"
    assert [item["agent"] for item in (await home.get("/agents"))["items"]] == ["notes/a"]


async def test_only_some_parts(home: ServedHome) -> None:
    await post(home, "/rewind", {"turn": 1, "only": ["transcript"]})
    assert ((await home.get("/agents/notes/a/state"))["state"], await visible(home)) == ({"count": 3}, ["one"])
    await post(home, "/rewind", {"turn": 2, "only": ["state", "transcript"]})
    assert ((await home.get("/agents/notes/a/state"))["state"], await visible(home)) == ({"count": 2}, ["one", "two"])
    assert await file_text(home) == "one\ntwo\nthree\n"
    await post(home, "/rewind", {"turn": 1, "only": ["files"]})
    assert (await visible(home), await file_text(home)) == (["one", "two"], "one\n")
    events = (await home.get("/agents/notes/a/events", type="agent.rewound"))["items"]
    assert [(event["payload"]["only"], event["payload"]["transcript"]) for event in events] == [
        ("transcript", 1),
        (["state", "transcript"], 2),
        ("files", 5),
    ]
    for only, code in (([], "invalid_parameter"), (["all"], "invalid_parameter"), ("files", "invalid_parameter")):
        assert (await post(home, "/rewind", {"turn": 1, "only": only}, 400))["error"]["code"] == code


async def test_differences(home: ServedHome) -> None:
    found = await home.get("/agents/notes/a/diff", **{"from": 1, "to": 2})
    assert found["state"] == [{"op": "replace", "path": "/count", "value": 2}]
    assert [(change["change"], change["path"]) for change in found["files"]] == [("changed", "notes.txt")]
    assert "+two" in found["diff"]
    assert (found["before"]["turn"], found["after"]["turn"]) == (1, 2)
    same = await home.get("/agents/notes/a/diff")
    assert (same["before"]["turn"], same["after"]["turn"], same["state"]) == (3, 3, [])
    assert (await home.error("GET", f"{AGENT}/diff?from=1&to=8", 404))["code"] == "unknown_turn"


async def test_differences_of_two_agents(home: ServedHome) -> None:
    await post(home, "/fork", {"key": "b", "at": 1}, 201)
    await home.send("notes/b", "other")
    asked: dict[str, Any] = {"with": "notes/b"}
    found = await home.get("/agents/notes/a/diff", **asked)
    assert [(found[side]["agent"], found[side]["turn"]) for side in ("before", "after")] == [
        ("notes/a", 3),
        ("notes/b", 2),
    ]
    assert found["state"] == [{"op": "replace", "path": "/count", "value": 2}]
    found = await home.get("/agents/notes/a/diff", **asked, **{"from": 1, "to": 1})
    assert (found["state"], found["files"], found["diff"]) == ([], [], "")
    assert (await home.error("GET", f"{AGENT}/diff?with=notes/no", 404))["code"] == "unknown_agent"
    assert (await home.error("GET", f"{AGENT}/diff?with=acme:notes/b", 404))["code"] == "unknown_agent"
    assert (await home.error("GET", f"{AGENT}/diff?with=b", 400))["code"] == "invalid_address"


async def test_older_history_is_dropped_and_messages_are_erased(home: ServedHome) -> None:
    assert (await post(home, "/fold", {}, 409))["error"]["code"] == "agent_awake"
    await post(home, "/passivate")
    planned = await post(home, "/fold", {"dry_run": True})
    assert (planned["agent"], planned["first_turn"], planned["later"]) == ("notes/a", 3, None)
    assert planned["dropped"]["turns"] == 3
    assert (await home.get("/agents/notes/a/state", at=1))["state"] == {"count": 1}
    *_, last = (await home.get("/agents/notes/a/events", type="user_message"))["items"]
    erased = await post(home, "/erase", {"events": [last["event_id"]]})
    assert [(each["event_id"], each["turn"]) for each in erased["erased"]] == [(last["event_id"], 3)]
    *_, last = (await home.get("/agents/notes/a/events", type="user_message"))["items"]
    assert last["payload"] is None
    assert (await post(home, "/fold", {}))["dropped"]["turns"] == 3
    assert (await home.error("GET", f"{AGENT}/state?at=1", 404))["code"] == "unknown_turn"
    assert (await home.get("/agents/notes/a/state"))["state"] == {"count": 3}
    for body in ({"keep_turns": 0}, {"keep_days": -1}, {"keep_days": "1"}, {"dry_run": 1}):
        assert (await post(home, "/fold", body, 400))["error"]["code"] == "invalid_parameter"
    for events, code in (([], "invalid_parameter"), (["evt_x"], "unknown_event")):
        assert (await post(home, "/erase", {"events": events}, 404 if events else 400))["error"]["code"] == code


async def test_an_event_that_replay_reads_is_not_erased_and_those_of_others_are_not_named(home: ServedHome) -> None:
    (first, *_) = (await home.get("/agents/notes/a/events"))["items"]
    assert (await post(home, "/erase", {"events": [first["event_id"]]}, 400))["error"]["code"] == "invalid_input"
    await home.send("notes/z", "mine")
    (_, mine, *_) = (await home.get("/agents/notes/z/events"))["items"]
    foreign = (await post(home, "/erase", {"events": [mine["event_id"]]}, 404))["error"]
    assert foreign["message"] == f"notes/a has no event {mine['event_id']}"


async def test_an_agent_is_exported_and_imported(home: ServedHome) -> None:
    archive = await home.http.get(f"{AGENT}/archive")
    assert (archive.status_code, archive.headers["Content-Type"]) == (200, "application/zip")
    assert int(archive.headers["Content-Length"]) == len(archive.content)
    made = await home.http.put("/v1/agents/notes/copy/archive", content=archive.content)
    assert made.status_code == 201, made.text
    imported = made.json()
    assert (imported["agent"], imported["exported_as"], imported["turn"]) == ("notes/copy", "notes/a", 3)
    assert (await home.get("/agents/notes/copy/state"))["state"] == {"count": 3}
    again = await home.error("PUT", "/v1/agents/notes/copy/archive", 409, content=archive.content)
    assert again["code"] == "agent_exists"
    changed = archive.content[:300] + bytes([archive.content[300] ^ 1]) + archive.content[301:]
    for content in (b"", b"no archive", archive.content[:-200], changed):
        refused = await home.error("PUT", "/v1/agents/notes/bad/archive", 400, content=content)
        assert refused["code"] == "invalid_input"
        assert "/tmp" not in refused["message"]
    assert (await home.error("GET", "/v1/agents/notes/bad", 404))["code"] == "unknown_agent"


async def test_an_artifact_is_found_by_its_id(home: ServedHome) -> None:
    harness = await home.fleet.harness("notes/a")
    assert (await harness.send({"text": "four", "artifact": "<html>"})).ok
    (listed,) = (await home.get("/agents/notes/a/artifacts"))["items"]
    path = f"/artifacts/{listed['artifact_id']}"
    assert await home.get(path) == {"agent": "notes/a", "artifact": listed}
    await post(home, "/fork", {"key": "b"}, 201)
    await home.fleet.sleep("notes/a")
    assert (await home.http.delete(f"{AGENT}?detach=true")).status_code == 200
    assert (await home.error("GET", f"/v1{path}", 404))["code"] == "unknown_artifact"
    assert (await home.error("GET", "/v1/artifacts/x", 404))["code"] == "unknown_artifact"


async def test_an_agent_sleeps_before_it_is_deleted(home: ServedHome) -> None:
    awake = await home.error("DELETE", AGENT, 409)
    assert (awake["code"], awake["type"]) == ("agent_awake", "conflict_error")
    assert await post(home, "/passivate") == {"agent": "notes/a"}
    assert (await home.get("/agents/notes/a"))["status"] == "asleep"
    await post(home, "/fork", {"key": "b"}, 201)
    assert (await home.error("DELETE", AGENT, 409))["code"] == "agent_in_use"
    deleted = await home.http.delete(f"{AGENT}?detach=true")
    assert deleted.json()["detached"] == ["notes/b"]
    assert (await home.error("GET", AGENT, 404))["code"] == "unknown_agent"
    assert (await home.error("POST", f"{AGENT}/passivate", 404))["code"] == "unknown_agent"
    assert (await home.get("/agents/notes/b/state"))["state"] == {"count": 3}


async def test_verification_reads_everything_again(home: ServedHome) -> None:
    found = await post(home, "/verify")
    assert (found["ok"], found["problem"]) == (True, None)
    assert found["events"] == (await home.get("/agents/notes/a"))["version"]
    assert found["blobs"] > 0
