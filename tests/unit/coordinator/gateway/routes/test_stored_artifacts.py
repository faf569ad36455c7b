"""Artifacts and bundles of clients over HTTP. Comments name the rows of interfaces that a test stands for."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.sessions.artifacts import drop_expired
from coordinator.sessions.reading import bundles_of, context_events
from coordinator.verification import Verifier
from podium.history.reachability import reachable_blobs
from tests.unit.coordinator.gateway.routes.sessions_client import Client, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with opened(tmp_path / "home") as found:
        yield found


# S0.19
async def test_artifacts_are_stored_as_they_were_sent(client: Client) -> None:
    data = bytes(range(256))
    sent: list[tuple[dict[str, Any], str, str, Any]] = [
        ({"content": "é\n"}, "text/plain", "text", "é\n"),
        ({"content": {"b": [1, None], "a": 2.5}}, "application/json", "json", {"a": 2.5, "b": [1, None]}),
        ({"content": None}, "application/json", "json", None),
        (
            {"content": base64.b64encode(data).decode(), "content_encoding": "base64"},
            "application/octet-stream",
            "base64",
            base64.b64encode(data).decode(),
        ),
        ({"content": '"x"', "content_media_type": "application/json"}, "application/json", "text", '"x"'),
        ({"content": "x", "content_encoding": "json"}, "application/json", "json", "x"),
    ]
    for body, media_type, encoding, content in sent:
        made = await client.post("/v2/artifacts", {**body, "artifact_type": "tool_output", "metadata": {"by": "me"}})
        assert made == {
            "id": made["id"],
            "object": "artifact",
            "artifact_type": "tool_output",
            "content_media_type": media_type,
            "content_encoding": encoding,
            "content": content,
            "size": made["size"],
            "hash": made["hash"],
            "retention_class": "standard",
            "session_id": None,
            "metadata": {"by": "me"},
            "created_at": made["created_at"],
            "expires_at": None,
        }
        assert made["id"].startswith("art_")
        assert await client.get(f"/v2/artifacts/{made['id']}") == made
    listed = (await client.get("/v2/artifacts"))["items"]
    assert [each["content"] for each in listed] == [None] * len(sent)
    twice = [await client.post("/v2/artifacts", {"content": "same"}) for _ in range(2)]
    assert twice[0]["id"] != twice[1]["id"]
    assert twice[0]["hash"] == twice[1]["hash"]


# S0.19
async def test_artifacts_cannot_be_changed(client: Client) -> None:
    made = await client.post("/v2/artifacts", {"content": "x"})
    for method in ("PUT", "PATCH", "POST"):
        await client.refused(f"/v2/artifacts/{made['id']}", {"content": "y"}, 405, "method_not_allowed", method)


# S0.19
async def test_retention_classes(client: Client) -> None:
    cursor = await client.session()
    temporary = await client.post("/v2/artifacts", {"content": "t", "retention_class": "temporary"})
    bound = await client.post(
        "/v2/artifacts", {"content": "s", "retention_class": "session", "session_id": cursor.session_id}
    )
    client.home.fleet.clock.advance(0.001)  # ids sort by their millisecond
    kept = await client.post("/v2/artifacts", {"content": "k"})
    assert temporary["expires_at"] - temporary["created_at"] == timedelta(days=7) / timedelta(milliseconds=1)
    assert (bound["session_id"], kept["expires_at"]) == (cursor.session_id, None)
    for body in (
        {"content": "", "retention_class": "session"},
        {"content": "", "session_id": cursor.session_id},
        {"content": "", "retention_class": "temporary", "session_id": cursor.session_id},
    ):
        await client.refused("/v2/artifacts", body, 400, "invalid_input")
    await client.refused("/v2/artifacts", {"content": "", "retention_class": "for ever"}, 400, "invalid_parameter")
    missing = {"content": "", "retention_class": "session", "session_id": "ses_0"}
    await client.refused("/v2/artifacts", missing, 404, "unknown_session")
    named = await client.append(cursor, payload_ref=temporary["id"])
    client.home.fleet.clock.advance(timedelta(days=7).total_seconds())
    await client.refused(f"/v2/artifacts/{temporary['id']}", None, 404, "unknown_artifact", "GET")
    await client.refused(
        f"{named.path}/events", named.append_body(payload_ref=temporary["id"]), 404, "unknown_artifact"
    )
    assert [each["id"] for each in (await client.get("/v2/artifacts"))["items"]] == [bound["id"], kept["id"]]
    store, blobs = client.home.fleet.store, client.home.fleet.blobs
    assert temporary["hash"] in reachable_blobs(store, blobs, [])
    assert drop_expired(store, client.home.fleet.clock.now_ms()) == 1
    assert temporary["hash"] not in reachable_blobs(store, blobs, [])
    (event,) = (await client.get(f"{named.path}/events"))["items"]
    assert event["payload_ref"] == temporary["id"]


async def test_bad_artifacts_are_refused(client: Client) -> None:
    for body, code in (
        ({}, "missing_field"),
        ({"content": "x", "name": "y"}, "unknown_field"),
        ({"content": {"a": 1}, "content_encoding": "text"}, "invalid_input"),
        ({"content": "a", "content_encoding": "base64"}, "invalid_input"),
        ({"content": 5, "content_encoding": "base64"}, "invalid_input"),
        ({"content": "x", "content_encoding": "hex"}, "invalid_parameter"),
        ({"content": "x", "metadata": []}, "invalid_parameter"),
    ):
        await client.refused("/v2/artifacts", body, 400, code)
    assert (await client.get("/v2/artifacts"))["items"] == []


# S0.18
async def test_an_event_names_an_artifact_as_its_payload(client: Client) -> None:
    cursor = await client.session()
    output = await client.post("/v2/artifacts", {"content": {"rows": [1, 2]}, "artifact_type": "tool_output"})
    event = await client.post(f"{cursor.path}/events", cursor.append_body("tool_result", payload_ref=output["id"]))
    assert (event["payload"], event["payload_ref"]) == (None, output["id"])
    cursor = cursor.at(event)
    for ref in ("art_0", output["hash"], cursor.head_event_id):
        error = await client.refused(
            f"{cursor.path}/events", cursor.append_body("tool_result", payload_ref=ref), 404, "unknown_artifact"
        )
        assert error["param"] == "event.payload_ref"
    assert (await client.get(cursor.path))["version"] == 1
    deleted = await client.ask("DELETE", f"/v2/artifacts/{output['id']}")
    assert deleted == {"id": output["id"], "object": "artifact", "deleted": True}
    await client.refused(f"/v2/artifacts/{output['id']}", None, 404, "unknown_artifact", "DELETE")
    assert (await client.get(f"{cursor.path}/events"))["items"] == [event]
    store = client.home.fleet.store
    head, events = context_events(store, client.home.fleet.blobs, cursor.session_id, cursor.branch_id)
    assert (head.seq, [each.payload_ref for each in events], events[0].is_empty) == (1, [output["id"]], False)


# S0.29, S0.30
async def test_bundles_are_compiled_once_and_pinned_by_sessions(client: Client) -> None:
    document = await client.post("/v2/artifacts", {"content": "From an artifact."})
    items = [
        {"text": 'One & "two" </document>', "title": 'A <"title">'},
        {"artifact_id": document["id"]},
        {"text": ""},
    ]
    made = await client.post("/v2/bundles", {"items": items, "metadata": {"topic": "x"}})
    assert made["id"].startswith("bnd_")
    assert [(each["title"], each["artifact_id"], each["size"]) for each in made["items"]] == [
        ('A <"title">', None, 23),
        (None, document["id"], 17),
        (None, None, 0),
    ]
    again = await client.post("/v2/bundles", {"items": items})
    assert again["id"] != made["id"]
    assert again["hash"] == made["hash"]
    reordered = await client.post("/v2/bundles", {"items": [items[1], items[0], items[2]]})
    assert reordered["hash"] != made["hash"]
    read = await client.get(f"/v2/bundles/{made['id']}")
    assert read["content"] == (
        '<document index="1" title=\'A &lt;"title"&gt;\'>\nOne & "two" &lt;/document>\n</document>\n'
        '<document index="2">\nFrom an artifact.\n</document>\n'
        '<document index="3">\n\n</document>\n'
    )
    assert read["size"] == len(read["content"])
    await client.ask("DELETE", f"/v2/artifacts/{document['id']}")
    assert await client.get(f"/v2/bundles/{made['id']}") == read
    sessions = [await client.post("/v2/sessions", {"base_bundle_ids": [again["id"], made["id"]]}) for _ in range(2)]
    store, blobs = client.home.fleet.store, client.home.fleet.blobs
    for session in sessions:
        assert session["base_bundle_ids"] == [again["id"], made["id"]]
        pinned = bundles_of(store, blobs, store.session(session["id"]))
        assert [(each.bundle_id, each.content) for each in pinned] == [
            (again["id"], made["hash"]),
            (made["id"], made["hash"]),
        ]
        assert blobs.get(pinned[0].content).decode() == read["content"]
        branch = await client.get(f"/v2/sessions/{session['id']}/branches/{session['default_branch_id']}")
        assert branch["version"] == 0
    assert made["hash"] in reachable_blobs(store, blobs, [])
    check = Verifier(store, blobs).check_objects()
    assert check is not None
    assert check.problem is None


async def test_bad_bundles_are_refused(client: Client) -> None:
    binary = await client.post("/v2/artifacts", {"content": "/w==", "content_encoding": "base64"})
    for body, status, code in (
        ({}, 400, "missing_field"),
        ({"items": []}, 400, "invalid_parameter"),
        ({"items": [{}]}, 400, "invalid_input"),
        ({"items": [{"text": "x", "artifact_id": binary["id"]}]}, 400, "invalid_input"),
        ({"items": [{"artifact_id": binary["id"]}]}, 400, "invalid_input"),
        ({"items": [{"artifact_id": "art_0"}]}, 404, "unknown_artifact"),
        ({"items": [{"text": "x", "role": "system"}]}, 400, "unknown_field"),
    ):
        await client.refused("/v2/bundles", body, status, code)
    error = await client.refused("/v2/sessions", {"base_bundle_ids": ["bnd_0"]}, 404, "unknown_bundle")
    assert error["param"] == "base_bundle_ids"
    for method in ("PUT", "DELETE", "PATCH"):
        await client.refused("/v2/bundles/bnd_0", {}, 405, "method_not_allowed", method)
    assert (await client.get("/v2/bundles"))["items"] == []
    assert (await client.get("/v2/sessions"))["items"] == []


async def test_a_bundle_of_many_artifacts_has_a_limit_of_its_own(client: Client) -> None:
    text = await client.post("/v2/artifacts", {"content": "x" * 1_000_000})
    body = {"items": [{"artifact_id": text["id"]}] * 40}
    error = await client.refused("/v2/bundles", body, 413, "bundle_too_large")
    assert "more than 33554432 bytes" in error["message"]
    assert error["param"] == "items"
    assert (await client.get("/v2/bundles"))["items"] == []
