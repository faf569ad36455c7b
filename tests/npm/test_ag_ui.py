"""The npm package ``@ag-ui/client`` runs agents as it is: version 1.0, and the last one before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator.access.caller import OpenAccess
from coordinator.gateway.app import create_app
from coordinator.streams.home_streams import HomeStreams
from tests.npm.chatter import Chatter, Served, go_on, served
from tests.npm.cutting_proxy import Cut, cutting_proxy
from tests.npm.node import INSTALLED, Client, client
from tests.unit.coordinator.gateway.test_streams import on_a_socket

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not INSTALLED, reason="Node.js and npm packages are not installed: make setup-tests"),
    pytest.mark.parametrize("package", ["@ag-ui/client", "@ag-ui/client-0"]),
]
AGENT = "/v1/agents/chatter/alice"


def said(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Return who said what."""
    return [(message["role"], message["content"]) for message in state["messages"]]


def events(agent: Client) -> list[str]:
    """Return the types of the events that came."""
    return [line["event"]["type"] for line in agent.of_kind("event")]


def says(agent: Client, text: str) -> bool:
    """Whether the answer has a text."""
    role, content = said(agent.state)[-1] if agent.state["messages"] else ("", "")
    return role == "assistant" and text in content


async def send(agent: Client, number: int, text: str, **more: Any) -> dict[str, Any]:
    """Send a message in a run of its own; return what the run gave."""
    return await agent.do("send", runId=f"r{number}", message={"id": f"m{number}", "content": text}, **more)


async def heard(home: Served, key: str = "alice") -> list[str]:
    return await home.heard(key)


async def test_runs_stream_text_and_state(tmp_path: Path, package: str) -> None:
    async with served(tmp_path) as home, client("ag_ui.js", package, f"{home.url}{AGENT}/ag-ui", "t1") as agent:
        sending = await agent.start(
            "send", runId="r1", message={"id": "m1", "content": "one\nwait\nagain\ntwo\nemit tick\nartifact a\ndata x"}
        )
        await agent.until(lambda: says(agent, "one"))
        go_on()
        done = await agent.done(sending)
        assert done["error"] is None
        assert said(done["value"])[1:] == [("assistant", "one"), ("assistant", "two")]
        assert done["value"]["state"] == (await home.get(f"{AGENT}/state"))["state"]
        version = (await home.get(AGENT))["version"]
        result = {"agent": "chatter/alice", "turn": 1, "version": version, "data": {"said": "x"}}
        assert done["value"]["result"] == result
        assert events(agent)[:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]
        assert events(agent)[-3:] == ["STATE_DELTA", "CUSTOM", "RUN_FINISHED"]
        customs = [line["event"]["name"] for line in agent.of_kind("event") if line["event"]["type"] == "CUSTOM"]
        assert customs == ["tick", "podium.artifact"]
        begun = agent.of_kind("event")[0]["event"]
        assert begun["metadata"]["podium"]["agent"] == "chatter/alice"
        assert begun["protocolVersion"] == "1.0"
        done = await send(agent, 2, "more")
        assert done["value"]["state"]["heard"][1:] == ["more"]
        assert said(done["value"])[-1] == ("assistant", "more")
        assert not agent.of_kind("log"), "the client found nothing strange"


async def test_a_run_that_is_cut_off_is_read_again_by_its_id(tmp_path: Path, package: str) -> None:
    async with served(tmp_path) as home:
        cuts = (Cut(b"begun"),)
        async with (
            cutting_proxy(home.urls[0], cuts, rest=home.urls[1]) as proxy,
            client("ag_ui.js", package, f"{proxy.url}{AGENT}/ag-ui", "t1") as agent,
        ):
            done = await send(agent, 1, "begun\nwait\nended")
            assert done["error"] is not None or not says(agent, "ended")
            reading = await agent.start("send", runId="r1")
            await agent.until(lambda: agent.state["messages"][-1]["content"].startswith("begun"))
            go_on()
            done = await agent.done(reading)
            assert done["error"] is None
            assert said(done["value"]) == [("user", "begun\nwait\nended"), ("assistant", "begunended")]
        assert await heard(home) == ["begun\nwait\nended"]


async def test_a_failed_attempt_is_void_and_a_failed_run_is_an_error(tmp_path: Path, package: str) -> None:
    async with served(tmp_path) as home, client("ag_ui.js", package, f"{home.url}{AGENT}/ag-ui", "t1") as agent:
        Chatter.failures = 1
        done = await send(agent, 1, "void or not\nfail")
        assert said(done["value"]) == [("user", "void or not\nfail"), ("assistant", "void or not")]
        assert events(agent).count("TEXT_MESSAGE_START") in {1, 2}
        Chatter.failures = 2
        await send(agent, 2, "hopeless\nfail")
        (failed,) = (line["event"] for line in agent.of_kind("event") if line["event"]["type"] == "RUN_ERROR")
        assert (failed["message"], failed["code"]) == ("as told", "message_parked")
        # The same message in another run: it is tried again.
        done = await agent.do("send", runId="r3")
        assert done["error"] is None
        assert said(done["value"])[-1] == ("assistant", "hopeless")
        assert await heard(home) == ["void or not\nfail", "hopeless\nfail"]


