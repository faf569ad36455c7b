"""Edited code: hosts with the code of before are retired, also those that are just being given their agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.fleet.code_stamp import CodeStamps
from coordinator.fleet.model import Code, Host, HostStatus, Loaded, Route
from coordinator.fleet.wakes import Wakings
from coordinator.ray import coordinator_actor as module
from podium.address import Address

if TYPE_CHECKING:
    from pathlib import Path

ALICE = Address("hello", "alice")
DEADLINE_S = 60


class Hosts:
    """One host, which was given to the agent."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def of(self, address: Address) -> Host | None:
        return self._host if self._host.address == address else None


class Config:
    """What retiring looks at."""

    wake_timeout_s = 2.0 * DEADLINE_S


def coordinator_of(host: Host, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A coordinator without Ray, with one host."""

    async def begun(_: object) -> None:
        pass

    cls = module.CoordinatorActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]
    monkeypatch.setattr(cls, "_begin", begun)
    monkeypatch.setattr(module, "find_actor", lambda _: None)
    made = cls.__new__(cls)
    made._config, made._hosts, made._routes, made._stamps = Config, Hosts(host), {}, CodeStamps()
    made._wakings = Wakings(lambda: None)
    return made


@pytest.mark.parametrize("edited", [True, False])
async def test_a_host_that_is_just_being_given_an_agent_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: bool
) -> None:
    file = tmp_path / "agent.py"
    file.write_text("first = 1\n")
    code = Code(str(file), "Agent", "hello")
    loaded = Loaded(code, (str(file),), CodeStamps().of([str(file)]))
    host = Host("host_1", code, loaded.stamp, HostStatus.ASSIGNED, ALICE, loaded)
    coordinator = coordinator_of(host, monkeypatch)
    waking = coordinator._wakings.want(ALICE, code)
    if edited:
        file.write_text("second = 2\n")
    retiring = asyncio.create_task(coordinator.retire_outdated(ALICE, code))
    if not edited:
        assert await asyncio.wait_for(retiring, DEADLINE_S) is None, "its waking is not waited for"
        return
    for _ in range(3):
        await asyncio.to_thread(lambda: None)
    route = Route("host_1", 1, 0, loaded)
    coordinator._routes[ALICE] = route
    coordinator._wakings.done(ALICE, waking, route)
    assert await asyncio.wait_for(retiring, DEADLINE_S) is route


async def test_an_agent_that_waits_for_a_host_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Code(str(tmp_path / "agent.py"), "Agent", "hello")
    other = Host("host_1", code, "", HostStatus.ASSIGNED, Address("hello", "bob"), None)
    coordinator = coordinator_of(other, monkeypatch)
    coordinator._wakings.want(ALICE, code)
    assert await asyncio.wait_for(coordinator.retire_outdated(ALICE, code), DEADLINE_S) is None
