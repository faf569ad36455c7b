"""The core of the npm package ``ai``, which `useChat` is built on, talks to agents as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator.access.caller import Scope
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from podium.address import Address
from podium.agent_record import find_session
from tests.npm.chatter import Chatter, Served, go_on, served
from tests.npm.cutting_proxy import Cut, cutting_proxy
from tests.npm.node import INSTALLED, Client, client
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.gateway.test_streams import on_a_socket
from tests.waiting import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not INSTALLED, reason="Node.js and npm packages are not installed: make setup-tests"),
]


def texts(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Return who said what."""
    return [
        (message["role"], "|".join(part["text"] for part in message["parts"] if part["type"] == "text"))
        for message in state["messages"]
    ]


def parts(state: dict[str, Any], kind: str, at: int = -1) -> list[dict[str, Any]]:
    """Return the parts of a kind of a message, the last one."""
    return [part for part in state["messages"][at]["parts"] if part["type"] == kind]


def says(chat: Client, text: str) -> bool:
    """Whether the answer has a text."""
    role, said = texts(chat.state)[-1] if chat.state["messages"] else ("", "")
    return role == "assistant" and text in said


async def reloaded(home: Served, path: str) -> list[dict[str, Any]]:
    """Return the messages that a page begins with."""
    found: list[dict[str, Any]] = (await home.get(path))["messages"]
    return found


async def test_a_chat_is_sent_and_streamed(tmp_path: Path) -> None:
    async with served(tmp_path) as home, client("chat.js", f"{home.url}/v1/ui/chatter", "alice") as chat:
        text = "one\nwait\nagain\ntwo\nemit tick\nartifact a.txt\ndata yes"
        sending = await chat.start("send", text=text)
        await chat.until(lambda: says(chat, "one"))
        go_on()
        assert (await chat.done(sending))["error"] is None
        assert chat.state["status"] == "ready"
        assert texts(chat.state) == [("user", text), ("assistant", "one|two")]
        (turn,) = parts(chat.state, "data-turn")
        assert turn["data"]["turn"] == 1
        assert turn["data"]["data"] == {"said": "yes"}
        assert turn["data"]["patch"] == [{"op": "add", "path": "/heard/0", "value": text}]
        (file,) = parts(chat.state, "file")
        assert file["mediaType"] == "text/plain"
        assert (await home.home.http.get(file["url"])).text == "content"
        assert [line["part"]["type"] for line in chat.of_kind("data")] == ["data-tick", "data-turn"]
        assert chat.of_kind("finish")[-1]["finishReason"] == "stop"
        await chat.do("send", text="more")
        assert texts(chat.state)[2:] == [("user", "more"), ("assistant", "more")]
        assert await home.heard("alice") == [text, "more"]
        # A page that is loaded again shows the same; patches and passing events are of the stream alone.
        again = {"messages": await reloaded(home, "/v1/ui/chatter/alice")}
        assert texts(again) == texts(chat.state)
        assert [each["id"] for each in again["messages"]] == [each["id"] for each in chat.state["messages"]]
        assert parts(again, "file", 1) == parts(chat.state, "file", 1)
        assert await home.get("/v1/ui/chatter/alice/stream", 204) is None


async def test_an_answer_that_is_cut_off_is_resumed_at_another_gateway(tmp_path: Path) -> None:
    async with served(tmp_path) as home:
        cuts = (Cut("Grüße \U0001f600".encode()[:-2]), Cut(b"second"))
        async with (
            cutting_proxy(home.urls[0], cuts, rest=home.urls[1]) as proxy,
            client("chat.js", f"{proxy.url}/v1/ui/chatter", "alice") as chat,
        ):
            sending = await chat.start("send", text="Grüße \U0001f600\nwait\nsecond\nwait\nthird")
            await chat.done(sending)
            assert chat.state["status"] == "error"
            resuming = await chat.start("resume")
            await chat.until(lambda: says(chat, "Grüße \U0001f600"))
            go_on()
            await chat.done(resuming)
            assert chat.state["status"] == "error"
            resuming = await chat.start("resume")
            await chat.until(lambda: says(chat, "second"))
            go_on()
            await chat.done(resuming)
        assert proxy.cut == 2
        assert (chat.state["status"], chat.state["error"]) == ("ready", None)
        assert texts(chat.state)[-1] == ("assistant", "Grüße \U0001f600secondthird")
        assert len(chat.state["messages"]) == 2, "a replay makes no further message"


async def test_a_page_that_is_loaded_again_in_the_middle_of_an_answer_goes_on(tmp_path: Path) -> None:
    async with served(tmp_path) as home:
        async with client("chat.js", f"{home.url}/v1/ui/chatter", "alice") as first:
            await first.do("send", text="before")
            await first.start("send", text="begun\nwait\nended")
            await first.until(lambda: says(first, "begun"))
        async with client("chat.js", f"{home.urls[1]}/v1/ui/chatter", "alice") as second:
            messages = await reloaded(home, "/v1/ui/chatter/alice")
            assert [message["role"] for message in messages] == ["user", "assistant", "user"]
            assert messages[-1]["metadata"] == {"status": "pending"}
            await second.do("messages", value=messages)
            resuming = await second.start("resume")
            await second.until(lambda: says(second, "begun"))
            assert second.state["status"] == "streaming"
            go_on()
            await second.done(resuming)
            assert texts(second.state)[-1] == ("assistant", "begunended")
            assert len(second.state["messages"]) == 4
            await second.do("resume")
            assert second.state["status"] == "ready", "nothing runs: 204"


