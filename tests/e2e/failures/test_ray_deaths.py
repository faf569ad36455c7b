"""Deaths of Ray's own processes, without which the service can do nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from coordinator.service.protocol import EXIT_RAY_DIED
from tests.e2e.conftest import HELLO, TIMEOUT_S, processes_of, runs, text_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Podium

KEYS = "abc"


@pytest.mark.parametrize("program", ["/raylet/raylet", "/gcs/gcs_server"])
def test_a_service_whose_ray_dies_ends_and_says_so_and_the_next_continues(podium: Podium, program: str) -> None:
    with serving(podium) as service:
        chats = {key: podium.chat(HELLO, key) for key in KEYS}
        for chat in chats.values():
            assert "message 1," in text_of(chat.say("first"))
        (template,) = processes_of(podium, "podium worker template")
        hosts = processes_of(podium, "ray::HostActor")
        (victim,) = processes_of(podium, program)
        for chat in chats.values():
            chat.send("second")
            chat.until("accepted")
        os.kill(victim, signal.SIGKILL)
        assert service.wait(TIMEOUT_S) == EXIT_RAY_DIED
    assert "has died: this service ends" in (podium.home / "logs" / "service.log").read_text()
    gone = [template, *hosts]
    wait_until(lambda: not any(runs(pid) for pid in gone), f"of {gone} some live on", TIMEOUT_S)
    chats = {key: podium.chat(HELLO, key) for key in KEYS}  # one of them starts the service
    for key, chat in chats.items():
        assert "message 3," in text_of(chat.say("third"))
        assert podium.json("state", f"hello/{key}")["state"]["history"] == ["first", "second", "third"]
    assert podium.json("verify")["ok"]
    assert [chat.close() for chat in chats.values()] == [0] * len(KEYS)


@contextlib.contextmanager
def serving(podium: Podium) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a home by a process of the test's own."""
    command = [sys.executable, "-m", "coordinator.service.daemon", "--home", str(podium.home)]
    service = subprocess.Popen(command, env=podium.environment, start_new_session=True)
    try:
        yield service
    finally:
        service.kill()
        service.wait(TIMEOUT_S)
