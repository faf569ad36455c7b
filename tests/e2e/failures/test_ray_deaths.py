"""Deaths of Ray's own processes, without which the service can do nothing."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import HELLO, TIMEOUT_S, processes_of, runs, text_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium


@pytest.mark.parametrize("program", ["/raylet/raylet", "/gcs/gcs_server"])
def test_a_service_whose_ray_dies_ends_and_says_so_and_the_next_continues(podium: Podium, program: str) -> None:
    chat = podium.chat(HELLO, "ray-dies")
    assert "message 1," in text_of(chat.say("hi"))
    (service,) = processes_of(podium, "coordinator.service.daemon")
    (template,) = processes_of(podium, "podium worker template")
    hosts = processes_of(podium, "ray::HostActor")
    (victim,) = processes_of(podium, program)
    os.kill(victim, signal.SIGKILL)
    gone = [service, template, *hosts]
    wait_until(lambda: not any(runs(pid) for pid in gone), f"of {gone} some live on", TIMEOUT_S)
    assert "has died: this service ends" in (podium.home / "logs" / "service.log").read_text()
    assert "message 2," in podium("run", HELLO, "--key", "ray-dies", "-m", "hi").stdout
    assert podium("verify").returncode == 0
