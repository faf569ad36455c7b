"""Links: their holder answers one question of one run, once, and can do nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.access.caller import Scope
from coordinator.access.keys import LINK_PREFIX, home_tag, new_text
from coordinator.gateway.page.files import ANSWERING, CONTENT_SECURITY_POLICY
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from tests.unit.coordinator.gateway.every_route import routes_of
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.gateway.shop import Shop, paused, settled, with_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome

PATH = "/v1/answer"


@pytest.fixture
def keys(tmp_path: Path) -> SqliteKeyRecords:
    (tmp_path / "keys").mkdir()
    return SqliteKeyRecords(tmp_path / "keys", "home1")


@pytest.fixture
async def home(tmp_path: Path, keys: SqliteKeyRecords) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Shop, keys=keys) as served:
        yield served
    keys.close()


async def link(home: ServedHome, headers: dict[str, str], run: str, **body: Any) -> dict[str, Any]:
    answer = await home.http.post(f"/v1/runs/{run}/links", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def held(made: dict[str, Any] | str) -> dict[str, str]:
    """Return the headers of who has a link."""
    return {"Authorization": f"Bearer {made if isinstance(made, str) else made['token']}"}


async def test_its_holder_sees_the_question_and_answers_it_once(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    run = await paused(home, writer)
    made = await link(home, with_key(keys, Scope.ANSWER), run, promise="payment")
    assert (made["run_id"], made["agent"], made["call_id"]) == (run, "shop/a", "promise payment#1")
    assert made["path"] == f"/answer#{made['token']}"
    asked = await home.http.get(PATH, headers=held(made))
    assert asked.json() == {
        "kind": "promise",
        "promise": "payment",
        "reason": "tea",
        "schema": {"type": "integer"},
        "expires": None,
    }
    for body, code in (
        ({"answer": "five"}, "invalid_decision"),
        ({"answer": 5, "mesage": 1}, "unknown_field"),
        ({"answer": 5, "rejection": "no"}, None),
    ):
        error = await home.error("POST", PATH, 400, json=body, headers=held(made))
        assert code in (None, error["code"])
    answer = await home.http.post(PATH, json={"answer": 5}, headers=held(made))
    assert (answer.status_code, answer.json()) == (200, {"outcome": "answered"})
    for method, more in (("GET", {}), ("POST", {"json": {"answer": 5}})):
        assert (await home.error(method, PATH, 401, headers=held(made), **more))["code"] == "unknown_key"
    await settled(home, writer, run)
    assert (await home.http.get("/v1/agents/shop/a/state", headers=writer)).json()["state"]["paid"] == 5
    harness = await home.fleet.harness("acme:shop/a")
    (summary,) = [payload["steps"] for _, payload in harness.events("turn.committed") if "steps" in payload]
    assert made["link_id"] in json.dumps(summary)


async def test_a_promise_is_rejected_by_a_link(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    run = await paused(home, writer)
    made = await link(home, writer, run)
    answer = await home.http.post(PATH, json={"rejection": "card refused"}, headers=held(made))
    assert (answer.status_code, answer.json()) == (200, {"outcome": "rejected"})
    assert (await settled(home, writer, run))["answer"]["data"] == "card refused"


async def test_it_is_no_key_of_anything_else(home: ServedHome, keys: SqliteKeyRecords) -> None:
    run = await paused(home, with_key(keys, Scope.WRITE))
    made = await link(home, with_key(keys, Scope.ADMIN), run)
    refused = 0
    for route in routes_of(home.app):
        if route.path == PATH or route.name in {"healthz", "readyz"}:
            continue
        path = route.path.replace("{type}", "shop").replace("{key}", "a").replace("{run_id}", run)
        answer = await home.http.request(route.method, path, json={"answer": 5}, headers=held(made))
        assert answer.status_code == 401, (route, answer.text)
        refused += 1
    assert refused > 50


async def test_it_does_not_answer_what_is_asked_later(home: ServedHome, keys: SqliteKeyRecords) -> None:
    """Neither another run of the agent, nor the same question once it was answered."""
    writer = with_key(keys, Scope.WRITE)
    first = await paused(home, writer)
    made = await link(home, writer, first)
    await home.http.post(f"/v1/runs/{first}/decision", json={"answer": 1}, headers=writer)
    assert (await home.error("GET", PATH, 409, headers=held(made)))["code"] == "run_not_paused"
    await settled(home, writer, first)
    second = await paused(home, writer)
    for method, more in (("GET", {}), ("POST", {"json": {"answer": 5}})):
        assert (await home.error(method, PATH, 409, headers=held(made), **more))["code"] == "run_not_paused"
    assert [each["run_id"] for each in (await home.http.get("/v1/runs", headers=writer)).json()["items"]] == [second]


async def test_a_link_with_other_claims_is_none(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    first, second = await paused(home, writer), await paused(home, writer, "shop/b")
    made, other = [await link(home, writer, run) for run in (first, second)]
    secret, _, claims = made["token"].partition(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert said["run"] == first
    swapped = f"{secret}.{other['token'].partition('.')[2]}"
    more = base64.urlsafe_b64encode(json.dumps({**said, "run": second}).encode()).decode().rstrip("=")
    of_another_home = new_text(LINK_PREFIX, home_tag("home2"), said)
    for token, code in (
        (swapped, "unknown_key"),
        (f"{secret}.{more}", "unknown_key"),
        (secret, "unknown_key"),
        (made["token"].replace(LINK_PREFIX, "pt_", 1), "unknown_key"),
        (of_another_home, "key_of_another_home"),
        ("", "missing_key"),
    ):
        for method in ("GET", "POST"):
            assert (await home.error(method, PATH, 401, json={"answer": 5}, headers=held(token)))["code"] == code


async def test_of_two_answers_at_once_one_is_taken(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    run = await paused(home, writer)
    links = [await link(home, writer, run) for _ in range(3)]
    answers = await asyncio.gather(
        *(home.http.post(PATH, json={"answer": 5}, headers=held(made)) for made in (*links, *links))
    )
    codes = [answer.status_code for answer in answers]
    assert min(codes) == 200
    assert codes.count(200) == 1
    assert {code for code in codes if code != 200} <= {401, 409}
    await settled(home, writer, run)
    assert (await home.http.get("/v1/agents/shop/a/state", headers=writer)).json()["state"]["paid"] == 5


async def test_who_may_not_answer_makes_no_link(home: ServedHome, keys: SqliteKeyRecords) -> None:
    writer = with_key(keys, Scope.WRITE)
    run = await paused(home, writer)
    for headers, status in (
        (with_key(keys, Scope.READ), 403),
        (with_key(keys, Scope.WRITE, "zeta"), 404),
        (with_key(keys, Scope.ADMIN, "default"), 404),
        ({}, 401),
    ):
        await home.error("POST", f"/v1/runs/{run}/links", status, json={}, headers=headers)
    for agent, status in (("shop/a", 201), ("shop/b", 403)):
        made = {"agent": agent, "scopes": ["answer"]}
        token = (await home.http.post("/v1/tokens", json=made, headers=with_key(keys, Scope.ADMIN))).json()["token"]
        answer = await home.http.post(f"/v1/runs/{run}/links", json={}, headers=held(token))
        assert answer.status_code == status, answer.text
    for body, status, code in (
        ({"promise": "other"}, 409, "run_not_paused"),
        ({"expires_in_s": 0}, 400, None),
        ({"expires_in_s": 31 * 86_400}, 400, None),
        ({"claims": {}}, 400, None),
    ):
        error = await home.error("POST", f"/v1/runs/{run}/links", status, json=body, headers=writer)
        assert code in (None, error["code"])


async def test_it_ends_with_its_time_its_key_and_by_hand(home: ServedHome, keys: SqliteKeyRecords) -> None:
    run = await paused(home, with_key(keys, Scope.WRITE))
    maker, text = keys.create("maker", "acme", [Scope.WRITE], 1)
    admin = with_key(keys, Scope.ADMIN)
    made, other, third = [await link(home, held(text), run, expires_in_s=60) for _ in range(3)]
    assert (await home.http.get(PATH, headers=held(made))).status_code == 200
    await home.error("DELETE", f"/v1/keys/{made['link_id']}", 404, headers=with_key(keys, Scope.ADMIN, "zeta"))
    assert (await home.http.delete(f"/v1/keys/{made['link_id']}", headers=admin)).status_code == 200
    assert (await home.error("GET", PATH, 401, headers=held(made)))["code"] == "unknown_key"
    assert (await home.http.get(PATH, headers=held(other))).status_code == 200
    home.fleet.clock.advance(60)
    assert (await home.error("POST", PATH, 401, json={"answer": 5}, headers=held(other)))["code"] == "expired_key"
    late = await link(home, held(text), run)
    keys.revoke(maker.key_id)
    for ended in (late, third):
        assert (await home.error("POST", PATH, 401, json={"answer": 5}, headers=held(ended)))["code"] == "unknown_key"
    assert (await home.http.get("/v1/runs", headers=admin)).json()["items"][0]["run_id"] == run


async def test_its_page_is_there_and_says_nothing(home: ServedHome) -> None:
    for path, (_, media_type) in ANSWERING.items():
        answer = await home.http.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "innerHTML" not in answer.text
