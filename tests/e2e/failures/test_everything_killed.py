"""All processes of a home are killed at once, while several of its agents work: what is kept, and how each continues.

The tests share one home: the first ones look at it before a service runs again, the others with the next service.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conftest import fresh_home, kill_everything, mounts_of, runs, wait_for_end
from tests.e2e.files.test_places import PLACED, said
from tests.e2e.test_end_to_end import PATIENT
from tests.e2e.test_reminders import AGENT as REMINDED
from tests.e2e.test_reminders import check_every_time, fires
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.conftest import Podium

WITHOUT_SERVICE_S = 4
"""How long no service runs: several times of a reminder pass."""


@dataclass
class Killed:
    """A home that has lost its processes, and what its agents were doing."""

    podium: Podium
    gate: Path
    """The message of ``patient/waits`` ends its turn when this file is there."""
    writer: int
    """A process that the agent ``placed/left`` left behind, which has outlived the service."""
    writes: Path
    """It writes into its workspace when this file is there."""
    reminders: list[dict[str, Any]]
    """Those of ``reminded/late`` that were handled before."""
    until_s: float
    """Until then no service is to run."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """A home whose processes were killed in the middle of turns; no service runs."""
    directory = tmp_path_factory.mktemp("killed")
    gate, writes, started = (directory / name for name in ("gate", "writes", "started"))
    try:
        with fresh_home({"PODIUM_LEASE_TTL_S": "3"}) as podium:
            chats = {key: podium.chat(PATIENT, key) for key in ("waits", "hangs")}
            for key, text in (("waits", f"wait for {gate}"), ("hangs", "hang")):
                assert chats[key].say("before")[-1]["type"] == "turn_end"
                chats[key].send(text)
                chats[key].until("message_update")
            chats["left"] = podium.chat(PLACED, "left")
            said(chats["left"], f"leave exec {writes} {started}")
            chats["late"] = podium.chat(REMINDED, "late")
            chats["late"].say(json.dumps({"name": "tea", "every": 1}))
            wait_until(lambda: fires(podium, "late"), "it is not reminded")
            kill_everything(podium)  # but the writer, whose environment is empty
            until_s = time.monotonic() + WITHOUT_SERVICE_S
            for chat in chats.values():
                chat.close()
            yield Killed(podium, gate, int(started.read_text()), writes, fires(podium, "late"), until_s)
    finally:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(started.read_text()), signal.SIGKILL)


@pytest.fixture(scope="module")
def served_again(killed: Killed) -> Iterator[Podium]:
    """The command on that home, with a service again. One of the agents went back before it was started."""
    podium = killed.podium
    wait_until(lambda: podium("rewind", "patient/hangs", "0", check=False).returncode == 0)
    killed.writes.touch()
    assert runs(killed.writer)
    wait_until(lambda: time.monotonic() > killed.until_s)
    chat = podium.chat(REMINDED, "other")
    chat.say(json.dumps({"name": "none", "every": 3600}))
    yield podium
    assert chat.close() == 0
    podium.end_chats()  # of a test that failed
    wait_for_end(podium.home)
    wait_until(lambda: not mounts_of(podium.home))


def test_what_was_committed_is_kept(killed: Killed) -> None:
    for key in ("waits", "hangs"):
        assert killed.podium.json("state", f"patient/{key}")["state"]["said"] == ["before"]
    assert killed.podium("verify").returncode == 0


def test_a_message_that_was_accepted_is_handled_before_the_next_one(served_again: Podium, killed: Killed) -> None:
    killed.gate.touch()
    ran = served_again("run", PATIENT, "--key", "waits", "--message", "after")
    assert ran.stdout.split()[-1] == "3"
    state = served_again.json("state", "patient/waits")["state"]
    assert state["said"] == ["before", f"wait for {killed.gate}", "after"]
    assert served_again("cat", "patient/waits", "out.txt").stdout == "3 after\n"
    assert served_again("verify", "patient/waits").returncode == 0


def test_going_back_does_not_hide_that_a_try_was_lost(served_again: Podium) -> None:
    chat = served_again.chat(PATIENT, "hangs")
    chat.send("two")
    chat.until("accepted")

    def failed() -> list[dict[str, Any]]:
        events = served_again.lines("log", "patient/hangs")
        return [event["payload"] for event in events if event["type"] == "turn.failed"]

    wait_until(failed)
    (lost,) = failed()
    assert (lost["error"]["type"], lost["attempt"]) == ("HostLost", 1)
    hung, _ = served_again.json("inbox", "patient/hangs")["messages"]
    served_again("drop", "patient/hangs", hung["message_id"])
    assert chat.until("turn_end", "error")[-1]["turn"] == 3
    assert served_again.json("state", "patient/hangs")["state"]["said"] == ["two"]
    assert chat.close() == 0


def test_what_outlived_the_service_writes_nothing_into_the_next_activation(
    served_again: Podium, killed: Killed
) -> None:
    chat = served_again.chat(PLACED, "left")
    assert said(chat, "files")[1:] == ["said.txt"]
    assert not runs(killed.writer)
    assert chat.close() == 0
    assert served_again("verify", "placed/left").returncode == 0


def test_times_of_reminders_that_passed_come_once(served_again: Podium, killed: Killed) -> None:
    before = len(killed.reminders)
    wait_until(lambda: len(fires(served_again, "late")) > before + 1, "it is not reminded later")
    found = fires(served_again, "late")
    check_every_time(found, 1000)
    assert max(fire["missed"] for fire in found[before:]) >= 2
