"""Deliveries of the service when an agent's host is replaced."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from chronicle.ids import MessageId
from coordinator.fleet.model import Code, Route
from coordinator.home import Home
from coordinator.host.delivery import DELIVERIES, DeliveryServer, Notice
from coordinator.ray.router import Router
from coordinator.service.message_delivery import MessageDelivery
from coordinator.settings import Settings
from podium.address import Address
from podium.errors import AgentAsleep, HostDied
from podium.turn.busy import BusyPolicy
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from coordinator.client_messages import Admitted
    from podium.turn.stream import Frame

DEADLINE_S = 30
SILENCE_S = 60.0
ALICE = Address("greeter", "alice")
OLD, NEW = Route("host_old", 1, 0), Route("host_new", 2, 0)
END: Frame = {"type": "turn_end", "turn": 1}


class Host:
    """Yields frames of a message; the next one when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.attempt = 1
        self.server = DeliveryServer(self._deliver)

    async def _deliver(self, *_: object) -> AsyncGenerator[list[Frame], None]:
        yield [{"type": "turn_start", "turn": 1, "attempt": self.attempt}]
        await self.go_on.wait()
        yield [{"type": "message_update", "delta": "of a stale host"}]


RETRY: Frame = {"type": "turn_retry", "attempt": 1, "error": {"type": "HostLost", "message": "its process ended"}}


def _message(name: str, *, repeated: bool = False) -> Admitted:
    async def failed_tries() -> list[Frame]:
        return [RETRY]

    async def settled() -> list[Frame]:
        return []

    message = SimpleNamespace(
        message_id=MessageId(name),
        when_busy=BusyPolicy.ENQUEUE,
        receipt=SimpleNamespace(position=1, repeated=repeated),
        offer=None,
        before=0,
        failed_tries=failed_tries,
        settled=settled,
    )
    return cast("Admitted", message)


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[tuple[Router, dict[str, Host]]]:
    """A service's router, and the old and the new host of an agent."""
    home = Home(tmp_path / "home").create()
    sockets = home.make_run_dir() / DELIVERIES
    sockets.mkdir()
    made = {route.host_id: Host() for route in (OLD, NEW)}
    for host_id, host in made.items():
        await host.server.start(sockets / host_id)
    router = Router(home, Settings())
    yield router, made
    router.routes.drop(ALICE, NEW)
    for host in made.values():
        host.server.close()
    async with asyncio.timeout(DEADLINE_S):
        while any("_serve" in repr(task) for task in asyncio.all_tasks()):  # it ends with its connection
            await asyncio.sleep(0.005)
    home.remove_run_dir()


async def test_a_failed_attempt_is_reported_also_if_another_sender_woke_the_agent_again(
    hosts: tuple[Router, dict[str, Host]], caplog: pytest.LogCaptureFixture
) -> None:
    router, _ = hosts
    router.routes.put(ALICE, OLD)
    code = Code("greeter.py", "Greeter", "greeter")
    async with (
        asyncio.timeout(DEADLINE_S),
        aclosing(MessageDelivery(router, SILENCE_S).deliver(ALICE, code, _message("tried"))) as frames,
    ):
        assert (await anext(frames))[0]["type"] == "turn_start"
        with router.routes.in_use(ALICE):  # by the other sender
            router.routes.put(ALICE, NEW)
            _ = router.routes.channel(ALICE, NEW)
            assert await anext(frames) == [RETRY]
        assert (await anext(frames))[0]["type"] == "turn_start"
    assert "event=host_lost host_id=host_old agent_id=greeter/alice" in caplog.text


async def test_an_attempt_that_ended_with_the_activation_is_reported_before_the_next_one(
    hosts: tuple[Router, dict[str, Host]],
) -> None:
    router, made = hosts
    made["host_new"].attempt = 2
    router.routes.put(ALICE, NEW)
    code = Code("greeter.py", "Greeter", "greeter")
    async with (
        asyncio.timeout(DEADLINE_S),
        aclosing(MessageDelivery(router, SILENCE_S).deliver(ALICE, code, _message("tried"))) as frames,
    ):
        assert [frame["type"] for frame in await anext(frames)] == ["turn_retry", "turn_start"]


