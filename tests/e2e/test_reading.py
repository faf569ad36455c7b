"""Read-only handlers on a real service: beside a turn that waits, in both isolations, and when a host dies of one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.service.client import AgentRef, ServiceClient, ServiceRefused
from tests.e2e.conftest import AGENTS, TIMEOUT_S
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

FILE = str(AGENTS / "reading.py")


@pytest.mark.parametrize(("name", "agent_type"), [("Read", "read"), ("SharedRead", "sharedread")])
async def test_a_read_beside_a_turn_that_waits_and_by_a_host_that_dies(
    client: ServiceClient, tmp_path: Path, name: str, agent_type: str
) -> None:
    agent, begun, go = f"{agent_type}/a", tmp_path / "begun", tmp_path / "go"
    plan = json.dumps({"begun": str(begun), "until": str(go)})

    async def sent() -> list[dict[str, Any]]:
        return [frame async for frame in client.send(AgentRef(FILE, name, agent_type), "a", {"text": plan})]

    async with asyncio.timeout(TIMEOUT_S):
        sending = asyncio.create_task(sent())
        await until(begun.exists)
        assert await client.read(agent, {"handler": "count"}) == (0, 0)
        go.touch()
        assert (await sending)[-1]["type"] == "turn_end"
        assert await client.read(agent, {"handler": "count"}) == (1, 1)
        with pytest.raises(ServiceRefused, match="a read-only handler reads the state") as refused:
            await client.read(agent, {"handler": "set"})
        assert refused.value.kind == "ReadOnly"
        dies = {"handler": "dies", "input": {"notes": str(tmp_path / "died")}}
        with pytest.raises(ServiceRefused) as died:
            await client.read(agent, dies)
        assert died.value.kind == "HostDied"
        assert (tmp_path / "died").exists()
        assert await client.read(agent, dies) == (1, 1), "the next host answers"
        if name == "Read":
            reader = AgentRef(FILE, "Reader", "reader")
            assert [frame async for frame in client.send(reader, "b", {"text": "a"})][-1]["data"] == 1
        await client.passivate(agent)
        assert await client.read(agent, {"handler": "count"}) == (1, 1), "it is woken"
        with pytest.raises(ServiceRefused) as unknown:
            await client.read(f"{agent_type}/nobody", {"handler": "count"})
        assert unknown.value.kind == "UnknownAgent"
