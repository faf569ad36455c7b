"""Paused turns in a real service: to zero and on again, over deaths of its processes, by commands, HTTP and client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.e2e.conftest import AGENTS, kill_everything, processes_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

AGENT = f"{AGENTS / 'decider.py'}:Decider"
PAUSED = 33
VERDICTS = ("yes", "no")


def send(podium: Podium, key: str, text: str, code: int = 0) -> str:
    """Send the agent a message by the command, and return what it said."""
    return ended(podium, code, "run", AGENT, "--key", key, "-m", text).stdout


def ended(podium: Podium, code: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with an exit code."""
    finished = podium(*arguments, check=False)
    assert finished.returncode == code, finished.stdout + finished.stderr
    return finished


def runs(podium: Podium, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = podium.json("paused", f"decider/{key}")["runs"]
    return found


def done(podium: Podium, key: str) -> list[str]:
    found: list[str] = podium.json("state", f"decider/{key}")["state"]["done"]
    return found


def is_awake(podium: Podium, key: str) -> bool:
    return any(
        agent["agent"] == f"decider/{key}" and agent["status"] == "awake" for agent in podium.json("ps")["agents"]
    )


def test_a_paused_turn_goes_to_zero_and_on_over_deaths(served: Podium) -> None:
    send(served, "ann", "hello")
    assert "it costs 5" in send(served, "ann", "buy 5", code=PAUSED)
    (run,) = runs(served, "ann")
    assert (run["call_id"], run["reason"], run["expires"]) == ("decide#1", "pay 5?", None)
    assert served.json("state", "decider/ann")["state"] == {"steps": 0, "done": ["hello"]}
    wait_until(lambda: not is_awake(served, "ann"), "it does not sleep")
    for part in ("CoordinatorActor", "HostActor"):
        for pid in processes_of(served, part):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    ended(served, 2, "resolve", run["run_id"], '{"verdict": "perhaps"}')
    ended(served, 51, "resolve", run["run_id"], '{"verdict": "yes"}', "--call", "decide#2")
    served("resolve", run["run_id"], '{"verdict": "yes"}')
    wait_until(lambda: done(served, "ann") == ["hello", "yes to 5"], "it does not go on")
    ended(served, 51, "resolve", run["run_id"], '{"verdict": "no"}')
    assert runs(served, "ann") == []
    turn = [event for event in served.lines("log", "decider/ann") if event["type"] == "turn.committed"][-1]
    assert [step["key"] for step in turn["payload"]["steps"]["steps"]] == ["count#1", "decide#1"]
    served("verify", "decider/ann")


def test_a_pause_and_an_answer_outlive_all_processes(podium: Podium) -> None:
    assert "it costs 5" in send(podium, "ann", "buy 5 dies", code=PAUSED)
    kill_everything(podium)
    (run,) = runs(podium, "ann")

    def code_of(verdict: str) -> int:
        return podium("resolve", run["run_id"], f'{{"verdict": "{verdict}"}}', check=False).returncode

    with ThreadPoolExecutor(2) as pool:
        codes = dict(zip(VERDICTS, pool.map(code_of, VERDICTS), strict=True))
    assert sorted(codes.values()) == [0, 51], "of two answers at once one is taken"
    (taken,) = [verdict for verdict, code in codes.items() if code == 0]
    send(podium, "ann", "hello")
    assert done(podium, "ann") == [f"{taken} to 5", "hello"]
    assert (podium.home / "died").exists()
    turns = [event for event in podium.lines("log", "decider/ann") if event["type"].startswith("turn.")]
    assert [event["type"] for event in turns] == ["turn.paused", "turn.failed", "turn.committed", "turn.committed"]
    podium("verify", "decider/ann")


def test_a_turn_sleeps_while_others_wait_and_a_later_message_takes_its_place(served: Podium) -> None:
    send(served, "ben", "nap 3", code=PAUSED)
    served("send", "decider/ben", "hello", "--no-wait")
    assert [each["status"] for each in served.json("inbox", "decider/ben")["messages"]] == ["paused", "pending"]
    wait_until(lambda: done(served, "ben") == ["napped", "hello"], "it does not wake")
    send(served, "ben", "buy 7", code=PAUSED)
    (run,) = runs(served, "ben")
    served("send", "decider/ben", "instead", "--when-busy", "interrupt")
    assert done(served, "ben") == ["napped", "hello", "instead"]
    assert ended(served, 51, "resolve", run["run_id"], json.dumps({"verdict": "yes"})).stderr.count("cancelled") == 1
    served("verify", "decider/ben")
