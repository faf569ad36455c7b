"""Fork, rewind, diff, export and import of agents that live on real hosts and mounts."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import TIMEOUT_S, command, mounts_of
from tests.e2e.test_end_to_end import PATIENT, WORKER
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Podium


def test_branches_of_an_agent(served: Podium, tmp_path: Path) -> None:
    chat = served.chat(WORKER, "branch-a")
    for text in ("one", "two", "three"):
        assert chat.say(text)[-1]["type"] == "turn_end"
    served("fork", "worker/branch-a@2", "branch-b")  # while it is awake
    fork = served.chat(WORKER, "branch-b")
    assert fork.say("four")[-1]["turn"] == 3
    assert chat.say("five")[-1]["turn"] == 4
    assert fork.close() == chat.close() == 0
    for key in ("branch-a", "branch-b"):
        served("passivate", f"worker/{key}")
    assert served("cat", "worker/branch-a", "out.txt").stdout == "4 five\n"
    assert served("cat", "worker/branch-b", "out.txt").stdout == "3 four\n"
    assert served("cat", "worker/branch-b", "out.txt@2").stdout == "2 two\n"
    found = served.json("diff", "worker/branch-a", "worker/branch-b")
    assert "-4 five" in found["diff"]
    assert "+3 four" in found["diff"]
    served("rewind", "worker/branch-a", "1")
    archive = tmp_path / "a.podium"
    served("export", "worker/branch-a", str(archive))
    served("import", str(archive), "--as", "worker/branch-c")
    chat, imported = served.chat(WORKER, "branch-a"), served.chat(WORKER, "branch-c")
    assert chat.say("six")[-1]["turn"] == 6
    assert imported.say("seven")[-1]["turn"] == 6
    assert imported.close() == chat.close() == 0
    assert served("cat", "worker/branch-a", "out.txt").stdout == "2 six\n"
    versions = {number: served("cat", "worker/branch-a", f"out.txt@{number}").stdout for number in range(4, 7)}
    assert versions == {4: "4 five\n", 5: "1 one\n", 6: "2 six\n"}
    assert served("cat", "worker/branch-c", "out.txt").stdout == "2 seven\n"
    assert served("verify").returncode == 0


def test_an_agent_that_is_awake_goes_back_between_two_turns(served: Podium, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    chat, other = served.chat(PATIENT, "back"), served.chat(PATIENT, "back")
    for text in ("one", "two"):
        assert chat.say(text)[-1]["type"] == "turn_end"
    chat.send(f"wait for {gate}")
    chat.until("message_update")
    with subprocess.Popen(
        [*command(), "rewind", "patient/back", "1", "--json", "--home", str(served.home)],
        env=served.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as rewinding:
        assert rewinding.stderr is not None
        assert rewinding.stderr.readline() == "waiting for patient/back to end its turn …\n"
        other.send("four")  # it waits; the agent is not kept from its turn for it, nor from going back
        assert other.until("accepted")[-1]["before"] == 1
        assert rewinding.poll() is None
        gate.touch()
        assert chat.until("turn_end", "error")[-1]["turn"] == 3
        found, _ = rewinding.communicate(timeout=TIMEOUT_S)
        assert rewinding.returncode == 0
    done = json.loads(found)
    assert (done["from"], done["to"], done["turn"]) == (3, 1, 4)
    assert {"op": "replace", "path": "/count", "value": 1} in done["state"]
    assert [change["path"] for change in done["files"]] == ["out.txt"]
    assert other.until("turn_end", "error")[-1]["turn"] == 5
    assert served.json("state", "patient/back")["state"]["said"] == ["one", "four"]
    assert served("cat", "patient/back", "out.txt").stdout == "2 four\n"
    assert served("rewind", "patient/back", "9", check=False).returncode == ExitCode.UNKNOWN_MOMENT
    assert served.json("rewind", "patient/back", "5")["turn"] is None

    assert served("passivate", "patient/back").stderr.endswith("patient/back sleeps\n")
    assert not mounts_of(served.home)
    served("delete", "patient/back", "--yes")
    assert chat.close() == other.close() == 0
    assert served("verify").returncode == 0


def test_looking_after_the_inbox_of_an_agent_that_is_awake(served: Podium, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    chat, other = served.chat(PATIENT, "inbox"), served.chat(PATIENT, "inbox")
    assert chat.say("fail")[-1]["parked"] is True
    assert chat.say("fail")[-1]["parked"] is True
    first, second = (message["message_id"] for message in served.json("inbox", "patient/inbox")["messages"])
    chat.send(f"wait for {gate}")
    chat.until("message_update")
    other.send("waits")
    waits = other.until("accepted")[-1]["message_id"]
    for message_id in (first, waits):  # beside the turn that runs
        assert served("drop", "patient/inbox", message_id).stdout == f"{message_id} is dropped\n"
    assert other.until("turn_end", "error")[-1]["error"]["type"] == "Cancelled"
    gate.touch()
    assert chat.until("turn_end", "error")[-1]["turn"] == 1
    assert served.json("retry", "patient/inbox") == {"agent": "patient/inbox", "retried": [second], "now": True}
    wait_until(lambda: pending(served, "patient/inbox") == 0)  # it is tried three times more
    (parked,) = served.json("inbox", "patient/inbox")["messages"]
    assert (parked["message_id"], parked["attempts"], parked["error"]["message"]) == (second, 3, "as told")
    assert served("passivate", "patient/inbox").returncode == 0
    served("drop", "patient/inbox", second)
    assert served.json("inbox", "patient/inbox")["messages"] == []
    assert chat.close() == ExitCode.TURN_FAILED
    assert other.close() == ExitCode.TURN_CANCELLED
    assert served("verify").returncode == 0


def pending(podium: Podium, agent: str) -> int:
    """How many messages wait for an agent."""
    seen = podium.seen(agent)
    assert seen is not None
    return seen.pending
