"""Agents that ask each other on a real service: the hosts of both may die in between."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING

from tests.e2e.conftest import AGENTS
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Podium

FILE = AGENTS / "asking.py"


def ask(served: Podium, key: str, plan: dict[str, object]) -> None:
    """Make the answerer's class known, and have the asker ask an answerer of its own key."""
    served("run", f"{FILE}:Answerer", "--key", "other", "--message", "{}")
    served("run", f"{FILE}:Asker", "--key", key, "--message", json.dumps({"ask": f"answerer/{key}", **plan}))


def assert_asked_once(served: Podium, key: str, notes: Path) -> None:
    """The question was handled once, the asker's turn committed once, and no step that ended ran again."""
    lines = notes.read_text().splitlines()
    assert [line for line in lines if " " not in line] == ["before", "work", "behind"]
    assert served.json("state", f"asker/{key}")["state"] == {"answers": [{"asked": 1}]}
    assert served.json("state", f"answerer/{key}")["state"] == {"asked": 1}
    for agent in (f"asker/{key}", f"answerer/{key}"):
        turns = [event for event in served.lines("log", agent) if event["type"] == "turn.committed"]
        assert [turn["payload"]["cause"] for turn in turns if turn["payload"]["consumed"]] == ["message"]
        assert served.json("verify", agent)["ok"]
    assert served("cat", f"asker/{key}", "answer.txt").stdout == f"asked by asker/{key}"


def test_the_host_of_the_agent_that_was_asked_dies(served: Podium, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    ask(served, "dying", {"notes": str(notes), "dies": True})
    assert notes.read_text().count("answerer") == 2
    assert_asked_once(served, "dying", notes)


def test_the_host_of_the_asker_dies(served: Podium, tmp_path: Path) -> None:
    notes, until = tmp_path / "notes", tmp_path / "until"

    def kill() -> None:
        wait_until(lambda: notes.exists() and "work" in notes.read_text().split())
        asker = next(line for line in notes.read_text().splitlines() if line.startswith("asker "))
        os.kill(int(asker.split()[1]), signal.SIGKILL)
        wait_until(lambda: notes.read_text().count("asker ") == 2)
        until.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    ask(served, "waiting", {"notes": str(notes), "until": str(until)})
    killer.join()
    assert_asked_once(served, "waiting", notes)


def test_the_host_of_the_asker_dies_for_good_before_it_has_the_other_woken(served: Podium, tmp_path: Path) -> None:
    """The question was admitted; nothing but the death of that host tells the coordinator of it."""
    notes = tmp_path / "notes"
    served("run", f"{FILE}:Answerer", "--key", "other", "--message", "{}")
    question = json.dumps({"ask": "answerer/lost", "notes": str(notes)})
    lost = served("run", f"{FILE}:LostAsker", "--key", "lost", "--message", question, check=False)
    assert "SIGKILL" in lost.stderr
    wait_until(lambda: notes.exists() and "work" in notes.read_text().split())
    wait_until(lambda: served.json("state", "answerer/lost")["state"] == {"asked": 1})


def test_an_answer_is_heard_while_it_is_made_also_when_its_host_dies(served: Podium, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    served("run", f"{FILE}:Speaker", "--key", "other", "--message", "{}")
    plan = json.dumps({"ask": "speaker/kim", "notes": str(notes)})
    served("run", f"{FILE}:Listener", "--key", "ann", "--message", plan)
    heard = served.json("state", "listener/ann")["state"]["heard"]
    assert heard == ["well, ", "AnswerVoided", "well, ", "done", "answered 2"]
    assert served.json("verify", "listener/ann")["ok"]
