"""Deaths of Ray's own processes, without which the service can do nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from coordinator.service.protocol import EXIT_RAY_DIED
from tests.e2e.conftest import HELLO, TIMEOUT_S, processes_of, runs, text_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.e2e.conftest import Chat, Podium

KEYS = "abc"


def test_a_service_whose_ray_dies_ends_and_says_so_and_the_next_continues(podium: Podium) -> None:
    said: list[str] = []
    for number, program in enumerate(("/raylet/raylet", "/gcs/gcs_server")):
        with serving(podium) as service:
            chats = {key: podium.chat(HELLO, key) for key in KEYS}
            all_say(chats, f"before {number}", said)
            templates = processes_of(podium, "podium worker template")  # and workers of it that have no title yet
            assert templates
            hosts = processes_of(podium, "ray::HostActor")
            (victim,) = processes_of(podium, program)
            for chat in chats.values():
                chat.send(f"at {number}")
                chat.until("accepted")
            said.append(f"at {number}")
            os.kill(victim, signal.SIGKILL)
            assert service.wait(TIMEOUT_S) == EXIT_RAY_DIED
        log = (podium.home / "logs" / "service.log").read_text()
        assert log.count("ray_died") == number + 1
        gone = [*templates, *hosts]
        wait_until(lambda gone=gone: not any(runs(pid) for pid in gone), f"of {gone} some live on", TIMEOUT_S)  # type: ignore[misc]
    chats = {key: podium.chat(HELLO, key) for key in KEYS}  # one of them starts the service
    all_say(chats, "at last", said)
    for key in KEYS:
        assert podium.json("state", f"hello/{key}")["state"]["history"] == said
    assert podium.json("verify")["ok"]
    assert [chat.close() for chat in chats.values()] == [0] * len(KEYS)


def all_say(chats: Mapping[str, Chat], text: str, said: list[str]) -> None:
    """Have all chats say a text; each has said the others before."""
    said.append(text)
    for chat in chats.values():
        assert f"message {len(said)}," in text_of(chat.say(text))


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
