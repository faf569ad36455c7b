"""Who asks, as agents see them in `ctx.caller`: by the key alone, on every route that sends a message."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import KEYS, SqliteKeyRecords
from coordinator.operations.discreet_agents import PrivateAgents
from coordinator.streams.event_tail import EventTails
from podium.address import Address
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
    asks = Caller(key.key_id, frozenset({"read", "answer", "write"}), tenant="acme")
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
    asks = Caller(key.key_id, frozenset({"read", "answer", "write"}))
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


# -- tokens with claims -----------------------------------------------------------------------------------------------

CLAIMS: dict[str, Any] = {"sub": "4711", "name": "Ann Ø", "roles": ["buyer"], "key_id": "key_root", "scopes": ["admin"]}


async def token_of(home: ServedHome, admin: str, status: int = 201, **body: Any) -> dict[str, Any]:
    """Make a token for the agent, and return the answer."""
    body = {"agent": "door/a", "scopes": ["write"], **body}
    answer = await home.http.post("/v1/tokens", json=body, headers=bearer(admin))
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def refusal(home: ServedHome, text: str, status: int = 401, agent: str = "door/a", **body: Any) -> str:
    """Return the code of the error of a message with a token."""
    body = {"message": {"text": "hi"}, **body}
    code: str = (await home.error("POST", f"/v1/agents/{agent}/messages", status, json=body, headers=bearer(text)))[
        "code"
    ]
    return code


@pytest.fixture
def admin(keys: SqliteKeyRecords) -> str:
    return keys.create("admin", "acme", [Scope.ADMIN], 1)[1]


async def test_the_agent_gets_the_claims_of_a_token(home: ServedHome, admin: str) -> None:
    token = await token_of(home, admin, claims=CLAIMS)
    assert token["claims"] == CLAIMS
    asks = Caller(token["token_id"], frozenset({"read", "answer", "write"}), CLAIMS, tenant="acme")
    assert await sent(home, bearer(token["token"])) == asks
    plain = await token_of(home, admin)
    assert (await sent(home, bearer(plain["token"]))).claims == {}
    assert "." not in plain["token"]


async def test_a_token_whose_claims_were_changed_is_unknown(
    home: ServedHome, admin: str, keys: SqliteKeyRecords
) -> None:
    token, other = [(await token_of(home, admin, claims={"sub": sub}))["token"] for sub in ("ann", "ben")]
    plain = (await token_of(home, admin))["token"]
    part, _, claims = token.partition(".")
    forged = base64.urlsafe_b64encode(b'{"sub":"root"}').rstrip(b"=").decode()
    texts = {
        part,
        f"{part}.",
        f"{part}.{forged}",
        f"{part}.{other.partition('.')[2]}",
        f"{plain}.{forged}",
        f"{plain}.{claims}",
        f"{admin}.{claims}",
        f"{admin}.{forged}",
        f"{token}=",
        f"{token}.{claims}",
        f"{token}A",
        token[:-1],
        token.upper(),
        *(f"{part}.{claims[:at]}{'A' if claims[at] != 'A' else 'B'}{claims[at + 1 :]}" for at in range(len(claims))),
    }
    assert token not in texts
    for text in texts:
        assert await refusal(home, text) == "unknown_key", text
    assert Door.seen == []
    for text in (token, other, plain, admin):
        await sent(home, bearer(text))
    assert [caller.claims.get("sub") for caller in Door.seen] == ["ann", "ben", None, None]
    assert keys.find(token) is not None


async def test_a_token_ends_by_time_and_with_its_key(home: ServedHome, keys: SqliteKeyRecords) -> None:
    maker, admin = keys.create("admin", "acme", [Scope.ADMIN], 1)
    short, token = [(await token_of(home, admin, claims=CLAIMS, expires_in_s=lasts))["token"] for lasts in (60, 3600)]
    await sent(home, bearer(short))
    home.fleet.clock.advance(60)
    assert await refusal(home, short) == "expired_key"
    await sent(home, bearer(token))
    keys.revoke(maker.key_id)
    assert await refusal(home, token) == "unknown_key"
    assert len(Door.seen) == 2


async def test_a_token_may_do_no_more_than_the_key_that_made_it(
    home: ServedHome, keys: SqliteKeyRecords, tmp_path: Path
) -> None:
    maker, admin = keys.create("admin", "acme", [Scope.ADMIN], 1)
    token = (await token_of(home, admin, claims=CLAIMS))["token"]
    await sent(home, bearer(token))
    with sqlite3.connect(tmp_path / "keys" / KEYS.name) as db:  # no command does it; a later version may
        db.execute("UPDATE key SET scopes = 'read' WHERE key_id = ?", (maker.key_id,))
    db.close()
    assert await refusal(home, token, 403) == "not_permitted"
    assert (await home.http.get("/v1/agents/door/a", headers=bearer(token))).status_code == 200
    for scope in (Scope.READ, Scope.WRITE, Scope.METRICS):
        _, weaker = keys.create("other", "acme", [scope], 1)
        await token_of(home, weaker, 403)
    await token_of(home, token, 403)
    assert len(Door.seen) == 1


async def test_a_token_is_of_one_agent_of_its_tenant(home: ServedHome, admin: str) -> None:
    token = (await token_of(home, admin, claims={"tenant": "default", "agent": "door/b"}))["token"]
    assert await refusal(home, token, 403, agent="door/b") == "not_permitted"
    assert (await sent(home, bearer(token))).tenant == "acme"
    await token_of(home, admin, 403, agent="default:door/a")


async def test_a_token_anywhere_but_in_the_header_does_nothing(home: ServedHome, admin: str) -> None:
    token = (await token_of(home, admin, claims=CLAIMS))["token"]
    plain = await token_of(home, admin)
    message = {"text": token, "token": token, "authorization": f"Bearer {token}"}
    headers = {**bearer(plain["token"]), "Idempotency-Key": token, "X-Authorization": f"Bearer {token}"}
    assert await sent(home, headers, message=message) == Caller(
        plain["token_id"], frozenset({"read", "answer", "write"}), tenant="acme"
    )
    answer = await home.http.post(f"/v1/agents/door/a/messages?token={token}", json={"message": {"text": "hi"}})
    assert answer.status_code == 401


@pytest.mark.parametrize("claims", ["ann", ["ann"], None, {"sub": "x" * 1024}, {"a": "é" * 512}])
async def test_claims_that_are_refused(home: ServedHome, admin: str, claims: Any) -> None:
    await token_of(home, admin, 400, claims=claims)
    await token_of(home, admin, claims={"sub": "x" * (1024 - len('{"sub":""}'))})


async def test_who_has_asked_before_is_for_administrators(home: ServedHome, keys: SqliteKeyRecords) -> None:
    admin = bearer(keys.create("admin", "default", [Scope.ADMIN], 1)[1])
    writer = bearer(keys.create("writer", "default", [Scope.WRITE], 1)[1])

    async def token(**body: Any) -> dict[str, str]:
        made = await home.http.post("/v1/tokens", json={"agent": "door/a", **body}, headers=admin)
        return bearer(made.json()["token"])

    ann = await token(scopes=["write"], claims={"sub": "4711", "email": "ann@example.org"})
    eve = await token(scopes=["read"], claims={"sub": "eve"})
    assert (await sent(home, ann)).claims["email"] == "ann@example.org"
    for path in ("events?type=user_message", "diff?from=0&to=1"):
        for who, is_told in ((admin, True), (writer, False), (ann, False), (eve, False)):
            answer = await home.http.get(f"/v1/agents/door/a/{path}", headers=who)
            assert answer.status_code == 200, answer.text
            assert '"hi"' in answer.text
            assert ("ann@example.org" in answer.text) is is_told, path
            assert ('"caller"' in answer.text) is is_told, path
    async with EventTails(home.agents) as tails:
        for agents, is_told in ((home.agents, True), (PrivateAgents(home.agents), False)):
            with tails.open(Address.parse("door/a"), types=("user_message",), history=agents) as reader:
                events = b"".join(event.event for event in await asyncio.wait_for(reader.next(), 30))
            assert (b"ann@example.org" in events) is is_told
