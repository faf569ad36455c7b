"""What was checked once and lives long ends with its key: over a real socket, each kind, and each end of a key."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from coordinator.access.caller import Scope
from coordinator.client import AsyncPodium, AuthenticationFailed
from coordinator.client.backends.local_backend import LocalBackend
from coordinator.homes.sqlite.keys import KEYS, SqliteKeyRecords
from coordinator.operations.files import find_file
from podium.address import Address
from tests.unit.coordinator.gateway.agent_classes import Slow
from tests.unit.coordinator.gateway.served_home import ServedHome, served_home
from tests.unit.coordinator.gateway.test_streams import on_a_socket
from tests.waiting import until

SSE = {"Accept": "text/event-stream"}
AGENT = "/v1/agents/slow/a"
MESSAGE = {"message": {"text": "hi"}}
CHAT = {"id": "a", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}
RUN = {"threadId": "a", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "hi"}]}
RESPONSE = {"model": "code.fast", "input": "hi"}


@dataclass
class Served:
    """A gateway on a socket, and a key of a caller."""

    home: ServedHome
    keys: SqliteKeyRecords
    url: str
    http: httpx.AsyncClient
    path: Path
    key_id: str
    headers: dict[str, str]
    message_id: str = ""

    def audited(self) -> list[dict[str, Any]]:
        """Return the lines about requests that ended with a key."""
        file = self.path / "home" / "logs" / "audit.log"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if line["outcome"].endswith("Key")]

    async def send(self) -> str:
        """Have the agent begin a message, and return its id."""
        answer = await self.http.post(
            f"{AGENT}/messages", json=MESSAGE, headers={**self.headers, "Prefer": "respond-async"}
        )
        await Slow.begun.wait()
        self.message_id = answer.json()["message_id"]
        return self.message_id


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    Slow.begun, Slow.go_on = asyncio.Event(), asyncio.Event()
    (tmp_path / "keys").mkdir()
    keys = SqliteKeyRecords(tmp_path / "keys", "home1")
    async with served_home(tmp_path / "home", Slow, keys=keys) as home:
        home.models.go_on.clear()
        key, text = keys.create("caller", "default", [Scope.WRITE], 1)
        async with on_a_socket(home.app) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
            yield Served(home, keys, url, http, tmp_path, key.key_id, {"Authorization": f"Bearer {text}"})
            Slow.go_on.set()
            home.models.go_on.set()
    keys.close()


async def last_of(
    served: Served, method: str, path: str, body: Any, headers: dict[str, str], end: Callable[[], Awaitable[object]]
) -> list[Any]:
    """Open a stream, end its key once an event came, and return what came afterwards."""
    found: list[Any] = []
    ended = False
    async with served.http.stream(method, path, json=body, headers={**served.headers, **headers}) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            if ended:
                found.append(line.removeprefix("data: "))
            elif "begun" in line or path != f"{AGENT}/messages":
                await end()
                ended = True
    return [json.loads(text) if text.startswith("{") else text for text in found]


def revoking(served: Served) -> Callable[[], Awaitable[object]]:
    async def revoke() -> None:
        await asyncio.to_thread(served.keys.revoke, served.key_id)

    return revoke


# -- each kind of stream ----------------------------------------------------------------------------------------------

SENT = {
    "a message that is sent": (f"{AGENT}/messages", MESSAGE, SSE),
    "the AI SDK": ("/v1/ui/slow", CHAT, {}),
    "AG-UI": ("/v1/ag-ui/slow", RUN, {}),
    "a response": ("/v2/responses", {**RESPONSE, "stream": True}, {}),
}
READ = {
    "a message": (f"{AGENT}/messages/MESSAGE", {}),
    "a message that is resumed": (f"{AGENT}/messages/MESSAGE", {"Last-Event-ID": "MESSAGE/0"}),
    "events": (f"{AGENT}/events", {}),
    "events that are resumed": (f"{AGENT}/events", {"Last-Event-ID": "0"}),
}


@pytest.mark.parametrize("kind", SENT)
async def test_a_stream_of_what_is_sent_ends_with_its_key(served: Served, kind: str) -> None:
    path, body, headers = SENT[kind]
    found = await last_of(served, "POST", path, body, headers, revoking(served))
    text = f"this key was revoked or rotated ({served.key_id}); send the request with another"
    match kind:
        case "the AI SDK":
            end = [{"type": "error", "errorText": text}, {"type": "finish", "finishReason": "error"}, "[DONE]"]
            assert found[-3:] == end
        case "AG-UI":
            assert found[-1] == {"type": "RUN_ERROR", "message": text, "code": "revoked_key"}
        case "a response":
            error, done = found[-2:]
            assert error["error"] == {"type": "RevokedKey", "message": text, "code": "revoked_key", "param": None}
            assert (error["type"], error["sequence_number"], done) == (
                "error",
                found[-3]["sequence_number"] + 1,
                "[DONE]",
            )
        case _:
            error = found[-1]
            assert (error["type"], error["message_id"][:4], error["parked"]) == ("error", "msg_", False)
            assert error["error"] == {"type": "RevokedKey", "message": text, "code": "revoked_key"}
    (line,) = served.audited()
    assert (line["who"], line["outcome"], line["client"]) == (served.key_id, "RevokedKey", "127.0.0.1")


@pytest.mark.parametrize("kind", READ)
async def test_a_stream_that_is_read_ends_with_its_key(served: Served, kind: str) -> None:
    message_id = await served.send()
    path, headers = READ[kind]
    sent = {**SSE, **{name: value.replace("MESSAGE", message_id) for name, value in headers.items()}}
    found = await last_of(served, "GET", path.replace("MESSAGE", message_id), None, sent, revoking(served))
    assert (found[-1]["type"], found[-1]["error"]["code"]) == ("error", "revoked_key")
    (line,) = served.audited()
    assert (line["who"], line["agent"], line["outcome"]) == (served.key_id, "slow/a", "RevokedKey")
    refused = await served.http.get(path.replace("MESSAGE", message_id), headers={**served.headers, **sent})
    assert refused.status_code == 401, "it cannot be resumed"


async def test_a_front_end_that_resumes_ends_with_its_key(served: Served) -> None:
    async with served.http.stream("POST", "/v1/ui/slow", json=CHAT, headers=served.headers):
        await Slow.begun.wait()
    found = await last_of(served, "GET", "/v1/ui/slow/a/stream", None, {}, revoking(served))
    assert [item["type"] for item in found[-3:-1]] == ["error", "finish"]
    assert {line["what"] for line in served.audited()} == {"GET resume_chat"}


# -- each end of a key ------------------------------------------------------------------------------------------------


async def revoke_in_another_process(served: Served) -> None:
    code = (
        "import sys; from pathlib import Path; from chronicle.ids import IdSource\n"
        "from coordinator.homes.sqlite.keys import SqliteKeyRecords\n"
        "SqliteKeyRecords(Path(sys.argv[1]), 'home1').revoke(sys.argv[2])"
    )
    command = [sys.executable, "-c", code, str(served.path / "keys"), served.key_id]
    await asyncio.to_thread(subprocess.run, command, check=True)


async def narrow(served: Served) -> None:
    with sqlite3.connect(served.path / "keys" / KEYS.name) as db:  # no command does it; a later version may
        db.execute("UPDATE key SET scopes = 'read' WHERE key_id = ?", (served.key_id,))
    db.close()


async def expire(served: Served) -> None:
    served.home.fleet.clock.advance(60)


async def rotate(served: Served) -> None:
    await asyncio.to_thread(served.keys.rotate, served.key_id)


async def end_the_tenant(served: Served) -> None:
    for key in served.keys.listed("default"):
        await asyncio.to_thread(served.keys.revoke, key.key_id)


ENDS: dict[str, tuple[Callable[[Served], Awaitable[None]], str]] = {
    "revoked by another process": (revoke_in_another_process, "revoked_key"),
    "rotated": (rotate, "revoked_key"),
    "narrowed": (narrow, "narrowed_key"),
    "all of the tenant revoked": (end_the_tenant, "revoked_key"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_a_stream_ends_with_each_end_of_its_key(served: Served, how: str) -> None:
    await served.send()
    end, code = ENDS[how]
    found = await last_of(served, "GET", f"{AGENT}/events", None, SSE, lambda: end(served))
    assert found[-1]["error"]["code"] == code
    assert [line["who"] for line in served.audited()] == [served.key_id]


@pytest.mark.parametrize("token", [False, True])
async def test_a_stream_ends_with_the_time_of_its_key(served: Served, *, token: bool) -> None:
    await served.send()
    now_ms = served.home.fleet.clock.now_ms()
    agent = Address("slow", "a", "default") if token else None
    _, text = served.keys.create(
        "short", "default", [Scope.READ], now_ms, expires_ms=now_ms + 60_000, agent=agent, made_by=served.key_id
    )
    served.headers = {"Authorization": f"Bearer {text}"}
    found = await last_of(served, "GET", f"{AGENT}/events", None, SSE, lambda: expire(served))
    assert found[-1]["error"]["code"] == "expired_key"


async def test_the_stream_of_a_token_ends_with_the_key_that_made_it(served: Served) -> None:
    await served.send()
    agent = Address("slow", "a", "default")
    _, text = served.keys.create("token", "default", [Scope.READ], 1, agent=agent, made_by=served.key_id)
    served.headers = {"Authorization": f"Bearer {text}"}
    found = await last_of(served, "GET", f"{AGENT}/events", None, SSE, revoking(served))
    assert found[-1]["error"]["code"] == "revoked_key"


async def test_the_streams_of_other_keys_go_on(served: Served) -> None:
    await served.send()
    other, _ = served.keys.create("other", "default", [Scope.WRITE], 1)

    async def revoke_other_and_commit() -> None:
        await asyncio.to_thread(served.keys.revoke, other.key_id)
        async with served.http.stream("GET", f"{AGENT}/events", headers={**served.headers, **SSE}):
            Slow.go_on.set()  # what comes next is an event, not an end

    async with served.http.stream("GET", f"{AGENT}/events", headers={**served.headers, **SSE}) as answer:
        types: list[str] = []
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                types.append(json.loads(line.removeprefix("data: "))["type"])
                if len(types) == 1:
                    await revoke_other_and_commit()
                if types[-1] == "turn.committed":
                    break
    assert "error" not in types
    assert served.audited() == []


# -- waits, uploads, downloads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "body"), [(f"{AGENT}/messages", MESSAGE), ("/v2/responses", RESPONSE)])
async def test_a_wait_for_an_answer_ends_with_its_key(served: Served, path: str, body: Any) -> None:
    asking = asyncio.create_task(served.http.post(path, json=body, headers=served.headers))
    await until(lambda: Slow.begun.is_set() or served.home.models.running)
    await revoking(served)()
    answer = await asking
    assert answer.status_code == 401
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "revoked_key")
    assert len(served.audited()) == 1
    if path == "/v2/responses":
        await until(lambda: not served.home.models.running)
    else:  # what was admitted is handled
        Slow.go_on.set()
        store = served.home.fleet.store
        await until(lambda: store.message(error["message_id"]).status.is_settled)
        assert store.message(error["message_id"]).status == "consumed"


async def connected(served: Served, head: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=64 * 1024)
    key = served.headers["Authorization"]
    writer.write(f"{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\n".encode())
    return reader, writer


@pytest.mark.parametrize("path", [f"{AGENT}/files/a.txt", "/v1/agents/slow/copy/archive"])
async def test_an_upload_ends_with_its_key(served: Served, path: str) -> None:
    key, text = served.keys.create("operator", "default", [Scope.ADMIN], 1)
    served.key_id, served.headers = key.key_id, {"Authorization": f"Bearer {text}"}
    Slow.go_on.set()
    await served.send()
    reader, writer = await connected(served, f"PUT {path}")
    writer.write(b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
    assert b" 100 " in await reader.readuntil(b"\r\n\r\n"), "the body is awaited"
    writer.write(b"x" * 500)
    await revoking(served)()
    answer = await reader.readuntil(b"}}")
    writer.close()
    assert b" 401 " in answer.partition(b"\r\n")[0]
    assert b'"revoked_key"' in answer
    assert {(line["who"], line["outcome"]) for line in served.audited()} == {(served.key_id, "RevokedKey")}
    listing: Any = await served.home.agents.read(find_file, Address("slow", "a", "default"), "")
    assert listing.entries == ()


async def test_a_download_is_cut_with_its_key(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    Slow.go_on.set()
    await served.send()
    size = 64 * 1024 * 1024  # more than sockets hold
    content = served.http.put(f"{AGENT}/files/large.bin", content=bytes(size), headers=served.headers)
    assert (await content).status_code == 200
    reader, writer = await connected(served, f"GET {AGENT}/files/large.bin")
    writer.write(b"\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert f"content-length: {size}".encode() in head.lower()
    await revoking(served)()
    await until(served.audited)
    rest = await reader.read()
    writer.close()
    assert len(rest) < size
    assert "without completing response" in caplog.text


# -- clients ----------------------------------------------------------------------------------------------------------


async def test_the_client_library_says_that_the_key_ended(served: Served) -> None:
    message_id = await served.send()
    async with AsyncPodium(url=served.url, key=served.headers["Authorization"].removeprefix("Bearer ")) as podium:
        follows: list[AsyncGenerator[Any]] = [
            podium.follow("slow/a", message_id).events(),
            podium.events("slow/a", follow=True),
        ]
        for follow in follows:
            await anext(follow)
        await revoking(served)()
        for follow in follows:
            with pytest.raises(AuthenticationFailed) as refused:
                _ = [each async for each in follow]
            assert (refused.value.status, refused.value.code) == (401, "revoked_key")


async def test_the_homes_socket_asks_for_no_key(served: Served, tmp_path: Path) -> None:
    message_id = await served.send()
    async with AsyncPodium(home=tmp_path / "home") as podium:
        podium._backend = LocalBackend(tmp_path / "home", 5, link=served.home.fleet)
        frames = podium.follow("slow/a", message_id).events()
        assert (await anext(frames))["type"] == "accepted"
        await end_the_tenant(served)
        Slow.go_on.set()
        assert [frame async for frame in frames][-1]["outcome"] == "committed"
