"""Workspace paths of agents that come to a host and leave it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import SystemClock
from coordinator.host.host_config import HostConfig
from coordinator.host.mounting import Mounting
from coordinator.host.node import path_locks
from podium.address import Address
from podium.turn.ports import WorkspaceRequest

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.host.node.process_marks import ProcessMark

ALICE = Address("gathering", "alice")


def mounting(directory: Path, host_id: str, **options: Any) -> Mounting:
    (directory / "places").mkdir(exist_ok=True)
    config = HostConfig(
        host_id=host_id,
        home="",
        journal="",
        blobs_url="",
        layers=str(directory / "layers"),
        home_id="home",
        home_identity="home",
        workspaces=str(directory),
        path_locks=str(directory / "places"),
        link="",
        zygote_socket="",
        presentation="dir",
        logs="",
        inbox_limit=1000,
        lease_ttl_s=1.0,
        block_limit_s=1.0,
        shared_host_bytes=1 << 30,
        last_words="",
        deliveries="",
        report_interval_s=0,
    )
    return Mounting(replace(config, **options), SystemClock())


@pytest.mark.parametrize("evicted", [False, True])
def test_the_host_that_an_agent_has_left_is_not_ended_by_its_next_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, evicted: bool
) -> None:
    ended: list[ProcessMark] = []

    def end_marked(mark: ProcessMark) -> int:
        ended.append(mark)
        return 1

    monkeypatch.setattr(path_locks, "end_marked", end_marked)
    first, second = mounting(tmp_path, "host_1"), mounting(tmp_path, "host_2")
    path = first.claim(WorkspaceRequest(ALICE, None, 1, 1))
    first.record_use(path)
    assert first.has(ALICE)
    first.leave(ALICE, evicted=evicted)
    assert not first.has(ALICE)
    assert second.may_have_changes(ALICE, unclean=False) is evicted
    assert second.claim(WorkspaceRequest(ALICE, None, 2, 1)) == path
    assert ended == []
    second.leave(ALICE, evicted=False)
