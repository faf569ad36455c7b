"""Deploys over HTTP: who may, what is refused, and what is recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.service.client import ServiceError, ServiceRefused
from podium.code.deploys import deploys
from podium.code.packing import pack
from podium.code.transfer import MAX_SENT_BYTES, MEDIA_TYPE, sent
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome

CURRENT = "/v1/deploys/current"
CLASS: dict[str, Any] = {"agent_type": "notes", "file": "agent.py", "class": "Notes"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[ServedHome, str]]:
    """A gateway that sends a key which may deploy; the key's id."""
    (tmp_path / "keys").mkdir()
    keys = SqliteKeyRecords(tmp_path / "keys", "home1")
    async with served_home(tmp_path / "home", Notes, keys=keys) as home:
        key, text = keys.create("ci", "default", [Scope.DEPLOY], 1)
        home.http.headers.update({"Authorization": f"Bearer {text}", "Content-Type": MEDIA_TYPE})
        yield home, key.key_id
    keys.close()


def bundle(tmp_path: Path, code: str, *classes: dict[str, Any]) -> bytes:
    """The bytes of a bundle with one file."""
    (tmp_path / "agent.py").write_text(code)
    blobs = MemoryBlobStore()
    return b"".join(sent(blobs, pack(blobs, tmp_path, [tmp_path / "agent.py"], classes or (CLASS,))))


def audited(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "home" / "logs" / "audit.log").read_text().splitlines()]


async def test_a_deploy_is_recorded_with_its_key_and_used_at_once(
    served: tuple[ServedHome, str], tmp_path: Path
) -> None:
    home, key_id = served
    await home.send("notes/a", "awake")
    first, second = bundle(tmp_path, "x = 1\n"), bundle(tmp_path, "x = 2\n")
    made = (await home.http.put(CURRENT, content=first)).json()
    assert (made["number"], made["by"], made["service"], made["reloaded"]) == (1, key_id, True, ["notes/a"])
    assert (await home.http.put(CURRENT, content=first)).json()["number"] == 1
    home.fleet.silence = ServiceError("it has ended")
    assert (await home.http.put(CURRENT, content=second)).json()["service"] is False
    home.fleet.silence = ServiceRefused("Unavailable", "the bucket is away")
    refused = await home.http.post("/v1/deploys/previous")
    assert refused.status_code == 503
    assert "deploy 3 is current, but not used yet: the bucket is away" in refused.json()["error"]["message"]
    home.fleet.silence = None
    assert (await home.http.delete(CURRENT)).json()["bundle"] is None
    listed = (await home.http.get("/v1/deploys")).json()["items"]
    assert [each["number"] for each in listed] == [1, 2, 3, 4]
    assert listed[2]["bundle"] == made["bundle"] != listed[1]["bundle"], "the one that the service could not use, too"
    lines = [line for line in audited(tmp_path) if line["what"] == "deploy"]
    assert [(line["who"], line["outcome"], line["number"]) for line in lines] == [
        (key_id, "ok", number) for number in (1, 1, 2, 3, 4)
    ]
    assert home.fleet.redeploys == 5


async def test_what_cannot_be_deployed_is_refused_and_nothing_is_stored(
    served: tuple[ServedHome, str], tmp_path: Path
) -> None:
    home, key_id = served
    before = set(home.fleet.blobs.blob_ids())
    good = bundle(tmp_path, "x = 1\n")
    for content, status, code, said in (
        (good[:-1], 400, "invalid_input", "cut off"),
        (b"", 400, "invalid_input", "is no code bundle"),
        (bundle(tmp_path, "", {**CLASS, "file": "gone.py"}), 400, "invalid_input", "no file gone.py"),
        (bundle(tmp_path, "", {**CLASS, "file": "/etc/passwd"}), 400, "invalid_input", "no file /etc/passwd"),
        (bundle(tmp_path, "", {**CLASS, "agent_type": "a b"}), 400, "invalid_address", "a b"),
        (bundle(tmp_path, "", {"file": 5}), 400, "invalid_input", "must be an object with the strings"),
        (bundle(tmp_path, "", CLASS, CLASS), 400, "invalid_input", "two agent classes have the type"),
        (bytes(MAX_SENT_BYTES + 1), 413, "body_too_large", f"more than {MAX_SENT_BYTES} bytes"),
    ):
        answer = await home.http.put(CURRENT, content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        assert said in answer.json()["error"]["message"]
    assert (await home.http.post("/v1/deploys/previous")).status_code == 404
    assert deploys(home.fleet.store) == []
    assert set(home.fleet.blobs.blob_ids()) == before
    assert {(line["who"], line["what"]) for line in audited(tmp_path)} == {(key_id, "deploy")}
    assert all(line["outcome"] != "ok" for line in audited(tmp_path))


async def test_a_key_that_may_not_deploy_is_refused_and_recorded(
    served: tuple[ServedHome, str], tmp_path: Path
) -> None:
    home, _ = served
    keys = SqliteKeyRecords(tmp_path / "keys", "home1")
    for tenant, scope in (("default", Scope.WRITE), ("acme", Scope.ADMIN)):
        headers = {"Authorization": f"Bearer {keys.create('other', tenant, [scope], 1)[1]}"}
        answer = await home.http.put(CURRENT, content=bundle(tmp_path, ""), headers=headers)
        assert answer.json()["error"]["message"] == "this needs a key of the tenant default with the scope deploy"
    keys.close()
    assert [line["outcome"] for line in audited(tmp_path)] == ["NotPermitted", "NotPermitted"]
