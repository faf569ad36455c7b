"""Sessions through a real gateway, as a program without podium uses them: plain HTTP with httpx, and a cursor."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.conftest import TIMEOUT_S, Podium, fresh_home

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.ray]

WRITERS = 10
EVENTS = 8

AGENT = """
from typing import Any
from podium.agent import AgentContext, BaseAgent


class Quiet(BaseAgent):
    agent_type = "quiet"

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.reply(message)
"""


@dataclass(frozen=True)
class BranchCursor:
    """Where the client believes a branch to be."""

    session_id: str
    branch_id: str
    version: int = 0
    head_event_id: str | None = None


class Runtime:
    """A client of ``/v2``: a base URL and a header with the key."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT_S)

    def open_session(self) -> BranchCursor:
        answer = self.http.post("/v2/sessions", json={})
        answer.raise_for_status()
        return BranchCursor(answer.json()["id"], answer.json()["default_branch_id"])

    def append(self, cursor: BranchCursor, event_type: str, **event: Any) -> BranchCursor:
        """Append, or raise `Conflict` with the position of the branch."""
        answer = self.http.post(
            f"/v2/sessions/{cursor.session_id}/branches/{cursor.branch_id}/events",
            json={
                "expected_version": cursor.version,
                "expected_head_event_id": cursor.head_event_id,
                "event": {"event_type": event_type, **event},
            },
        )
        if answer.status_code == 409:
            error = answer.json()["error"]
            assert error["code"] == "branch_version_conflict"
            raise Conflict(BranchCursor(cursor.session_id, cursor.branch_id, error["version"], error["head_event_id"]))
        answer.raise_for_status()
        return BranchCursor(cursor.session_id, cursor.branch_id, answer.json()["sequence"], answer.json()["id"])

    def fork(self, cursor: BranchCursor, at: str | None = None) -> BranchCursor:
        body = {"fork_from_branch_id": cursor.branch_id, **({"fork_from_event_id": at} if at else {})}
        answer = self.http.post(f"/v2/sessions/{cursor.session_id}/branches", json=body)
        answer.raise_for_status()
        made = answer.json()
        return BranchCursor(cursor.session_id, made["id"], made["version"], made["head_event_id"])

    def events(self, cursor: BranchCursor) -> list[dict[str, Any]]:
        found = self.http.get(
            f"/v2/sessions/{cursor.session_id}/branches/{cursor.branch_id}/events", params={"limit": 1000}
        )
        found.raise_for_status()
        items: list[dict[str, Any]] = found.json()["items"]
        return items


class Conflict(Exception):
    """The branch is elsewhere."""

    def __init__(self, at: BranchCursor) -> None:
        super().__init__(str(at))
        self.at = at


@dataclass
class Served:
    podium: Podium
    url: str
    key: str
    opened: list[Runtime] = field(default_factory=list)

    def runtime(self, key: str = "") -> Runtime:
        """Return a client, which is closed after the test."""
        self.opened.append(made := Runtime(self.url, key or self.key))
        return made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway that needs keys."""
    project = tmp_path_factory.mktemp("project")
    (project / "quiet_agent.py").write_text(AGENT)
    (project / "podium.toml").write_text('agents = ["quiet_agent.py:Quiet"]\n')
    with fresh_home({}) as podium:
        up = podium("up", "--project", str(project / "podium.toml"), "--detach", "--port", "0", "--json")
        try:
            url = json.loads(up.stdout)["url"]
            yield Served(podium, url, (Path(podium.home) / "local.key").read_text().strip())
        finally:
            podium("down")


@pytest.fixture(autouse=True)
def closed_clients(served: Served) -> Iterator[None]:
    yield
    while served.opened:
        served.opened.pop().http.close()


# S0.1, S0.2, S0.4, S0.7, S0.10, S0.12, S0.14, S0.20, S0.21, S0.22
def test_the_loop_of_a_runtime(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_KEY", served.key)
    runtime = served.runtime(os.environ["PODIUM_KEY"])
    assert httpx.post(f"{served.url}/v2/sessions", json={}).status_code == 401
    start = runtime.open_session()
    asked = runtime.append(start, "user_message", payload={"text": "hello"})
    answered = runtime.append(asked, "assistant_message")
    with pytest.raises(Conflict) as conflict:
        runtime.append(asked, "note")
    assert conflict.value.at == answered
    after_retry = runtime.append(conflict.value.at, "note")
    fork, early = runtime.fork(after_retry), runtime.fork(after_retry, asked.head_event_id)
    assert (fork.version, early.version) == (3, 1)
    runtime.append(early, "assistant_message", payload="another")
    assert [event["event_type"] for event in runtime.events(after_retry)] == [
        "user_message",
        "assistant_message",
        "note",
    ]
    assert [event["event_type"] for event in runtime.events(early)] == ["user_message", "assistant_message"]


# S0.15, S0.16
def test_ten_racing_writers(served: Served) -> None:
    start = served.runtime().open_session()
    errors: list[BaseException] = []
    begin = threading.Barrier(WRITERS)

    def write(name: int) -> None:
        try:
            runtime, cursor = served.runtime(), start
            begin.wait(TIMEOUT_S)
            for number in range(EVENTS):
                while True:
                    try:
                        cursor = runtime.append(cursor, "note", payload=[name, number])
                        break
                    except Conflict as conflict:
                        cursor = conflict.at
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    events = served.runtime().events(start)
    assert [event["sequence"] for event in events] == list(range(1, WRITERS * EVENTS + 1))
    written = [tuple(event["payload"]) for event in events]
    assert sorted(written) == [(name, number) for name in range(WRITERS) for number in range(EVENTS)]
    for name in range(WRITERS):  # each writer's own events are in its order
        assert [number for who, number in written if who == name] == list(range(EVENTS))
    check = served.podium.json("verify")
    assert check["ok"]
    assert check["events"] >= WRITERS * EVENTS


# S0.19, S0.29
def test_what_sessions_have_survives_gc_and_backup(served: Served, tmp_path: Path) -> None:
    runtime = served.runtime()
    content = {"rows": ["x" * 100] * 1000}
    artifact = runtime.http.post("/v2/artifacts", json={"content": content}).json()
    dropped = runtime.http.post("/v2/artifacts", json={"content": "dropped"}).json()
    bundle = runtime.http.post("/v2/bundles", json={"items": [{"text": "a document"}]}).json()
    session = runtime.http.post("/v2/sessions", json={"base_bundle_ids": [bundle["id"]]}).json()
    assert runtime.http.delete(f"/v2/artifacts/{dropped['id']}").json()["deleted"]
    served.podium("gc")
    copy = tmp_path / "copy"
    served.podium("backup", str(copy))
    for home in (served.podium.home, copy):
        checked = Podium(home, served.podium.environment).json("verify")
        assert checked["ok"]
        assert "objects" in {each["agent"] for each in checked["agents"]}
    assert runtime.http.get(f"/v2/artifacts/{artifact['id']}").json()["content"] == content
    assert runtime.http.get(f"/v2/bundles/{bundle['id']}").json()["content"].count("a document") == 1
    assert runtime.http.get(f"/v2/sessions/{session['id']}").json()["base_bundle_ids"] == [bundle["id"]]
    assert [row["agent"] for row in served.podium.json("ps")["agents"]] == []
