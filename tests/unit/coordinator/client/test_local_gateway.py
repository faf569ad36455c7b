"""The key that a client sends to a gateway of this user: the local key of its home, and to that gateway only."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from coordinator.access.local_key import ensure_local_key
from coordinator.cli.main import main
from coordinator.client import AsyncPodium, AuthenticationFailed
from coordinator.gateway_record import GatewayRecord, gateway_lock, write_record
from coordinator.home import Home
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.testing import ScriptedResponse, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from coordinator.testing import ScriptedRequest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home with a local key, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("PODIUM_HOME", "PODIUM_URL", "PODIUM_KEY"):
        monkeypatch.delenv(name, raising=False)
    home = Home(tmp_path / ".podium").create()
    home.make_run_dir()
    yield home
    home.remove_run_dir()


@pytest.fixture
def key(home: Home) -> str:
    with closing(SqliteKeyRecords(home.path, home.id)) as keys:
        text = ensure_local_key(home.path, keys, 1)
    assert text is not None
    return text


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    page = ScriptedResponse.json({"items": [], "next_cursor": None, "remaining": 0})
    async with ScriptedServer(lambda _: page) as server:
        yield server


async def sent(server: ScriptedServer, url: str | None = None, key: str | None = None) -> str | None:
    """Return the ``Authorization`` header of a client's request."""
    async with AsyncPodium(url=url or server.url, key=key) as podium:
        assert [found async for found in podium.agents()] == []
    request: ScriptedRequest = server.requests[-1]
    return request.headers.get("authorization")


async def test_a_gateway_of_this_user_gets_the_local_key(home: Home, key: str, server: ScriptedServer) -> None:
    with gateway_lock(home):
        write_record(home, GatewayRecord(os.getpid(), server.url))
        assert await sent(server) == await sent(server, f"{server.url}/") == f"Bearer {key}"
        assert await sent(server, key="pk_other") == "Bearer pk_other"
        assert await sent(server, key="") is None


async def test_the_home_is_that_of_the_environment_or_of_the_project(
    home: Home, key: str, server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podium.toml").write_text('agents = ["a.py:A"]\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with gateway_lock(home):
        write_record(home, GatewayRecord(os.getpid(), server.url))
        assert await sent(server) == f"Bearer {key}"
        (tmp_path / "podium.toml").write_text("this is no TOML")
        assert await sent(server) is None
        monkeypatch.setenv("PODIUM_HOME", str(home.path))
        assert await sent(server) == f"Bearer {key}"
        monkeypatch.setenv("PODIUM_KEY", "pk_set")
        assert await sent(server) == "Bearer pk_set"


@pytest.mark.usefixtures("key")
async def test_no_other_program_gets_it(home: Home, server: ScriptedServer) -> None:
    assert await sent(server) is None, "there is no record"
    write_record(home, GatewayRecord(os.getpid(), server.url))
    assert await sent(server) is None, "the gateway of the record has ended"
    with gateway_lock(home):
        write_record(home, GatewayRecord(os.getpid(), "http://127.0.0.1:1"))
        assert await sent(server) is None, "it serves at another address"
        write_record(home, GatewayRecord(os.getpid(), server.url))
        named = server.url.replace("127.0.0.1", "localhost")
        assert named != server.url
        assert await sent(server, named) is None, "a name may lead to another program"


async def test_a_client_that_is_older_than_its_gateway_gets_it(home: Home, key: str) -> None:
    def answer(request: ScriptedRequest) -> ScriptedResponse:
        if request.headers.get("authorization") != f"Bearer {key}":
            return ScriptedResponse.json({"error": {"type": "authentication_error", "message": "no key"}}, 401)
        return ScriptedResponse.json({"message_id": "msg_1", "agent": "hello/a", "position": 1, "before": 0}, 202)

    async with ScriptedServer(answer) as server, AsyncPodium(url=server.url) as podium:
        with pytest.raises(AuthenticationFailed):
            await podium.send("hello/a", "there is no record yet")
        with gateway_lock(home):
            write_record(home, GatewayRecord(os.getpid(), server.url))
            for _ in range(2):
                await podium.send("hello/a", "one more")
    given = [request.headers.get("authorization") for request in server.requests]
    assert given == [None, None, f"Bearer {key}", f"Bearer {key}"]
    assert server.requests[1].body == server.requests[2].body


async def test_commands_send_it_too(
    home: Home, key: str, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with gateway_lock(home):
        write_record(home, GatewayRecord(os.getpid(), server.url))
        assert await asyncio.to_thread(main, ["ps", "--url", server.url]) == 0
        assert server.requests[-1].headers["authorization"] == f"Bearer {key}"
        assert await asyncio.to_thread(main, ["ps", "--url", server.url, "--key", "pk_other"]) == 0
        assert server.requests[-1].headers["authorization"] == "Bearer pk_other"
    assert "no agents" in capsys.readouterr().err
