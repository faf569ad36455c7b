"""Agents that share a process: their turns, files, codes, and what becomes of them when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.home import Home
from coordinator.service.client import AgentRef, ServiceClient
from tests.e2e.conftest import AGENTS, TIMEOUT_S, Podium, SharedService, client_of, runs
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FILE = AGENTS / "gathering.py"
GATHERING = AgentRef(str(FILE), "Gathering", "gathering")
BLOCK_LIMIT_S = 4
SILENCE_S = 30


@pytest.fixture(scope="module")
def service() -> Iterator[SharedService]:
    """A service whose shared hosts may be blocked for a short time only."""
    shared = SharedService(
        PODIUM_BLOCK_LIMIT_S=str(BLOCK_LIMIT_S),
        PODIUM_SILENCE_S=str(SILENCE_S),
        PODIUM_HANG_S="1",
        PODIUM_SHARED_HOST_BYTES=str(300 << 20),
    )
    yield shared
    shared.end()


@pytest.fixture
def served(service: SharedService) -> Iterator[Podium]:
    with service.lent() as podium:
        yield podium


@pytest.fixture
async def client(served: Podium) -> AsyncIterator[ServiceClient]:
    async with client_of(served) as connected:
        yield connected


async def send(client: ServiceClient, key: str, text: str, agent: AgentRef = GATHERING) -> list[dict[str, Any]]:
    async with asyncio.timeout(TIMEOUT_S):
        return [frame async for frame in client.send(agent, key, {"text": text})]


async def said(client: ServiceClient, key: str, text: str, agent: AgentRef = GATHERING) -> tuple[int, Any]:
    """Send a message, and return the agent's process and answer."""
    frames = await send(client, key, text, agent)
    assert frames[-1]["type"] == "turn_end", frames
    return frames[-1]["data"]["pid"], frames[-1]["data"]["answer"]


async def waiting(client: ServiceClient, key: str, text: str) -> asyncio.Task[list[dict[str, Any]]]:
    """Send a message whose turn waits, and return when it does."""
    begun = asyncio.Event()

    async def follow() -> list[dict[str, Any]]:
        frames = []
        async for frame in client.send(GATHERING, key, {"text": text}):
            frames.append(frame)
            if frame["type"] == "event":
                begun.set()
        return frames

    task = asyncio.create_task(follow())
    async with asyncio.timeout(TIMEOUT_S):
        await begun.wait()
    return task


def failures(podium: Podium, agent: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in podium.lines("log", agent) if event["type"] == "turn.failed"]


async def test_two_hundred_agents_share_a_process(served: Podium, client: ServiceClient) -> None:
    answers = await asyncio.gather(*(said(client, f"many-{number}", "hi") for number in range(200)))
    assert {answer for _, answer in answers} == {1}
    assert len({pid for pid, _ in answers}) == 1
    again = await asyncio.gather(*(said(client, f"many-{number}", "hi") for number in range(200)))
    assert {answer for _, answer in again} == {2}
    assert {pid for pid, _ in again} == {pid for pid, _ in answers}
    rows = [row for row in served.json("ps", "--all")["agents"] if row["agent"].startswith("gathering/many-")]
    assert len(rows) == 200
    assert {row["isolation"] for row in rows} == {"shared"}
    assert all(0 < row["memory"] < 10 << 20 for row in rows)
    verified = await asyncio.to_thread(served, "verify")
    assert verified.returncode == 0


async def test_each_agent_has_its_own_files(served: Podium, client: ServiceClient) -> None:
    answers = await asyncio.gather(*(said(client, f"files-{number}", "write") for number in range(3)))
    assert [answer for _, answer in answers] == [f"gathering/files-{number} 1\n" for number in range(3)]
    await asyncio.to_thread(served, "passivate", "gathering/files-0")
    assert (await said(client, "files-0", "write"))[1] == "gathering/files-0 1\ngathering/files-0 2\n"
    assert served("cat", "gathering/files-1", "log").stdout == "gathering/files-1 1\n"
    frames = await send(client, "variable", "variable")
    assert frames[-1]["type"] == "error"
    assert "use ctx.workspace" in frames[-1]["error"]["message"]


async def test_no_message_is_lost_or_committed_twice_when_the_process_is_killed(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    pid, _ = await said(client, "idle", "hi")
    turns = [await waiting(client, f"killed-{number}", f"wait for {gate}") for number in range(3)]
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not runs(pid))
    gate.touch()
    for turn in turns:
        async with asyncio.timeout(TIMEOUT_S):
            frames = await turn
        assert frames[-1]["type"] == "turn_end", frames
        assert frames[-1]["data"]["answer"] == 1
        assert [frame for frame in frames if frame["type"] == "turn_retry"] == []
    assert (await said(client, "idle", "hi"))[1] == 2
    for agent in ("gathering/idle", "gathering/killed-0"):
        assert failures(served, agent) == [], "nobody knows which agent has ended the process"


