"""Who pays for the death of a shared process: the message that ends it, and none of its neighbours'."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.service.client import AgentRef, ServiceClient
from tests.e2e.conftest import AGENTS, TIMEOUT_S, Podium, client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NEIGHBOURS = AgentRef(str(AGENTS / "neighbours.py"), "Neighbours", "neighbours")
ATTEMPTS = 2
"""`Neighbours.max_attempts`."""


@pytest.fixture
async def client(served: Podium) -> AsyncIterator[ServiceClient]:
    async with client_of(served) as connected:
        yield connected


async def send(client: ServiceClient, key: str, **message: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(TIMEOUT_S):
        return [frame async for frame in client.send(NEIGHBOURS, key, message)]


async def waiting(client: ServiceClient, key: str, gate: Path) -> asyncio.Task[list[dict[str, Any]]]:
    """Send a message whose turn waits, and return when it does."""
    begun = asyncio.Event()

    async def follow() -> list[dict[str, Any]]:
        frames = []
        async for frame in client.send(NEIGHBOURS, key, {"do": "wait", "for": str(gate)}):
            frames.append(frame)
            if frame["type"] == "event":
                begun.set()
        return frames

    task = asyncio.create_task(follow())
    async with asyncio.timeout(TIMEOUT_S):
        await begun.wait()
    return task


def failures(podium: Podium, agent: str) -> list[tuple[int, bool]]:
    """Return the failed attempts of an agent's messages: their numbers, and whether the message was parked."""
    payloads = [event["payload"] for event in podium.lines("log", agent) if event["type"] == "turn.failed"]
    return [(payload["attempt"], payload["parked"]) for payload in payloads if payload["message_id"] is not None]


@pytest.mark.parametrize(
    ("deed", "is_awake"), [("exit", False), ("crash", False), ("crash", True), ("crash later", False)]
)
async def test_the_message_that_ends_a_shared_process_is_parked_and_costs_its_neighbours_nothing(
    served: Podium, client: ServiceClient, tmp_path: Path, deed: str, is_awake: bool
) -> None:
    name, gate = f"{deed.replace(' ', '-')}-{is_awake}", tmp_path / "gate"
    culprit = f"culprit-{name}"
    if is_awake:
        await send(client, culprit, do="nothing")
    neighbours = [await waiting(client, f"{name}-{number}", gate) for number in range(4)]
    try:
        ended = await send(client, culprit, do=deed)
    finally:
        gate.touch()
    assert ended[-1]["type"] == "error", ended
    assert (ended[-1]["parked"], ended[-1]["attempt"]) == (True, ATTEMPTS)
    assert ended[-1]["error"]["type"] == "HostLost"
    for turn in neighbours:
        async with asyncio.timeout(TIMEOUT_S):
            frames = await turn
        assert frames[-1]["type"] == "turn_end", frames
        assert [frame for frame in frames if frame["type"] == "turn_retry"] == []
    for number in range(4):
        assert failures(served, f"neighbours/{name}-{number}") == []
    assert failures(served, f"neighbours/{culprit}") == [(1, False), (2, True)]
    why = served.json("why", f"neighbours/{culprit}")
    assert (why["parked"], why["pending"]) == (1, 0)
    assert "it ended a process of its own" in why["quarantine"]


async def test_an_agent_that_cancels_all_tasks_of_its_process_disturbs_no_neighbour_for_long(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    neighbours = [await waiting(client, f"near-{number}", gate) for number in range(2)]
    waking = [asyncio.create_task(send(client, f"new-{number}", do="nothing")) for number in range(3)]
    try:
        ended = await send(client, "canceller", do="cancel all")
    finally:
        gate.touch()
    for turn in (*neighbours, *waking):
        async with asyncio.timeout(TIMEOUT_S):
            frames = await turn
        assert frames[-1]["type"] == "turn_end", frames
        assert "TaskID" not in str(frames)
    assert "TaskID" not in str(ended)
    for number in range(2):
        assert failures(served, f"neighbours/near-{number}") == []