async def test_chats_of_a_named_agent_resume_with_its_running_message_and_then_have_their_own(tmp_path: Path) -> None:
    async with served(tmp_path) as home:
        api = f"{home.url}/v1/agents/chatter/shared/ui"
        async with client("chat.js", api, "one") as one, client("chat.js", api, "two") as two:
            sending = await one.start("send", text="begun\nwait")
            await one.until(lambda: says(one, "begun"))
            resuming = await two.start("resume")
            await two.until(lambda: says(two, "begun"))
            go_on()
            await one.done(sending)
            await two.done(resuming)
            await two.do("resume")
            assert two.state["status"] == "ready", "nothing runs: 204"
            await two.do("send", text="mine")
            assert texts(two.state) == [("assistant", "begun"), ("user", "mine"), ("assistant", "mine")]
        assert await home.heard("shared") == ["begun\nwait", "mine"]
        assert len(await reloaded(home, "/v1/agents/chatter/shared/ui")) == 4
        await home.get("/v1/ui/chatter/one", 404)


async def test_a_failed_attempt_is_taken_back_and_a_failed_message_is_tried_again(tmp_path: Path) -> None:
    async with served(tmp_path) as home, client("chat.js", f"{home.url}/v1/ui/chatter", "alice") as chat:
        Chatter.failures = 1
        await chat.do("send", text="void or not\nartifact a.txt\nfail")
        assert chat.state["status"] == "ready"
        assert texts(chat.state)[-1] == ("assistant", "void or not")
        assert len(parts(chat.state, "file")) == 1
        assert [line["part"]["type"] for line in chat.of_kind("data")] == ["data-retry", "data-turn"]
        assert [part["type"] for part in chat.state["messages"][-1]["parts"]].count("step-start") == 1
        Chatter.failures = 2
        await chat.do("send", text="hopeless\nfail")
        assert (chat.state["status"], chat.state["error"]) == ("error", "as told")
        messages = await reloaded(home, "/v1/ui/chatter/alice")
        assert messages[-1]["metadata"] == {
            "status": "parked",
            "error": {"type": "ValueError", "message": "as told"},
        }
        await chat.do("regenerate")
        assert (chat.state["status"], chat.state["error"]) == ("ready", None)
        assert texts(chat.state)[2:] == [("user", "hopeless\nfail"), ("assistant", "hopeless")]
        assert await home.heard("alice") == ["void or not\nartifact a.txt\nfail", "hopeless\nfail"]


async def test_an_edit_takes_back_what_followed(tmp_path: Path) -> None:
    async with served(tmp_path) as home, client("chat.js", f"{home.url}/v1/ui/chatter", "alice") as chat:
        for text in ("one", "two", "three"):
            await chat.do("send", text=text)
        second = chat.state["messages"][2]["id"]
        await chat.do("send", text="other", messageId=second)
        assert chat.state["status"] == "ready"
        assert texts(chat.state) == [("user", "one"), ("assistant", "one"), ("user", "other"), ("assistant", "other")]
        assert await home.heard("alice") == ["one", "other"]
        assert texts({"messages": await reloaded(home, "/v1/ui/chatter/alice")}) == texts(chat.state)
        # Back to its first text, and the first message without a change: the history behind it goes all the same.
        await chat.do("send", text="two", messageId=second)
        assert await home.heard("alice") == ["one", "two"]
        await chat.do("send", text="one", messageId=chat.state["messages"][0]["id"])
        assert await home.heard("alice") == ["one"]
        assert texts(chat.state) == [("user", "one"), ("assistant", "one")]


async def test_an_edit_of_the_message_that_is_being_handled_cancels_it(tmp_path: Path) -> None:
    async with served(tmp_path) as home, client("chat.js", f"{home.url}/v1/ui/chatter", "alice") as chat:
        await chat.do("send", text="one")
        await chat.start("send", text="wrong\nwait")
        await chat.until(lambda: says(chat, "wrong"))
        await chat.do("stop")
        await chat.do("send", text="right", messageId=chat.state["messages"][2]["id"])
        assert texts(chat.state)[2:] == [("user", "right"), ("assistant", "right")]
        assert await home.heard("alice") == ["one", "right"]


async def test_an_answer_is_made_again(tmp_path: Path) -> None:
    async with served(tmp_path) as home, client("chat.js", f"{home.url}/v1/ui/chatter", "alice") as chat:
        for text in ("one", "two"):
            await chat.do("send", text=text)
        answers = {chat.state["messages"][-1]["id"]}
        for _ in range(2):
            await chat.do("regenerate")
            assert texts(chat.state)[2:] == [("user", "two"), ("assistant", "two")]
            answers.add(chat.state["messages"][-1]["id"])
        assert len(answers) == 3, "each answer is one of its own"
        assert await home.heard("alice") == ["one", "two"]
        await chat.do("regenerate", messageId=chat.state["messages"][1]["id"])
        assert texts(chat.state) == [("user", "one"), ("assistant", "one")]
        assert await home.heard("alice") == ["one"]
        assert (await home.get("/v1/agents/chatter/alice/state"))["turn"] == 2 + 3 * 2, "each after a rewind"