async def test_a_run_is_cancelled(tmp_path: Path, package: str) -> None:
    async with served(tmp_path) as home, client("ag_ui.js", package, f"{home.url}{AGENT}/ag-ui", "t1") as agent:
        sending = await agent.start("send", runId="r1", message={"id": "m1", "content": "begun\nwait"})
        await agent.until(lambda: says(agent, "begun"))
        message_id = agent.of_kind("event")[0]["event"]["metadata"]["podium"]["messageId"]
        answer = await home.home.http.post(f"{AGENT}/messages/{message_id}/cancel", json={})
        assert answer.status_code == 200, answer.text
        await agent.done(sending)
        last = agent.of_kind("event")[-1]["event"]
        if package == "@ag-ui/client":
            assert last["outcome"] == {"type": "cancelled"}
        else:
            assert (last["type"], last["code"]) == ("RUN_ERROR", "cancelled"), "it knows no such outcome"
        done = await send(agent, 2, "after")
        assert said(done["value"])[-1] == ("assistant", "after")
        assert await heard(home) == ["after"]


async def test_the_same_message_changed_is_an_edit(tmp_path: Path, package: str) -> None:
    async with served(tmp_path) as home, client("ag_ui.js", package, f"{home.url}{AGENT}/ag-ui", "t1") as agent:
        await send(agent, 1, "one")
        await send(agent, 2, "two")
        done = await send(agent, 3, "three")
        history = done["value"]["messages"]
        await agent.do("messages", value=[*history[:2], {**history[2], "content": "other"}])
        done = await agent.do("send", runId="r4")
        assert said(done["value"]) == [("user", "one"), ("assistant", "one"), ("user", "other"), ("assistant", "other")]
        assert done["value"]["state"]["heard"] == ["one", "other"]
        assert await heard(home) == ["one", "other"]


async def test_an_earlier_parent_forks_and_the_thread_follows_the_fork(tmp_path: Path, package: str) -> None:
    async with served(tmp_path) as home:
        async with client("ag_ui.js", package, f"{home.url}{AGENT}/ag-ui", "t1") as agent:
            for number, text in enumerate(("one", "two", "three"), 1):
                await send(agent, number, text)
            done = await send(agent, 4, "other", parent="r3")
            assert done["value"]["result"]["agent"] == "chatter/alice", "it is the last one: nothing is forked"
            done = await send(agent, 5, "instead of two", parent="r1")
            fork = done["value"]["result"]["agent"]
            assert fork.startswith("chatter/alice.")
            assert done["value"]["state"]["heard"] == ["one", "instead of two"]
            assert said(done["value"])[0::2] == [("user", "one"), ("user", "instead of two")]
            again = await agent.do("send", runId="r5", parent="r1")
            assert again["value"]["result"] == done["value"]["result"], "a repetition forks nothing"
        # Another gateway, another process of the client.
        async with (
            HomeStreams(home.home.fleet.client, home.home.agents) as streams,
            on_a_socket(create_app(home.home.agents, OpenAccess(), streams)) as url,
            client("ag_ui.js", package, f"{url}{AGENT}/ag-ui", "t1") as agent,
        ):
            done = await send(agent, 6, "goes on")
            assert done["value"]["result"]["agent"] == fork
            assert done["value"]["state"]["heard"] == ["one", "instead of two", "goes on"]
            done = await send(agent, 7, "back to the first line", parent="r3")
            other = done["value"]["result"]["agent"]
            assert other not in {fork, "chatter/alice"}
            assert done["value"]["state"]["heard"] == ["one", "two", "three", "back to the first line"]
            done = await send(agent, 8, "a parent of another agent", parent="nobody-knows")
            assert done["value"]["result"]["agent"] == other
            streams.close()
        async with client("ag_ui.js", package, f"{home.url}{AGENT}/ag-ui", "t2") as agent:
            done = await send(agent, 1, "another thread")
            assert done["value"]["result"]["agent"] == "chatter/alice"
        assert await heard(home) == ["one", "two", "three", "other", "another thread"]


async def test_the_state_of_a_client_is_for_classes_that_accept_it(tmp_path: Path, package: str) -> None:
    async with served(tmp_path) as home:
        async with client("ag_ui.js", package, f"{home.url}{AGENT}/ag-ui", "t1") as agent:
            await agent.do("state", value={"likes": "tea"})
            done = await send(agent, 1, "hello")
            assert done["value"]["state"] == {"heard": ["hello"], "likes": "tea"}
        async with (
            HomeStreams(home.home.fleet.client, home.home.agents) as streams,
            on_a_socket(create_app(home.home.agents, OpenAccess(), streams)) as url,
            client("ag_ui.js", package, f"{url}/v1/ag-ui/chatter", "bob") as agent,
        ):
            await agent.do("state", value={"likes": "tea", "heard": ["lies"]})
            done = await send(agent, 1, "hello")
            assert done["value"]["state"] == {"heard": ["hello"], "likes": ""}
            assert done["value"]["result"]["agent"] == "chatter/bob", "the thread is the key"
            streams.close()