async def test_the_attempt_that_ended_with_its_service_is_reported_by_the_next_service(
    hosts: tuple[Router, dict[str, Host]],
) -> None:
    """The waking records it, after the message was found in its inbox."""
    router, made = hosts

    class Coordinator:
        wake = remote = property(lambda self: self)

        async def __call__(self, *_: object) -> Route:
            return NEW

    router._coordinator = Coordinator()
    code = Code("greeter.py", "Greeter", "greeter")
    message = _message("sent to the service that was killed", repeated=True)
    async with (
        asyncio.timeout(DEADLINE_S),
        aclosing(MessageDelivery(router, SILENCE_S).deliver(ALICE, code, message)) as frames,
    ):
        told = [(await anext(frames))[0]["type"] for _ in range(3)]
    assert told == ["turn_retry", "agent_start", "turn_start"]
    assert not made["host_new"].go_on.is_set()


async def test_epochs_that_begin_anew_are_no_stale_ones(hosts: tuple[Router, dict[str, Host]]) -> None:
    router, _ = hosts
    delivery = MessageDelivery(router, SILENCE_S)
    _ = router.routes.channel(ALICE, NEW)
    router.routes.drop(ALICE, NEW)
    async with (
        asyncio.timeout(DEADLINE_S),
        aclosing(delivery._stream(ALICE, OLD, _message("after the agent was deleted"))) as frames,
    ):
        assert (await anext(frames))[0]["type"] == "turn_start"
    router.routes.drop(ALICE, OLD)


async def test_frames_of_a_stale_host_reach_no_client_once_another_host_is_used(
    hosts: tuple[Router, dict[str, Host]],
) -> None:
    router, made = hosts
    delivery = MessageDelivery(router, SILENCE_S)
    with router.routes.in_use(ALICE):
        async with (
            asyncio.timeout(DEADLINE_S),
            aclosing(delivery._stream(ALICE, OLD, _message("first"))) as of_old,
            aclosing(delivery._stream(ALICE, NEW, _message("second"))) as of_new,
        ):
            assert (await anext(of_old))[0]["type"] == "turn_start"
            assert (await anext(of_new))[0]["type"] == "turn_start"
            made["host_old"].go_on.set()
            with pytest.raises(HostDied):
                await anext(of_old)
            with pytest.raises(AgentAsleep, match="was replaced by host_new"):
                await anext(delivery._stream(ALICE, OLD, _message("third")))


class Silent:
    """A coordinator that never answers."""

    wake = remote = property(lambda self: self)

    def __call__(self, *_: object) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


async def test_a_connected_host_tells_of_an_activation_before_the_coordinator_does(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    sockets = home.make_run_dir() / DELIVERIES
    sockets.mkdir()

    async def deliver(*_: object) -> AsyncGenerator[list[Frame], None]:
        yield [END]

    async def sent(name: str) -> list[list[Frame]]:
        code = Code("greeter.py", "Greeter", "greeter")
        return [batch async for batch in MessageDelivery(router, SILENCE_S).deliver(ALICE, code, _message(name))]

    server = DeliveryServer(deliver)
    await server.start(sockets / OLD.host_id)
    router = Router(home, Settings())
    router._coordinator = Silent()
    async with asyncio.timeout(DEADLINE_S):
        router.routes.put(ALICE, OLD)
        assert await sent("first") == [[END]]
        server.tell(Notice(ALICE, OLD.epoch, None))
        await until(lambda: router.routes.get(ALICE) is None)
        router.routes.put(ALICE, OLD)
        assert await router.prepare(ALICE, Code("greeter.py", "Greeter", "greeter")) == OLD.epoch
        server.tell(Notice(ALICE, OLD.epoch, None))
        await until(lambda: router.routes.get(ALICE) is None)
        second = asyncio.ensure_future(sent("second"))
        await until(lambda: len(router._waking) == 1)
        server.tell(Notice(ALICE, 2, 5, "{}"))
        (start,), end = await second
        assert (start["type"], start["turn"], end) == ("agent_start", 5, [END])
        assert router.routes.get(ALICE) == Route(OLD.host_id, 2, 5, config="{}")
        server.tell(Notice(ALICE, OLD.epoch, None))
        assert await sent("third") == [[END]], "the end of an earlier activation changes nothing"
        router._waking.cancel()
        router.routes.drop(ALICE, Route(OLD.host_id, 2, 5, config="{}"))
        server.close()
        while any("_serve" in repr(task) for task in asyncio.all_tasks()):  # it ends with its connection
            await asyncio.sleep(0.005)
    home.remove_run_dir()
