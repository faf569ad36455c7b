"""Messages that a service delivers by itself, and their followers: now, later, slow ones, after a restart."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import SystemClock
from chronicle.ids import IdSource, MessageId
from coordinator.channel import pack
from coordinator.fleet.model import Code
from coordinator.registry.known_agents import KnownAgents
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.service import agent_types
from coordinator.service.client import AgentRef, ServiceError, ServiceRefused
from coordinator.service.protocol import PROTOCOL
from podium.address import Address
from podium.caller import NOBODY, Caller
from podium.errors import HostDied
from podium.messages.headers import Headers
from podium.messages.inbox import drop_message
from podium.turn.busy import BusyPolicy
from tests.unit.coordinator.service.served import AGENT, HELLO, Agents, client_of, serving
from tests.waiting import until

if TYPE_CHECKING:
    from coordinator.home import Home
    from coordinator.service.client import ServiceClient

START = {"type": "turn_start", "turn": 1, "attempt": 1}
END = {"type": "turn_end", "turn": 1, "version": 3, "patch": []}


def delta(text: str, reply_id: str = "r") -> dict[str, Any]:
    return {"type": "message_update", "reply_id": reply_id, "delta": text}


async def followed(client: ServiceClient, message_id: str) -> list[dict[str, Any]]:
    return [frame async for frame in client.follow("hello/a", message_id)]


def types(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["type"] for frame in frames]


def text(frames: list[dict[str, Any]]) -> str:
    return "".join(frame.get("delta", "") for frame in frames)


async def test_a_message_is_delivered_without_a_follower(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO)
        admitted = await client.admit("hello/a", {"text": "hi"}, "once")
        assert (admitted.position, admitted.before, admitted.repeated) == (1, 0, False)
        await until(lambda: [message_id for _, _, message_id in agents.delivered] == [admitted.message_id])
        again = await client.admit("hello/a", {"text": "hi"}, "once")
        assert (again.message_id, again.repeated) == (admitted.message_id, True)
        assert (await client.status())["delivering"] == 1
        assert agents.prepared == [], "an address is no order to run the code as it is now"
    with closing(home.journal()) as journal:
        (session,) = journal.sessions("hello/a")
        assert [message.body for message in journal.pending(session.session_id)] == [b'{"text":"hi"}']


async def test_the_caller_is_recorded_with_the_message_and_is_nobody_if_none_is_given(home: Home) -> None:
    caller = Caller("key_1", frozenset({"read"}), {"sub": "ann"})
    async with serving(home, Agents()), client_of(home) as client:
        await client.register(HELLO)
        await client.admit("hello/a", {"text": "hi", "caller": caller.to_json()})
        await client.admit("hello/a", {"text": "hi"}, "once", caller=caller)
        await client.admit("hello/a", {"text": "hi"}, "once", caller=Caller("key_2"))
    with closing(home.journal()) as journal:
        (session,) = journal.sessions("hello/a")
        found = [Headers.from_json(message.headers).caller for message in journal.pending(session.session_id)]
        assert found == [NOBODY, caller]


async def test_a_message_goes_along_to_an_agent_that_is_awake_for_its_host_not_to_read_it(home: Home) -> None:
    agents = Agents()
    agents.epochs[Address("hello", "a")] = 7
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO)
        admitted = [await client.admit("hello/a", {"text": "hi"}, "once") for _ in range(2)]
        await client.admit("hello/b", {"text": "hi"})
        await until(lambda: len(agents.offers) == 2)
        agents.say(admitted[0].message_id, END)
    offer, asleep = agents.offers
    assert asleep is None
    assert offer is not None
    assert (offer.epoch, offer.message.message_id, offer.message.body) == (7, admitted[0].message_id, b'{"text":"hi"}')


async def test_an_address_of_an_unknown_type_is_refused_and_nothing_is_stored(home: Home) -> None:
    async with serving(home, Agents()), client_of(home) as client:
        with pytest.raises(ServiceRefused, match="no agent class of type 'hello': no types are known") as refused:
            await client.admit("hello/a", {"text": "hi"})
        assert refused.value.kind == "UnknownAgentType"
        await client.register(Registry([RegisteredAgent("bee", "/b.py", "B"), RegisteredAgent("ant", "/a.py", "A")]))
        with pytest.raises(ServiceRefused, match="the known types are ant, bee"):
            await client.admit("hello/a", {"text": "hi"})
    with closing(home.journal()) as journal:
        assert journal.sessions() == []


async def test_a_type_that_a_message_brought_along_is_known(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        first = await anext(aiter(client.send(AGENT, "a", {"text": "one"})))
        assert first["type"] == "accepted"
        await client.admit("hello/a", {"text": "two"})
        await until(lambda: len(agents.delivered) == 2)
    assert {code.file for _, code, _ in agents.delivered} == {AGENT.file}


async def test_what_is_registered_replaces_what_was_and_two_classes_of_a_type_are_refused(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO)
        other = RegisteredAgent("hello", "/agents/other.py", "Other")
        with pytest.raises(ServiceRefused, match="two agent classes have the type 'hello'") as refused:
            await client._ask({"op": "register", "agents": [*HELLO.to_wire(), other.to_wire()]})
        assert refused.value.kind == "InvalidInput"
        entry = {"agent_type": "hello", "file": AGENT.file, "class": AGENT.class_name, "bundle": None}
        assert (await client.status())["registry"] == [{**entry, "problem": None}]
        agents.broken["hello"] = "syntax error"
        assert (await client.status())["registry"] == [{**entry, "problem": "syntax error"}]
        await client.register(Registry())
        assert (await client.status())["registry"] == []
    assert [known.types_to_tell for known in agents.told] == [("hello",), ()]


async def test_a_reload_is_asked_for_and_follows_what_is_known(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        assert await client.register(HELLO) == []
        assert agents.reloads == 0
        assert await client.register(HELLO, reload=True) == ["hello/awake"]
        assert (agents.reloads, len(agents.told)) == (1, 2)
        with pytest.raises(ServiceRefused, match="'reload' must be true or false"):
            await client._ask({"op": "register", "agents": [], "reload": 1})


async def test_messages_follow_edits_if_the_registry_says_so(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO, follow_edits=True)
        await client.admit("hello/a", {"text": "one"})
        assert agents.prepared == [Code(AGENT.file, AGENT.class_name, "hello")]
        await client.register(HELLO, reload=True)
        await client.admit("hello/a", {"text": "two"})
        assert len(agents.prepared) == 2
        await client.register(HELLO, follow_edits=False)
        await client.admit("hello/a", {"text": "three"})
        assert len(agents.prepared) == 2


async def test_a_service_that_follows_a_killed_one_knows_what_that_knew(home: Home) -> None:
    agents = Agents()
    agents.known = KnownAgents(HELLO)
    async with serving(home, agents), client_of(home) as client:
        await client.admit("hello/a", {"text": "one"})
        with pytest.raises(ServiceRefused, match="the known types are hello"):
            await client.admit("bye/a", {"text": "one"})


async def test_a_message_brings_its_class_and_configuration_along(home: Home) -> None:
    agents = Agents()
    configured = AgentRef(AGENT.file, AGENT.class_name, "hello", {"model": "small"})
    async with serving(home, agents), client_of(home) as client:
        for _ in range(2):
            await anext(aiter(client.send(configured, "a", {"text": "one"})))
        (known,) = agents.told
        assert (known.config_of("hello"), known.types, known.types_to_tell) == ({"model": "small"}, ("hello",), None)
        await client.register(Registry([RegisteredAgent("hello", AGENT.file, AGENT.class_name, {"model": "large"})]))
        assert agents.told[-1].config_of("hello") == {"model": "large"}
        await anext(aiter(client.send(AgentRef("/b.py", "B", "bee"), "a", {"text": "one"})))
        assert agents.told[-1].types_to_tell == ("bee", "hello")


async def test_followers_come_at_any_time_and_get_the_attempt_from_its_beginning(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client, client_of(home) as other:
        await client.register(HELLO)
        message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(followed(client, message_id))
            agents.say(message_id, START, delta("one "), delta("two "))
            await until(lambda: len(agents.delivered) == 1 and agents.said[message_id].empty())
            later = tasks.create_task(followed(other, message_id))
            await client.status()
            agents.say(message_id, delta("three"), END)
        for frames in (first.result(), later.result()):
            assert types(frames)[0] == "turn_start"
            assert types(frames)[-1] == "turn_end"
            assert text(frames) == "one two three"
        just_after = await followed(client, message_id)
        assert text(just_after) == "one two three"
    assert len(agents.delivered) == 1


async def test_a_message_is_delivered_to_the_end_though_its_followers_leave(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO)
        message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
        async with client_of(home) as hasty:
            agents.say(message_id, START)
            assert (await anext(aiter(hasty.follow("hello/a", message_id))))["type"] == "turn_start"
        agents.say(message_id, delta("all"), END)
        assert text(await followed(client, message_id)) == "all"


async def test_the_failure_of_a_wake_is_told_and_the_next_follower_makes_it_wake_again(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO)
        message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
        agents.say(message_id, START)
        follower = client.follow("hello/a", message_id)
        assert (await anext(aiter(follower)))["type"] == "turn_start"
        agents.say(message_id, HostDied("the agent's process died while it was being woken"))
        with pytest.raises(ServiceRefused, match="died while it was being woken") as refused:
            _ = [frame async for frame in follower]
        assert refused.value.kind == "HostDied"
        assert f"message_not_delivered message_id={message_id} agent_id=hello/a" in caplog.text
        agents.say(message_id, START, END)
        assert types(await followed(client, message_id)) == ["turn_start", "turn_end"]
    assert len(agents.delivered) == 2


async def test_a_settled_message_is_read_from_the_journal(home: Home) -> None:
    agents = Agents()
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO)
        message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
    with closing(home.journal()) as journal:
        (session,) = journal.sessions("hello/a")
        assert drop_message(journal, session, MessageId(message_id), IdSource(), SystemClock().now_ms())
    after = Agents()
    async with serving(home, after), client_of(home) as client:  # which knows no code
        (frame,) = await followed(client, message_id)
        assert (frame["type"], frame["error"]["type"], frame["message_id"]) == ("error", "Cancelled", message_id)
        with pytest.raises(ServiceRefused, match="msg_none"):
            await followed(client, "msg_none")
        with pytest.raises(ServiceRefused, match="no agent hello/b"):
            _ = [frame async for frame in client.follow("hello/b", message_id)]
    assert after.delivered == []


async def test_after_a_restart_a_follower_of_a_pending_message_makes_its_delivery_begin(home: Home) -> None:
    async with serving(home, Agents()), client_of(home) as client:
        await client.register(HELLO)
        message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
    after = Agents()
    async with serving(home, after), client_of(home) as client:
        with pytest.raises(ServiceRefused, match="no agent class of type 'hello'"):
            await followed(client, message_id)
        await client.register(HELLO)
        after.say(message_id, START, delta("here"), END)
        assert text(await followed(client, message_id)) == "here"


async def test_messages_of_unknown_types_wait_for_the_registration_of_the_client_that_started_the_service(
    home: Home,
) -> None:
    async with serving(home, Agents()), client_of(home) as client:
        await client.register(HELLO)
        pending = (await client.admit("hello/a", {"text": "one"})).message_id
    after = Agents()
    async with serving(home, after, awaits_registration=True), client_of(home) as other, client_of(home) as starter:
        following = asyncio.ensure_future(followed(other, pending))
        admitting = asyncio.ensure_future(other.admit("hello/a", {"text": "two"}))
        wrong = asyncio.ensure_future(other.admit("bye/a", {"text": "two"}))
        assert (await other.status())["clients"] == 2
        assert not after.delivered
        await starter.register(HELLO)
        after.say(pending, START, END)
        assert types(await following) == ["turn_start", "turn_end"]
        assert (await admitting).position == 2
        with pytest.raises(ServiceRefused, match="the known types are hello"):
            await wrong
        with pytest.raises(ServiceRefused, match="the known types are hello"):
            await other.admit("bye/a", {"text": "two"})


async def test_a_registration_that_does_not_come_is_not_awaited_for_long(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_types, "_REGISTRATION_S", 0.05)
    async with serving(home, Agents(), awaits_registration=True), client_of(home) as client:
        with pytest.raises(ServiceRefused, match="no types are known"):
            await client.admit("hello/a", {"text": "one"})
        monkeypatch.setattr(agent_types, "_REGISTRATION_S", 3600)
        with pytest.raises(ServiceRefused, match="no types are known"):
            await client.admit("hello/a", {"text": "one"})


async def test_a_slow_follower_delays_no_other_request_and_gets_merged_text(home: Home) -> None:
    """The slow one takes a frame and then none, while far more is said than any buffer of a socket holds."""
    agents, pieces, piece = Agents(), 2000, "x" * 5000
    async with serving(home, agents), client_of(home) as client:
        await client.register(HELLO)
        message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
        slow = client.follow("hello/a", message_id)
        agents.say(message_id, START)
        assert (await anext(aiter(slow)))["type"] == "turn_start"
        agents.say(message_id, *[delta(piece)] * pieces, END)
        assert len(text(await followed(client, message_id))) == pieces * len(piece)
        assert (await client.status())["pid"]
        rest = [frame async for frame in slow]
    assert len(text(rest)) == pieces * len(piece)
    assert len(rest) < pieces / 4, "text that waits is merged"


async def test_a_client_that_does_not_read_delays_no_other_client(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    agents, pieces, piece = Agents(), 2000, "x" * 5000
    async with serving(home, agents) as server, client_of(home) as client:
        await client.register(HELLO)
        message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
        _, writer = await asyncio.open_unix_connection(home.socket_path, limit=1)
        for request_id in range(20):
            request = {"id": request_id, "op": "follow", "agent": "hello/a", "message_id": message_id}
            writer.write(pack(request))
        agents.say(message_id, START, *[delta(piece)] * pieces, END)
        assert len(text(await followed(client, message_id))) == pieces * len(piece)
        writer.transport.abort()
        await until(lambda: len(server._clients) == 1)
    assert caplog.messages == []


async def test_a_pinned_service_outlives_its_clients_until_it_is_ended(home: Home) -> None:
    async with serving(home, Agents()) as server:
        unused = asyncio.ensure_future(server.wait_unused(first_client_s=60))
        async with client_of(home) as client:
            await client.pin()
            status = await client.status()
            assert (status["pinned"], status["clients"], status["protocol"]) == (True, 1, PROTOCOL)
        async with client_of(home) as client:  # by now the server has noticed the end of the first
            await until(lambda: len(server._clients) == 1)
            assert not unused.done()
            await client.down(7.5)
            await unused
            assert server.stop_timeout_s == 7.5
            with pytest.raises(ServiceRefused, match="the service is ending; send the message again") as refused:
                _ = [frame async for frame in client.send(AGENT, "a", {"text": "late"})]
            assert refused.value.kind == "Unavailable"
    with closing(home.journal()) as journal:
        assert journal.sessions() == []


async def test_a_service_that_is_not_pinned_ends_with_its_last_client(home: Home) -> None:
    async with serving(home, Agents()) as server:
        unused = asyncio.ensure_future(server.wait_unused(first_client_s=60))
        async with client_of(home) as client:
            await client.status()
            assert not unused.done()
        await unused


async def test_streams_go_on_while_the_service_ends_and_then_the_connection_ends(home: Home) -> None:
    agents, told = Agents(), asyncio.Event()

    async def read(client: ServiceClient, message_id: str) -> None:
        async for frame in client.follow("hello/a", message_id):
            if frame["type"] == "message_update":
                told.set()

    async with AsyncExitStack() as clients:
        async with serving(home, agents) as server:
            client = await clients.enter_async_context(client_of(home))
            await client.register(HELLO)
            message_id = (await client.admit("hello/a", {"text": "hi"})).message_id
            reading = asyncio.ensure_future(read(client, message_id))
            server.admit_no_more()
            agents.say(message_id, START, delta("still there"))
            await told.wait()
        with pytest.raises(ServiceError, match="accepted messages are kept"):
            await reading
        await client.wait_lost()
        assert client.is_lost
        with pytest.raises(ServiceError):
            await client.status()


async def test_bad_requests_are_refused_by_name(home: Home) -> None:
    async with serving(home, Agents()), client_of(home) as client:
        for request, refusal in (
            ({"op": "admit", "agent": 1, "message": {}}, "'agent' must be an address"),
            ({"op": "admit", "agent": "hello/a", "message": []}, "a message must be a JSON object"),
            ({"op": "admit", "agent": "hello/a", "message": {}, "when_busy": "panic"}, "'when_busy' must be one of"),
            ({"op": "admit", "agent": "hello/a", "message": {}, "idempotency_key": 1}, "'idempotency_key' must be"),
            ({"op": "register", "agents": {}}, "'agents' must be a list"),
            ({"op": "register", "agents": [{"file": "a.py"}]}, "the strings file, class and agent_type"),
            ({"op": "down", "timeout_s": -1}, "'timeout_s' must be a positive number"),
            ({"op": "down", "timeout_s": True}, "'timeout_s' must be a positive number"),
            ({"op": "dance"}, "unknown operation 'dance'"),
        ):
            with pytest.raises(ServiceRefused, match=refusal):
                await client._ask(request)
        with pytest.raises(ServiceRefused, match="InvalidAddress|type/key"):
            await client.admit("hello", {}, when_busy=BusyPolicy.ENQUEUE)
