"""A second client meets an agent that is busy with a long turn: each policy, and hosts that die meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.service.client import AgentRef, ServiceClient, ServiceRefused
from podium.turn.busy import BusyPolicy
from tests.e2e.conftest import AGENTS, TIMEOUT_S, text_of
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.e2e.conftest import Podium

# The service outlives the client that started it, and is meant to.
pytestmark = pytest.mark.filterwarnings("ignore:.*Popen.__del__:pytest.PytestUnraisableExceptionWarning")

FILE = str(AGENTS / "steered.py")
STEERED = AgentRef(FILE, "Steered", "steered")
Frames = list[dict[str, Any]]


class Exchange:
    """One message under way."""

    def __init__(
        self, client: ServiceClient, key: str, text: str, when_busy: BusyPolicy, idempotency_key: str | None
    ) -> None:
        self.frames: Frames = []
        self._came = asyncio.Condition()
        self._stream = client.send(STEERED, key, {"text": text}, idempotency_key, when_busy)

    async def run(self) -> Frames:
        async for frame in self._stream:
            async with self._came:
                self.frames.append(frame)
                self._came.notify_all()
        return self.frames

    async def until(self, frame_type: str, number: int = 1) -> dict[str, Any]:
        """Wait for a frame, the first of its type unless another one is asked for."""
        async with self._came:
            await self._came.wait_for(lambda: self._types().count(frame_type) >= number)
        return [frame for frame in self.frames if frame["type"] == frame_type][number - 1]

    def _types(self) -> list[str]:
        return [frame["type"] for frame in self.frames]


class Talk:
    """Messages to one agent, each a task."""

    def __init__(self, client: ServiceClient, key: str, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._key = key
        self._tasks = tasks

    def send(
        self, text: str, when_busy: BusyPolicy = BusyPolicy.ENQUEUE, idempotency_key: str | None = None
    ) -> tuple[Exchange, asyncio.Task[Frames]]:
        exchange = Exchange(self._client, self._key, text, when_busy, idempotency_key)
        return exchange, self._tasks.create_task(exchange.run())

    async def say(self, text: str, when_busy: BusyPolicy = BusyPolicy.ENQUEUE, key: str | None = None) -> Frames:
        return await Exchange(self._client, self._key, text, when_busy, key).run()


@asynccontextmanager
async def talk(client: ServiceClient, key: str) -> AsyncIterator[Talk]:
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        yield Talk(client, key, tasks)


def said(podium: Podium, key: str) -> list[str]:
    texts: list[str] = podium.json("state", f"steered/{key}")["state"]["said"]
    return texts


def events(podium: Podium, key: str, *types: str) -> list[dict[str, Any]]:
    return [event for event in podium.lines("log", f"steered/{key}") if event["type"] in types]


async def test_interrupting_rolling_back_rejecting_and_steering(served: Podium, client: ServiceClient) -> None:
    async with talk(client, "a") as a:
        await a.say("hello")

        first, first_done = a.send("go on 1")
        await first.until("message_update")
        interrupting = await a.say("now this", BusyPolicy.INTERRUPT)
        stopped = (await first_done)[-1]
        assert (stopped["type"], stopped["error"]["type"], stopped["parked"]) == ("error", "Cancelled", False)
        assert "interrupt" in stopped["error"]["message"]
        assert interrupting[-1]["type"] == "turn_end"
        assert said(served, "a") == ["hello", "now this"]
        texts = [event["payload"]["message"]["text"] for event in events(served, "a", "user_message")]
        assert texts == ["hello", "go on 1", "now this"]

        second, second_done = a.send("go on 2")
        await second.until("message_update")
        assert (await a.say("or this", BusyPolicy.ROLLBACK))[-1]["type"] == "turn_end"
        assert "rollback" in (await second_done)[-1]["error"]["message"]
        texts = [event["payload"]["message"]["text"] for event in events(served, "a", "user_message")]
        assert texts == ["hello", "go on 1", "now this", "or this"]
        assert served("cat", "steered/a", "said.txt").stdout == "or this\n"

        third, third_done = a.send("go on 3")
        await third.until("message_update")
        with pytest.raises(ServiceRefused) as refused:
            await a.say("if you please", BusyPolicy.REJECT, "key")
        assert refused.value.kind == "AgentBusy"
        steering = await a.say("me", BusyPolicy.STEER)
        turn = await third_done
        assert text_of(turn).endswith("steered by me")
        assert turn[-1]["type"] == steering[-1]["type"] == "turn_end"
        assert turn[-1]["turn"] == steering[-1]["turn"]
        assert said(served, "a")[-2:] == ["go on 3", "steered by me"]
        # Now that it is idle, every policy means the same; a repeat gets the first answer, busy or not.
        taken = await a.say("if you please", BusyPolicy.REJECT, "key")
        fourth, fourth_done = a.send("go on 4")
        await fourth.until("message_update")
        again = await a.say("if you please", BusyPolicy.REJECT, "key")
        assert (again[0]["message_id"], again[-1]) == (taken[0]["message_id"], taken[-1])
        for policy in (BusyPolicy.STEER, BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK):
            await a.say(str(policy), policy)
        await fourth_done
    assert said(served, "a")[-5:] == ["if you please", "go on 4", "steered by steer", "interrupt", "rollback"]
    assert served("verify").returncode == 0


async def test_what_waits_is_told_its_place(served: Podium, client: ServiceClient) -> None:
    async with talk(client, "p") as p:
        first, _ = p.send("go on")
        await first.until("message_update")
        second, _ = p.send("two")
        assert (await second.until("accepted"))["before"] == 1
        third, _ = p.send("three")
        assert (await third.until("accepted"))["before"] == 2
        fourth, _ = p.send("go on 4")
        assert (await fourth.until("accepted"))["before"] == 3
        fifth, _ = p.send("five")
        await fifth.until("accepted")
        await client.cancel("steered/p", third.frames[0]["message_id"])  # beside the turn that runs
        assert (await third.until("error"))["error"]["type"] == "Cancelled"
        assert (await fourth.until("queued"))["before"] == 2
        await p.say("me", BusyPolicy.STEER)
        await fourth.until("message_update")
        assert (await fifth.until("queued", 1))["before"] <= 3
        await p.say("you", BusyPolicy.STEER)
    assert said(served, "p") == ["go on", "steered by me", "two", "go on 4", "steered by you", "five"]


async def test_an_interrupting_message_ends_code_that_blocks_and_a_repeat_of_an_answered_one_ends_nothing(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with talk(client, "r") as r, talk(client, "b") as b:
        first = await r.say("hello", key="once")
        long, long_done = r.send("go on")
        await long.until("message_update")
        assert (await r.say("hello", BusyPolicy.INTERRUPT, "once"))[-1] == first[-1]

        blocked, blocked_done = b.send(f"block after {gate}")
        await blocked.until("message_start")
        gate.touch()
        await until(lambda: not gate.exists())
        assert (await b.say("now this", BusyPolicy.INTERRUPT))[-1]["type"] == "turn_end"
        assert (await blocked_done)[-1]["error"]["type"] == "Cancelled"

        # By now the process of the other turn, too, would have been ended after its grace period.
        await r.say("me", BusyPolicy.STEER)
        frames = await long_done
        assert [frame["type"] for frame in frames if frame["type"] in {"turn_retry", "turn_end"}] == ["turn_end"]
    assert said(served, "r") == ["hello", "go on", "steered by me"]
    assert said(served, "b") == ["now this"]
    # It was not tried again before it was cancelled.
    (cancelled,) = events(served, "b", "turn.cancelled")
    assert cancelled["payload"]["message_id"] == blocked.frames[0]["message_id"]


@pytest.mark.parametrize("policy", [BusyPolicy.INTERRUPT, BusyPolicy.STEER])
async def test_a_host_that_dies_at_that_moment_loses_no_message(
    served: Podium, client: ServiceClient, policy: BusyPolicy
) -> None:
    key = f"dies-{policy}"
    async with talk(client, key) as k:
        long, long_done = k.send("go on")
        pid = int((await long.until("message_update"))["delta"])
        other, other_done = k.send("this", policy)
        await other.until("accepted")
        os.kill(pid, signal.SIGKILL)
        frames, last = await other_done, (await long_done)[-1]
        assert frames[-1]["type"] == "turn_end"
        if policy is BusyPolicy.STEER:
            assert last["type"] == "turn_end"
            assert said(served, key) == ["go on", "steered by this"]
        else:
            assert last["error"]["type"] == "Cancelled"
            assert said(served, key) == ["this"]
    agent = served.row(f"steered/{key}")
    assert (agent["pending"], agent["parked"]) == (0, 0)
    assert served("verify").returncode == 0
