"""Who asks, as agents see them in `ctx.caller`: by the key alone, on every route that sends a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.caller import Caller
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome

FORGED: dict[str, Any] = {"key_id": "key_root", "scopes": ["admin"], "claims": {"sub": "root"}, "agents": []}


class Door(BaseAgent):
    """Answers with who asks."""

    agent_type = "door"
    seen: ClassVar[list[Caller]]

    class State(DeltaState):
        _entity_type = "door"
        _version = 1

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        self.seen.append(ctx.caller)
        await ctx.send_message("hi")


@pytest.fixture
def keys(tmp_path: Path) -> SqliteKeyRecords:
    (tmp_path / "keys").mkdir()
    return SqliteKeyRecords(tmp_path / "keys", "home1")


@pytest.fixture
async def home(tmp_path: Path, keys: SqliteKeyRecords) -> AsyncIterator[ServedHome]:
    Door.seen = []
    async with served_home(tmp_path / "home", Door, keys=keys) as served:
        yield served
    keys.close()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def sent(home: ServedHome, headers: dict[str, str], **body: Any) -> Caller:
    """Send a message, and return the caller that the agent saw."""
    message = {"message": {"text": "hi"}, **body}
    answer = await home.http.post("/v1/agents/door/a/messages", json=message, headers=headers)
    assert answer.status_code == 200, answer.text
    return Door.seen[-1]


async def test_it_is_that_of_the_key_whatever_the_request_says(home: ServedHome, keys: SqliteKeyRecords) -> None:
    key, text = keys.create("test", "acme", [Scope.WRITE], 1)
    asks = Caller(key.key_id, frozenset({"read", "write"}), tenant="acme")
    assert await sent(home, bearer(text)) == asks
    assert (
        await sent(home, bearer(text), message={"text": "hi", "caller": FORGED, "headers": {"caller": FORGED}}) == asks
    )
    assert (
        await sent(home, {**bearer(text), "caller": "root", "x-podium-caller": "root", "x-forwarded-user": "r"}) == asks
    )
    refused = {"message": {"text": "hi"}, "caller": FORGED}
    await home.error("POST", "/v1/agents/door/a/messages", 400, json=refused, headers=bearer(text))
    assert len(Door.seen) == 3


async def test_front_ends_are_asked_by_the_key_too(home: ServedHome, keys: SqliteKeyRecords) -> None:
    key, text = keys.create("test", "default", [Scope.WRITE], 1)
    asks = Caller(key.key_id, frozenset({"read", "write"}))
    part = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {"caller": FORGED}}
    run = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "m1", "role": "user", "content": "hi"}],
        "tools": [],
        "context": [],
        "state": {"caller": FORGED},
        "forwardedProps": {"caller": FORGED},
    }
    for path, body in (
        ("/v1/ui/door", {"id": "a", "messages": [part], "caller": FORGED}),
        ("/v1/agents/door/b/ui", {"id": "b", "messages": [part]}),
        ("/v1/ag-ui/door", run),
        ("/v1/agents/door/c/ag-ui", run),
    ):
        before = len(Door.seen)
        answer = await home.http.post(path, json=body, headers=bearer(text))
        assert answer.status_code == 200, answer.text
        assert Door.seen[before:] == [asks], path


async def test_a_repetition_does_not_make_the_message_of_another_ones_own(
    home: ServedHome, keys: SqliteKeyRecords
) -> None:
    first, text = keys.create("first", "default", [Scope.WRITE], 1)
    _, other = keys.create("other", "default", [Scope.ADMIN], 1)
    assert (await sent(home, {**bearer(text), "Idempotency-Key": "once"})).key_id == first.key_id
    assert (await sent(home, {**bearer(other), "Idempotency-Key": "once"})).key_id == first.key_id
    assert len(Door.seen) == 1


async def test_without_keys_everybody_is_the_operator(tmp_path: Path) -> None:
    Door.seen = []
    async with served_home(tmp_path / "home", Door) as home:
        assert await sent(home, {}) == Caller(None, frozenset(map(str, Scope)))