async def test_a_message_that_steers_an_answer_is_shown_in_it(tmp_path: Path) -> None:
    async with served(tmp_path) as home:
        api = f"{home.url}/v1/agents/chatter/shared/ui"
        async with client("chat.js", api, "one") as one, client("chat.js", api, "two") as two:
            sending = await one.start("send", text="begun\nwait\nended")
            await one.until(lambda: says(one, "begun"))
            await two.do("body", value={"when_busy": "steer"})
            steering = await two.start("send", text="be brief")
            await one.until(lambda: bool(parts(one.state, "steering-message")))
            go_on()
            await one.done(sending)
            await two.done(steering)
            assert (one.state["status"], two.state["status"]) == ("ready", "ready")
            (steered,) = parts(one.state, "steering-message")
            assert steered["parts"] == [{"type": "text", "text": "be brief"}]
            assert steered["id"] == two.state["messages"][0]["id"]
            assert texts(one.state) == [("user", "begun\nwait\nended"), ("assistant", "begunended")]
        assert await home.heard("shared") == ["begun\nwait\nended", "steered: be brief"]
        again = {"messages": await reloaded(home, "/v1/agents/chatter/shared/ui")}
        (shown,) = parts(again, "steering-message", 1)
        assert (shown["id"], shown["parts"]) == (steered["id"], steered["parts"])


async def test_an_answer_is_cancelled(tmp_path: Path) -> None:
    async with served(tmp_path) as home, client("chat.js", f"{home.url}/v1/ui/chatter", "alice") as chat:
        sending = await chat.start("send", text="begun\nwait\nended")
        await chat.until(lambda: says(chat, "begun"))
        message_id = chat.state["messages"][-1]["id"]
        answer = await home.home.http.post(f"/v1/agents/chatter/alice/messages/{message_id}/cancel", json={})
        assert answer.status_code == 200, answer.text
        await chat.done(sending)
        assert chat.state["status"] == "ready"
        assert chat.of_kind("finish")[-1]["finishReason"] == "interrupted"
        go_on()
        await chat.do("regenerate")
        # The client stops reading; with `cancel_on_disconnect` that stops the agent.
        await chat.do("body", value={"cancel_on_disconnect": True})
        await chat.start("send", text="more\nwait\nwait")
        await chat.until(lambda: says(chat, "more"))
        await chat.do("stop")
        store = home.home.fleet.store
        session = find_session(store, Address.parse("chatter/alice"))
        await until(lambda: not store.pending(session.session_id))
        assert await home.heard("alice") == ["begun\nwait\nended"]


async def test_a_repeated_request_runs_nothing_twice(tmp_path: Path) -> None:
    """Whatever a proxy or a service worker repeats."""
    async with served(tmp_path) as home:
        message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "once"}]}
        body: dict[str, Any] = {"id": "alice", "trigger": "submit-message", "messages": [message]}
        first = await home.home.http.post("/v1/ui/chatter", json=body)
        assert first.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert first.text.endswith("data: [DONE]\n\n")
        again = await home.home.http.post("/v1/ui/chatter", json=body)
        answer = again.text.split('"messageId":"')[1].split('"')[0]
        assert answer in first.text
        regenerate = {**body, "trigger": "regenerate-message", "messageId": answer}
        made = [(await home.home.http.post("/v1/ui/chatter", json=regenerate)).text for _ in range(2)]
        assert answer not in made[0]
        assert made[0].split('"messageId":"')[1][:30] == made[1].split('"messageId":"')[1][:30]
        edited = {**body, "messageId": "m1", "messages": [{**message, "parts": [{"type": "text", "text": "edited"}]}]}
        for _ in range(2):
            assert "edited" in (await home.home.http.post("/v1/ui/chatter", json=edited)).text
        assert await home.heard("alice") == ["edited"]
        assert (await home.get("/v1/agents/chatter/alice/state"))["turn"] == 5


async def test_a_key_is_asked_for(tmp_path: Path) -> None:
    keys = SqliteKeyRecords(tmp_path, "home1")
    _, key = keys.create("page", "default", [Scope.WRITE], 1)
    Chatter.failures = 0
    async with served_home(tmp_path / "home", Chatter, keys=keys) as home, on_a_socket(home.app) as url:
        async with client("chat.js", f"{url}/v1/ui/chatter", "alice", PODIUM_KEY=key) as chat:
            await chat.do("send", text="hello")
            assert texts(chat.state)[-1] == ("assistant", "hello")
        async with client("chat.js", f"{url}/v1/ui/chatter", "alice") as chat:
            await chat.do("send", text="hello")
            assert chat.state["status"] == "error"
            assert "missing_key" in chat.state["error"]
    keys.close()
