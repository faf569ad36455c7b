"""Reminders in a real service: they wake agents from zero, survive deaths, and wait for a service that is gone."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import closing, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from coordinator.home import Home
from tests.e2e.conftest import AGENTS, processes_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

AGENT = f"{AGENTS / 'reminded.py'}:Reminded"


def order(podium: Podium, key: str, **arguments: Any) -> None:
    """Send the agent a message by the command."""
    podium("run", AGENT, "--key", key, "-m", json.dumps(arguments))


def fires(podium: Podium, key: str) -> list[dict[str, Any]]:
    """Return the reminders that were handled, in order; read from the journal, which is asked again and again."""
    with closing(Home(podium.home).journal(read_only=True)) as store:
        session = store.session(f"reminded/{key}")
        events = store.events(session.main_branch_id, types=["user_message"])
        handled = [json.loads(event.payload or b"null") for event in events]
    return [payload["reminder"] for payload in handled if "reminder" in payload]


def wait_for_fires(podium: Podium, key: str, more: int, message: str) -> None:
    """Wait until as many more reminders were handled."""
    wanted = len(fires(podium, key)) + more
    wait_until(lambda: len(fires(podium, key)) >= wanted, message)


def check_every_time(found: list[dict[str, Any]], every_ms: int) -> None:
    """Check that each due time came once, or is counted as missed by the one before."""
    for before, after in pairwise(found):
        assert after["due_ms"] == before["due_ms"] + (before["missed"] + 1) * every_ms, (before, after)


def test_reminders_wake_an_agent_that_sleeps(served: Podium) -> None:
    order(served, "zero", name="tea", every=3)
    wait_until(lambda: len(fires(served, "zero")) >= 2, "it is not reminded")
    order(served, "zero", cancel="tea")
    found = fires(served, "zero")
    check_every_time(found, 3000)
    ends = [event for event in served.lines("log", "reminded/zero") if event["type"] == "turn.committed"]
    epochs = {end["payload"]["epoch"] for end in ends if end["payload"]["cause"] == "message"}
    assert len(epochs) >= 2, "it was awake all the time"
    assert served.json("state", "reminded/zero")["state"]["heard"] == ["tea"] * len(found)


def test_each_time_comes_once_while_processes_are_killed(served: Podium) -> None:
    order(served, "killed", name="tea", every=1)
    for number, part in enumerate(("CoordinatorActor", "HostActor", "CoordinatorActor", "HostActor")):
        wait_for_fires(served, "killed", 1, f"no fire before kill {number}")
        for pid in processes_of(served, part):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    wait_for_fires(served, "killed", 2, "it is not reminded after the last death")
    order(served, "killed", cancel="tea")
    check_every_time(fires(served, "killed"), 1000)
    served("verify", "reminded/killed")


def test_times_that_passed_without_a_service_come_once(podium: Podium) -> None:
    """One that was ended in order; what `tests.e2e.failures.test_everything_killed` looks at was killed."""
    chat = podium.chat(AGENT, "late")
    chat.say(json.dumps({"name": "tea", "every": 1}))
    wait_until(lambda: fires(podium, "late"), "it is not reminded")
    assert chat.close() == 0
    podium.end()
    handled = fires(podium, "late")
    until_s = time.monotonic() + 4
    wait_until(lambda: time.monotonic() > until_s)
    chat = podium.chat(AGENT, "other")
    chat.say(json.dumps({"name": "none", "every": 3600}))
    wait_until(lambda: len(fires(podium, "late")) > len(handled) + 1, "it is not reminded later")
    found = fires(podium, "late")
    check_every_time(found, 1000)
    assert max(fire["missed"] for fire in found[len(handled) :]) >= 2
    assert chat.close() == 0
