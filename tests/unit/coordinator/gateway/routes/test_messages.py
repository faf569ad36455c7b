"""Messages over HTTP: answers, receipts, repetitions, failures, and what a client that leaves does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.coordinator.gateway.agent_classes import Notes, Slow, Stepping, Troubled
from tests.unit.coordinator.gateway.served_home import served_home
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome

HELLO = {"message": {"text": "hello"}}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ServedHome]:
    Slow.begun, Slow.go_on = asyncio.Event(), asyncio.Event()
    Stepping.ran, Stepping.fails = [], True
    async with served_home(tmp_path / "home", Notes, Slow, Stepping, Troubled, body_bytes=10_000) as served:
        yield served
        Slow.go_on.set()


async def post(home: ServedHome, path: str, body: Any, status: int = 200, **headers: str) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await home.http.post(f"/v1/agents{path}", json=body, headers=sent)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_the_answer_is_that_of_the_committed_turn(home: ServedHome) -> None:
    answer = await post(home, "/notes/a/messages", {"message": {"text": "hello", "artifact": "<p>"}})
    message_id = answer["message_id"]
    assert message_id.startswith("msg_")
    assert answer == {
        "message_id": message_id,
        "agent": "notes/a",
        "turn": 1,
        "version": (await home.get("/agents/notes/a"))["version"],
        "text": "1: hello",
        "data": {"count": 1},
        "replies": [{"reply_id": answer["replies"][0]["reply_id"], "text": "1: hello"}],
        "artifacts": [
            {
                "artifact_id": answer["artifacts"][0]["artifact_id"],
                "name": "report.html",
                "media_type": "text/html; charset=utf-8",
                "size": 3,
            }
        ],
    }
    message = await home.get(f"/agents/notes/a/messages/{message_id}")
    assert (message["status"], message["answer"], message["error"]) == ("consumed", answer, None)


async def test_a_receipt_comes_before_the_answer(home: ServedHome) -> None:
    answer = await home.http.post("/v1/agents/slow/a/messages", json=HELLO, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "respond-async"
    receipt = answer.json()
    assert receipt == {"message_id": receipt["message_id"], "agent": "slow/a", "position": 1, "before": 0}
    path = f"/agents/slow/a/messages/{receipt['message_id']}"
    assert (await home.get(path))["status"] == "pending"
    assert [item["message_id"] for item in (await home.get("/agents/slow/a/inbox"))["items"]] == [receipt["message_id"]]
    Slow.go_on.set()
    await until(lambda: home.fleet.store.message(receipt["message_id"]).status.is_settled)
    message = await home.get(path)
    assert (message["status"], message["answer"]["text"]) == ("consumed", "begun")


async def test_a_repeated_key_gets_the_same_answer_and_another_body_is_refused(home: ServedHome) -> None:
    first = await post(home, "/notes/a/messages", HELLO, Idempotency_Key="k")
    assert await post(home, "/notes/a/messages", HELLO, Idempotency_Key="k") == first
    other = await post(home, "/notes/a/messages", {"message": {"text": "x"}}, 409, Idempotency_Key="k")
    assert (other["error"]["code"], other["error"]["type"]) == ("idempotency_conflict", "conflict_error")
    assert (await home.get("/agents/notes/a/state"))["state"] == {"count": 1}


async def test_a_failed_message_answers_with_its_error_and_can_be_retried_and_dropped(home: ServedHome) -> None:
    error = (await post(home, "/troubled/a/messages", HELLO, 502))["error"]
    assert (error["code"], error["type"], error["error_type"]) == ("message_parked", "api_error", "RuntimeError")
    assert "no hello" in error["message"]
    path = f"/agents/troubled/a/messages/{error['message_id']}"
    message = await home.get(path)
    assert (message["status"], message["answer"]) == ("parked", None)
    assert message["error"] == {"type": "RuntimeError", "message": "no hello"}
    inbox = (await home.get("/agents/troubled/a/inbox"))["items"]
    assert [(item["status"], item["message"]) for item in inbox] == [("parked", {"text": "hello"})]
    retried = await home.http.post(f"/v1{path}/retry")
    assert retried.json()["status"] == "parked"  # it failed again, before this answer
    assert len((await home.get("/agents/troubled/a/events", type="turn.failed"))["items"]) == 2
    dropped = await home.http.post(f"/v1{path}/drop")
    assert dropped.json()["status"] == "cancelled"
    assert (await home.error("POST", f"/v1{path}/retry", 404))["code"] == "not_found"
    assert (await home.get("/agents/troubled/a/inbox"))["items"] == []


async def test_a_retry_runs_the_steps_that_ended_again_only_if_they_are_dropped(home: ServedHome) -> None:
    error = (await post(home, "/stepping/a/messages", HELLO, 502))["error"]
    path = f"/v1/agents/stepping/a/messages/{error['message_id']}"
    for body in (None, {}, {"drop_steps": False}):
        retried = await home.http.post(f"{path}/retry", json=body)
        assert (retried.status_code, retried.json()["status"]) == (200, "parked")
    assert Stepping.ran == ["hello"]
    (waiting,) = (await home.get("/agents/stepping/a/inbox"))["items"]
    assert [step["key"] for step in waiting["steps"]] == ["note#1"]
    refused = await home.error("POST", f"{path}/retry", 400, json={"drop_steps": "yes"})
    assert (refused["code"], refused["param"]) == ("invalid_parameter", "drop_steps")
    Stepping.fails = False
    retried = await home.http.post(f"{path}/retry", json={"drop_steps": True})
    assert (retried.json()["status"], retried.json()["answer"]["data"]) == ("consumed", 2)
    assert Stepping.ran == ["hello", "hello"]


async def test_cancelling_a_running_message_ends_its_sender_s_wait(home: ServedHome) -> None:
    sending = asyncio.create_task(post(home, "/slow/a/messages", HELLO, 409))
    await Slow.begun.wait()
    found = home.fleet.pending("slow/a")
    cancelled = await home.http.post(f"/v1/agents/slow/a/messages/{found}/cancel")
    assert cancelled.json()["status"] == "cancelled"
    assert (await sending)["error"]["code"] == "cancelled"


@pytest.mark.parametrize("asked", [True, False])
async def test_a_client_that_leaves_cancels_only_if_it_asked_for_that(home: ServedHome, asked: bool) -> None:
    sending = asyncio.create_task(
        home.http.post("/v1/agents/slow/a/messages", json={**HELLO, "cancel_on_disconnect": asked})
    )
    await Slow.begun.wait()
    message_id = home.fleet.pending("slow/a")
    home.leaving.set()
    assert (await sending).status_code == 204
    if not asked:
        Slow.go_on.set()
        await until(lambda: home.fleet.store.message(message_id).status.is_settled)
    assert home.fleet.store.message(message_id).status == ("cancelled" if asked else "consumed")


async def test_busy_policies(home: ServedHome) -> None:
    first = asyncio.create_task(post(home, "/slow/a/messages", HELLO, 409))
    await Slow.begun.wait()
    refused = await post(home, "/slow/a/messages", {**HELLO, "when_busy": "reject"}, 409)
    assert refused["error"]["code"] == "agent_busy"
    error = await home.error("POST", "/v1/agents/slow/a/messages", 400, json={**HELLO, "when_busy": "soon"})
    assert (error["code"], error["param"]) == ("invalid_parameter", "when_busy")
    first_id = home.fleet.pending("slow/a")
    await home.http.post(f"/v1/agents/slow/a/messages/{first_id}/cancel")
    await first


@pytest.mark.parametrize(
    ("request_", "code", "param"),
    [
        ({"content": b'{"message": '}, "invalid_json", None),
        ({"content": b'{"message": {"a": "\xff"}}'}, "invalid_json", None),
        ({"content": b'{"message":' + b"[" * 3_000 + b"]" * 3_000 + b"}"}, "invalid_json", None),
        ({"content": b""}, "missing_field", "body"),
        ({"content": b"[]"}, "invalid_parameter", "body"),
        ({"json": {}}, "missing_field", "message"),
        ({"json": {"message": "hello"}}, "invalid_parameter", "message"),
        ({"json": {**HELLO, "mesage": 1}}, "unknown_field", "mesage"),
        ({"json": {**HELLO, "cancel_on_disconnect": "yes"}}, "invalid_parameter", "cancel_on_disconnect"),
        ({"content": b'{"message": {"a": NaN}}'}, "invalid_json", None),
        ({"content": b'{"message": {"a": "\\ud800"}}'}, "invalid_json", None),
        ({"content": b'{"message": {"a": 1e999}}'}, "invalid_json", None),
        ({"content": b'{"message": {"a": 1, "a": 2}}'}, "invalid_json", None),
        ({"content": b'{"message": {"a": ' + b"9" * 4301 + b"}}"}, "invalid_json", None),
        ({"content": b'{"message": {"a": ' + b"[" * 99 + b"]" * 99 + b"}}"}, "invalid_json", None),
        ({"json": {"message": {}, "when_busy": None}}, "invalid_parameter", "when_busy"),
    ],
)
async def test_bodies_that_cannot_be_used(
    home: ServedHome, request_: dict[str, Any], code: str, param: str | None
) -> None:
    headers = {"Content-Type": "application/json"}
    error = await home.error("POST", "/v1/agents/notes/a/messages", 400, headers=headers, **request_)
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
    assert (await home.get("/agents"))["items"] == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_of_another_type_is_refused(home: ServedHome, kind: str) -> None:
    answer = await home.error(
        "POST", "/v1/agents/notes/a/messages", 415, content=b'{"message": {}}', headers={"Content-Type": kind}
    )
    assert answer["code"] == "unsupported_media_type"


async def test_a_body_over_the_limit_is_refused(home: ServedHome) -> None:
    large = b'{"message": {"text": "' + b"x" * 20_000 + b'"}}'

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 1000):
            yield large[start : start + 1000]

    headers = {"Content-Type": "application/json"}
    for content in (large, pieces()):
        error = await home.error("POST", "/v1/agents/notes/a/messages", 413, content=content, headers=headers)
        assert error["code"] == "body_too_large"
    assert (await home.get("/agents"))["items"] == []


async def test_unknown_types_agents_and_messages(home: ServedHome) -> None:
    error = await home.error("POST", "/v1/agents/nothing/a/messages", 404, json=HELLO)
    assert (error["code"], error["type"]) == ("unknown_agent_type", "not_found_error")
    assert "notes" in error["message"]
    assert (await home.error("GET", "/v1/agents/notes/a/inbox", 404))["code"] == "unknown_agent"
    await home.send("notes/a", "hi")
    await home.send("notes/b", "hi")
    other = (await home.get("/agents/notes/b/events", type="user_message"))["items"][0]["correlation_id"]
    for message_id in ("msg_0", other):
        path = f"/v1/agents/notes/a/messages/{message_id}"
        assert (await home.error("GET", path, 404))["code"] == "not_found"
        for action in ("cancel", "retry", "drop"):
            assert (await home.error("POST", f"{path}/{action}", 404))["code"] == "not_found"


async def test_a_lost_connection_to_the_service_is_made_again(home: ServedHome) -> None:
    home.fleet.losses = 2
    assert (await post(home, "/notes/a/messages", HELLO))["text"] == "1: hello"
    assert home.fleet.losses == 0


async def test_a_full_inbox_says_when_to_come_again(home: ServedHome) -> None:
    home.fleet.inbox_limit = 1
    await post(home, "/slow/a/messages", HELLO, 202, Prefer="respond-async")
    await Slow.begun.wait()
    answer = await home.http.post("/v1/agents/slow/a/messages", json=HELLO)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "inbox_full")
    assert int(answer.headers["Retry-After"]) >= 1


async def test_the_trace_of_a_caller_goes_with_its_message(home: ServedHome) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for headers in ({"traceparent": trace}, {}):
        answer = await home.http.post(
            "/v1/agents/notes/alice/messages", json={"message": {"text": "hi"}}, headers=headers
        )
        assert answer.status_code == 200, answer.text
    assert home.fleet.traces == [trace, None]
