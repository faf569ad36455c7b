"""The link of a long-lived client: one attempt to connect at a time, again after a loss, and no start after the end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.fleet.services.handover import HandedOver
from coordinator.service import connecting, link
from coordinator.service.client import ServiceClient, ServiceError, ServiceLeft, ServiceRefused
from coordinator.service.link import ServiceLink
from coordinator.service.protocol import AWAITS_REGISTRATION
from tests.unit.coordinator.service.served import DEADLINE_S, HELLO, Agents, serving
from tests.waiting import until

if TYPE_CHECKING:
    from coordinator.home import Home


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The starts of services, which are none: the process of each waits until it is killed."""
    commands: list[list[str]] = []

    class Starting:
        def __init__(self, command: list[str], **_: Any) -> None:
            commands.append(command)

        def poll(self) -> int | None:
            return None

        def wait(self) -> int:
            return 0

    monkeypatch.setattr("coordinator.service.connecting.subprocess.Popen", Starting)
    return commands


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_BACK_OFF_S", (0.0, 0.02))
    monkeypatch.setattr(connecting, "_POLL_S", 0.02)
    monkeypatch.setattr(link, "_HOLD_S", 0.0)


async def test_a_link_that_starts_nothing_says_that_no_service_runs_and_finds_a_later_one(home: Home) -> None:
    async with ServiceLink(home, start=False) as the_link:
        with pytest.raises(ServiceError, match="no service runs on the home .*; podium up starts one"):
            await the_link.client()
        async with serving(home, Agents()):
            client = await the_link.client()
            assert await the_link.client() is client
        await client.wait_lost()
        assert the_link.connected is None
        with pytest.raises(ServiceError, match="no service runs"):
            await the_link.client()
    with pytest.raises(ServiceError, match="the link to the service is closed"):
        await the_link.client()


async def test_callers_share_one_attempt_and_the_callbacks_come_before_them(
    home: Home, starts: list[list[str]]
) -> None:
    agents, connected = Agents(), []

    async def prepare(client: ServiceClient) -> None:
        await client.pin()
        await client.register(HELLO)
        connected.append(client)

    async with asyncio.timeout(DEADLINE_S), ServiceLink(home, start=True, registers=True) as the_link:
        the_link.on_connect(prepare)
        waiting = [asyncio.ensure_future(the_link.client()) for _ in range(5)]
        await until(lambda: starts)
        waiting.pop().cancel()  # which ends nothing for the others
        async with serving(home, agents):
            clients = await asyncio.gather(*waiting)
            assert len(set(clients)) == 1
            assert connected == clients[:1]
            assert (await clients[0].status())["pinned"]
    assert len(starts) == 1
    assert starts[0][:3] == [sys.executable, "-m", "coordinator.service.daemon"]
    assert AWAITS_REGISTRATION in starts[0], "messages of others are refused until then"


async def test_a_lost_service_is_started_again_unasked_and_told_the_same(
    home: Home, starts: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    pinned = []

    async def pin(client: ServiceClient) -> None:
        await client.pin()
        pinned.append(client)

    async with asyncio.timeout(DEADLINE_S), ServiceLink(home, start=True) as the_link:
        the_link.on_connect(pin)
        async with serving(home, Agents()):
            first = await the_link.client()
        await until(lambda: starts)
        async with serving(home, Agents()) as server:
            await until(lambda: len(pinned) == 2)
            await until(lambda: the_link.connected)
            assert the_link.connected is not first
            assert server._pinned
    assert len(starts) == 1
    assert "service_lost" in caplog.text


async def test_a_callback_that_fails_fails_the_attempt_and_not_the_link(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [ServiceRefused("InvalidInput", "two agent classes have the type 'hello'")]

    async def register(_: ServiceClient) -> None:
        if failures:
            raise failures.pop()

    async with serving(home, Agents()) as server, ServiceLink(home, start=True) as the_link:
        the_link.on_connect(register)
        with pytest.raises(ServiceRefused, match="two agent classes"):
            await the_link.client()
        assert (await (await the_link.client()).status())["clients"] == 1
        assert len(server._clients) == 1
    assert caplog.messages == []


async def test_a_service_that_the_link_ends_is_not_started_again(
    home: Home, starts: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(DEADLINE_S), ServiceLink(home, start=True) as the_link:
        async with serving(home, Agents()) as server:
            client = await the_link.client()
            await client.pin()
            unused = asyncio.ensure_future(server.wait_unused(first_client_s=60))
            with home.service_lock() as held:
                assert held
                ending = asyncio.ensure_future(the_link.end_service(3.0))
                await unused
                assert server.stop_timeout_s == 3.0
                assert not ending.done()
            await ending
        with pytest.raises(ServiceError, match="the link to the service is closed"):
            await the_link.client()
    assert starts == []


async def test_a_service_that_does_not_end_in_time_is_reported(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_END_MARGIN_S", 0.0)
    async with serving(home, Agents()), ServiceLink(home, start=False) as the_link:
        with home.service_lock(), pytest.raises(ServiceError, match=r"the service did not end within 0\.05 s"):
            await the_link.end_service(0.05)


async def test_requests_wait_for_the_next_service_for_a_while_after_the_loss_of_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_HOLD_S", float(DEADLINE_S))
    async with ServiceLink(home, start=False) as the_link:
        async with serving(home, Agents()):
            first = await the_link.client()
        await first.wait_lost()
        waiting = asyncio.ensure_future(the_link.client())
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
        async with serving(home, Agents()):
            assert not (await waiting).is_lost


async def test_a_link_moves_to_the_service_that_takes_over_and_streams_of_the_one_before_go_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_HOLD_S", float(DEADLINE_S))
    agents = Agents()
    async with ServiceLink(home, start=False) as the_link, serving(home, agents) as old:
        first = await the_link.client()
        await first.register(HELLO)
        running, waiting = [await first.admit(f"hello/{key}", {}) for key in ("runs", "waits")]
        frames = [
            first.follow(f"hello/{key}", each.message_id) for key, each in (("runs", running), ("waits", waiting))
        ]
        agents.say(running.message_id, {"type": "turn_start", "turn": 1, "attempt": 1})
        assert (await anext(frames[0]))["type"] == "turn_start"
        agents.say(waiting.message_id, {"type": "queued", "before": 1})
        assert (await anext(frames[1]))["type"] == "queued"
        old.end(ordered_away=True)
        old.hand_over()
        await first.wait_left()
        assert the_link.connected is None
        assert not first.is_lost
        with pytest.raises(ServiceLeft, match="has taken over"):
            await first.admit("hello/later", {})
        agents.say(waiting.message_id, HandedOver())
        with pytest.raises(ServiceLeft):
            await anext(frames[1])
        async with serving(home, Agents()):
            second = await the_link.client()
            assert second is not first
            await second.register(HELLO)
            assert (await second.admit("hello/runs", {})).before == 1
            agents.say(running.message_id, {"type": "turn_end", "turn": 1})
            assert (await anext(frames[0]))["type"] == "turn_end"
