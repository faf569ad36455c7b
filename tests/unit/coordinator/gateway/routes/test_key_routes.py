"""Keys and tokens over HTTP, and requests with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.access.caller import Scope
from coordinator.access.keys import home_tag, new_text
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

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
    async with served_home(tmp_path / "home", Notes, keys=keys) as served:
        yield served
    keys.close()


def with_key(keys: SqliteKeyRecords, *scopes: Scope, tenant: str = "default") -> dict[str, str]:
    """Return the headers of a caller with a new key."""
    return {"Authorization": f"Bearer {keys.create('test', tenant, scopes, 1)[1]}"}


async def created(home: ServedHome, path: str, headers: dict[str, str], **body: Any) -> dict[str, Any]:
    answer = await home.http.post(f"/v1{path}", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_without_a_key_nothing_is_answered(home: ServedHome) -> None:
    await home.send("notes/alice", "hi")
    for method, path in (("GET", "/v1/agents"), ("GET", "/v1/agents/notes/alice"), ("POST", "/v1/keys")):
        error = await home.error(method, path, 401)
        assert (error["type"], error["code"]) == ("authentication_error", "missing_key")
    of_another_home = new_text("pk_", home_tag("home2"))
    for text, code in ((of_another_home, "key_of_another_home"), ("pk_bad", "unknown_key"), ("pt_bad", "unknown_key")):
        error = await home.error("GET", "/v1/agents", 401, headers={"Authorization": f"Bearer {text}"})
        assert error["code"] == code
    assert error["message"] == "this is not a key: a key is pk_ or pt_ and 40 letters and digits"
    assert (await home.http.get("/healthz")).status_code == 200


async def test_scopes_are_checked(home: ServedHome, keys: SqliteKeyRecords) -> None:
    await home.send("notes/alice", "hi")
    await home.fleet.sleep("notes/alice")
    reader, writer, admin = (with_key(keys, scope) for scope in (Scope.READ, Scope.WRITE, Scope.ADMIN))
    agent = "/v1/agents/notes/alice"
    for method, path, permitted, refused in (
        ("GET", "/v1/agents", reader, []),
        ("POST", f"{agent}/verify", writer, [reader]),
        ("POST", f"{agent}/passivate", writer, [reader]),
        ("GET", "/v1/keys", admin, [reader, writer]),
        ("DELETE", agent, admin, [reader, writer]),
    ):
        for headers in refused:
            error = await home.error(method, path, 403, headers=headers)
            assert (error["type"], error["code"]) == ("permission_error", "not_permitted")
        answer = await home.http.request(method, path, headers=permitted)
        assert answer.status_code == 200, answer.text


async def test_keys_are_made_listed_rotated_and_revoked(home: ServedHome, keys: SqliteKeyRecords) -> None:
    admin = with_key(keys, Scope.ADMIN)
    made = await created(home, "/keys", admin, name="ci", scopes=["read"], expires_in_s=60)
    assert made["expires_at"] == made["created_at"] + 60_000
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert (await home.http.get("/v1/agents", headers=headers)).status_code == 200
    listed = (await home.http.get("/v1/keys", headers=admin)).json()["items"]
    assert [item["name"] for item in listed] == ["test", "ci"]
    assert all("key" not in item for item in listed)
    rotated = (await home.http.post(f"/v1/keys/{made['key_id']}/rotate", headers=admin)).json()
    assert (await home.error("GET", "/v1/agents", 401, headers=headers))["code"] == "unknown_key"
    headers = {"Authorization": f"Bearer {rotated['key']}"}
    assert (await home.http.get("/v1/agents", headers=headers)).status_code == 200
    assert (await home.http.delete(f"/v1/keys/{made['key_id']}", headers=admin)).status_code == 200
    assert (await home.error("GET", "/v1/agents", 401, headers=headers))["code"] == "unknown_key"
    assert (await home.error("DELETE", f"/v1/keys/{made['key_id']}", 404, headers=admin))["code"] == "not_found"


async def test_an_administrator_of_a_tenant_has_its_keys_only(home: ServedHome, keys: SqliteKeyRecords) -> None:
    operator, admin = with_key(keys, Scope.ADMIN), with_key(keys, Scope.ADMIN, tenant="acme")
    own = await created(home, "/keys", admin, name="own")
    assert own["tenant"] == "acme"
    other = await created(home, "/keys", operator, name="other", tenant="zeta")
    refused = ({"name": "x", "tenant": "zeta"}, {"name": "x", "tenant": "default"}, {"name": "x", "tenant": "nobody"})
    for body in refused:
        assert (await home.error("POST", "/v1/keys", 403, headers=admin, json=body))["code"] == "not_permitted"
    assert {item["tenant"] for item in (await home.http.get("/v1/keys", headers=admin)).json()["items"]} == {"acme"}
    await home.error("GET", "/v1/keys?tenant=zeta", 403, headers=admin)
    for key_id in (other["key_id"], "key_none"):
        there = await home.error("DELETE", f"/v1/keys/{key_id}", 404, headers=admin)
        assert there["message"].replace(key_id, "ID") == "there is no key 'ID'; podium keys list shows the ids"
        await home.error("POST", f"/v1/keys/{key_id}/rotate", 404, headers=admin)
    everything = (await home.http.get("/v1/keys", headers=operator)).json()["items"]
    assert {item["tenant"] for item in everything} == {"default", "acme", "zeta"}
    assert (await home.http.get("/v1/keys?tenant=zeta", headers=operator)).json()["items"][0]["name"] == "other"


async def test_a_token_is_for_one_agent(home: ServedHome, keys: SqliteKeyRecords) -> None:
    await home.send("acme:notes/alice", "hi")
    await home.send("acme:notes/bob", "hi")
    admin = with_key(keys, Scope.ADMIN, tenant="acme")
    token = await created(home, "/tokens", admin, agent="notes/alice", expires_in_s=60)
    assert (token["agent"], token["scopes"]) == ("notes/alice", ["read"])
    headers = {"Authorization": f"Bearer {token['token']}"}
    assert (await home.http.get("/v1/agents/notes/alice", headers=headers)).json()["turn"] == 1
    for path in ("/v1/agents/notes/bob", "/v1/agents/notes/nobody", "/v1/agents", "/v1/keys"):
        assert (await home.error("GET", path, 403, headers=headers))["code"] == "not_permitted"
    await home.error("POST", "/v1/tokens", 403, headers=headers, json={"agent": "notes/alice"})
    home.fleet.clock.advance(60.0)
    assert (await home.error("GET", "/v1/agents/notes/alice", 401, headers=headers))["code"] == "expired_key"


@pytest.mark.parametrize(
    "body",
    [
        {"agent": "notes/alice", "scopes": ["admin"]},
        {"agent": "notes/alice", "scopes": []},
        {"agent": "notes/alice", "expires_in_s": 86_401},
        {"agent": "notes/alice", "expires_in_s": 0},
        {"agent": "notes/alice", "colour": "red"},
        {"agent": "alice"},
        {},
    ],
)
async def test_tokens_that_are_refused(home: ServedHome, keys: SqliteKeyRecords, body: dict[str, Any]) -> None:
    error = await home.error("POST", "/v1/tokens", 400, headers=with_key(keys, Scope.ADMIN), json=body)
    assert error["type"] == "invalid_request_error"


async def test_keys_and_tokens_are_not_made_by_a_repetition(home: ServedHome, keys: SqliteKeyRecords) -> None:
    admin = with_key(keys, Scope.ADMIN)
    (key,) = keys.listed()
    for path, body in (("/keys", {"name": "x"}), ("/tokens", {"agent": "notes/a"}), (f"/keys/{key.key_id}/rotate", {})):
        error = await home.error("POST", f"/v1{path}", 400, json=body, headers={**admin, "Idempotency-Key": "once"})
        assert (error["code"], error["param"]) == ("unsupported_header", "Idempotency-Key")
    assert keys.listed() == [key]


async def test_a_token_of_another_tenants_agent_is_refused(home: ServedHome, keys: SqliteKeyRecords) -> None:
    await home.send("notes/alice", "hi")
    admin = with_key(keys, Scope.ADMIN, tenant="acme")
    for agent in ("default:notes/alice", "default:notes/nobody"):
        error = await home.error("POST", "/v1/tokens", 403, headers=admin, json={"agent": agent})
        assert error["message"] == "this key is for agents of the tenant acme only"


async def test_what_is_done_with_keys_is_recorded_without_their_texts(
    home: ServedHome, keys: SqliteKeyRecords, tmp_path: Path
) -> None:
    admin, reader = with_key(keys, Scope.ADMIN), with_key(keys, Scope.READ)
    made = await created(home, "/keys", admin, name="ci")
    token = await created(home, "/tokens", admin, agent="notes/alice")
    rotated = (await home.http.post(f"/v1/keys/{made['key_id']}/rotate", headers=admin)).json()
    await home.http.delete(f"/v1/keys/{made['key_id']}", headers=admin)
    await home.error("POST", "/v1/keys", 403, headers=reader, json={"name": "x"})
    text = (tmp_path / "home" / "logs" / "audit.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["what"], line["outcome"]) for line in lines] == [
        ("key.create", "ok"),
        ("token.create", "ok"),
        ("key.rotate", "ok"),
        ("key.revoke", "ok"),
        ("key.create", "NotPermitted"),
    ]
    assert {line["client"] for line in lines} == {"127.0.0.1"}
    assert lines[1]["agent"] == "notes/alice"
    assert [line["key_id"] for line in lines[::2]] == [made["key_id"], made["key_id"], None]
    assert lines[1]["key_id"].startswith("tok_")
    secrets = [
        made["key"],
        token["token"],
        rotated["key"],
        *(key["Authorization"].split()[1] for key in (admin, reader)),
    ]
    everything = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    for secret in secrets:
        assert not any(secret.encode() in content for content in everything)


async def test_deleting_an_agent_is_recorded(home: ServedHome, keys: SqliteKeyRecords, tmp_path: Path) -> None:
    await home.send("notes/alice", "hi")
    await home.fleet.sleep("notes/alice")
    admin, writer = with_key(keys, Scope.ADMIN), with_key(keys, Scope.WRITE)
    for headers, status in ((writer, 403), (admin, 200), (admin, 404)):
        assert (await home.http.delete("/v1/agents/notes/alice", headers=headers)).status_code == status
    lines = [json.loads(line) for line in (tmp_path / "home" / "logs" / "audit.log").read_text().splitlines()]
    assert [(line["what"], line["agent"], line["outcome"]) for line in lines] == [
        ("DELETE delete_agent", "notes/alice", "NotPermitted"),
        ("DELETE delete_agent", "notes/alice", "ok"),
        ("DELETE delete_agent", "notes/alice", "UnknownAgent"),
    ]
    assert {line["who"] for line in lines} == {key.key_id for key in keys.listed()}


async def test_without_keys_there_are_none_to_administer(tmp_path: Path) -> None:
    async with served_home(tmp_path / "home", Notes) as home:
        assert (await home.error("GET", "/v1/keys", 404))["code"] == "no_keys"