async def test_an_agent_that_blocks_the_others_gets_a_process_of_its_own(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    gate, enough = tmp_path / "gate", tmp_path / "enough"
    shared, _ = await said(client, "innocent", "hi")
    other = await waiting(client, "interrupted", f"wait for {gate}")
    blocked = asyncio.create_task(said(client, "blocker", f"block until {enough}"))
    await until(lambda: not runs(shared), "the process that it blocks goes on")
    gate.touch()
    async with asyncio.timeout(TIMEOUT_S):
        frames = await other
    assert frames[-1]["type"] == "turn_end", frames
    assert [frame for frame in frames if frame["type"] == "turn_retry"] == []
    assert failures(served, "gathering/interrupted") == [], "another agent's fault counts no attempt"
    quarantine = served.home / "quarantine.json"
    assert list(json.loads(quarantine.read_bytes())["agents"]) == ["gathering/blocker"]
    await until(lambda: len(failures(served, "gathering/blocker")) == 1)
    again, _ = await said(client, "innocent", "hi")
    assert again != shared
    enough.touch()
    alone, _ = await blocked
    assert alone not in {shared, again}
    assert (await said(client, "blocker", "hi"))[0] == alone
    assert (await said(client, "innocent", "hi"))[0] == again, "the blocker did not end the next shared host"


async def test_a_process_that_is_stopped_is_replaced_and_why_says_so(served: Podium, client: ServiceClient) -> None:
    pid, _ = await said(client, "stopped", "hi")
    os.kill(pid, signal.SIGSTOP)
    again = asyncio.create_task(said(client, "stopped", "hi"))
    says = f"its host, which does not answer: it is replaced after {SILENCE_S / 6 + 1:g} s of silence, or"
    await until(lambda: says in served.json("why", "gathering/stopped")["waits_for"] or not runs(pid))
    other, answer = await again
    assert (other != pid, answer) == (True, 2)
    assert failures(served, "gathering/stopped") == []


async def test_a_process_that_takes_too_much_memory_lets_its_turns_end_and_is_replaced(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    pid, _ = await said(client, "leaking", "hi")
    running = await waiting(client, "running", f"wait for {gate}")
    grown, other = 0, pid
    while other == pid:
        assert grown < 10, "it takes agents above its limit"
        other, answer = await said(client, "leaking", "grow")
        grown += 1
    assert answer == grown + 1
    assert runs(pid), "a turn goes on"
    assert (await said(client, "newcomer", "hi"))[0] == other
    gate.touch()
    async with asyncio.timeout(TIMEOUT_S):
        frames = await running
    assert (frames[-1]["type"], frames[-1]["data"]["pid"]) == ("turn_end", pid)
    await until(lambda: not runs(pid))
    for agent in ("gathering/leaking", "gathering/running"):
        assert failures(served, agent) == []
    log = (Home(served.home).logs / "shared-gathering.log").read_text()
    assert re.search(r"it grew most with the turns of .*gathering/leaking \(", log)


async def test_agents_that_work_and_await_often_take_turns_with_each_other_and_with_many_others(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    enough, others = tmp_path / "enough", [f"fair-{number}" for number in range(30)]
    busy = [await waiting(client, f"busy-{number}", f"busy {enough}") for number in range(3)]
    for count in (1, 2):
        answers = await asyncio.gather(*(said(client, key, "hi") for key in others))
        assert {answer for _, answer in answers} == {count}
    assert not any(turn.done() for turn in busy)
    enough.touch()
    for turn in busy:
        async with asyncio.timeout(TIMEOUT_S):
            frames = await turn
        assert frames[-1]["type"] == "turn_end", frames
        assert frames[-1]["data"]["pid"] == answers[0][0]
        rounds, most_of_another = frames[-1]["data"]["answer"]
        assert rounds > len(others)
        assert most_of_another <= 2, "another agent went on while this one waited"
    quarantine = served.home / "quarantine.json"
    assert "busy" not in (quarantine.read_text() if quarantine.exists() else "")


async def test_edited_code_runs_in_another_process_one_agent_after_the_other(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    file = tmp_path / "edited.py"
    file.write_text(FILE.read_text())
    agent = AgentRef(str(file), "Gathering", "edited")
    file.write_text(file.read_text().replace('isolation = "shared"', 'agent_type = "edited"\n    isolation = "shared"'))
    old, _ = await said(client, "a", "hi", agent)
    assert (await said(client, "b", "hi", agent))[0] == old
    file.write_text(file.read_text().replace("count += 1", "count += 10"))
    new, answer = await said(client, "a", "hi", agent)
    assert (new != old, answer) == (True, 11)
    assert await said(client, "b", "hi", agent) == (new, 11)
    await until(lambda: not Path(f"/proc/{old}").exists(), "the process of the code before has no agents left")
