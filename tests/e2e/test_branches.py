"""Fork, rewind, diff, export and import of agents that live on real hosts and mounts."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import TIMEOUT_S, command, kill_everything, mounts_of, wait_for_end
from tests.e2e.test_end_to_end import PATIENT, WORKER
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Podium


def test_branches_of_an_agent(podium: Podium, tmp_path: Path) -> None:
    chat = podium.chat(WORKER, "a")
    for text in ("one", "two", "three"):
        assert chat.say(text)[-1]["type"] == "turn_end"
    podium("fork", "worker/a@2", "b")  # while it is awake
    fork = podium.chat(WORKER, "b")
    assert fork.say("four")[-1]["turn"] == 3
    assert chat.say("five")[-1]["turn"] == 4
    assert fork.close() == chat.close() == 0
    wait_for_end(podium.home)
    assert podium("cat", "worker/a", "out.txt").stdout == "4 five\n"
    assert podium("cat", "worker/b", "out.txt").stdout == "3 four\n"
    assert podium("cat", "worker/b", "out.txt@2").stdout == "2 two\n"
    found = podium.json("diff", "worker/a", "worker/b")
    assert "-4 five" in found["diff"]
    assert "+3 four" in found["diff"]
    podium("rewind", "worker/a", "1")
    archive = tmp_path / "a.podium"
    podium("export", "worker/a", str(archive))
    podium("import", str(archive), "--as", "worker/c")
    chat, imported = podium.chat(WORKER, "a"), podium.chat(WORKER, "c")
    assert chat.say("six")[-1]["turn"] == 6
    assert imported.say("seven")[-1]["turn"] == 6
    assert imported.close() == chat.close() == 0
    wait_for_end(podium.home)
    assert podium("cat", "worker/a", "out.txt").stdout == "2 six\n"
    versions = {number: podium("cat", "worker/a", f"out.txt@{number}").stdout for number in range(4, 7)}
    assert versions == {4: "4 five\n", 5: "1 one\n", 6: "2 six\n"}
    assert podium("cat", "worker/c", "out.txt").stdout == "2 seven\n"
    assert podium("verify").returncode == 0


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
    wait_until(lambda: served.row("patient/inbox")["pending"] == 0)  # it is tried three times more
    (parked,) = served.json("inbox", "patient/inbox")["messages"]
    assert (parked["message_id"], parked["attempts"], parked["error"]["message"]) == (second, 3, "as told")
    assert served("passivate", "patient/inbox").returncode == 0
    served("drop", "patient/inbox", second)
    assert served.json("inbox", "patient/inbox")["messages"] == []
    assert chat.close() == ExitCode.TURN_FAILED
    assert other.close() == ExitCode.TURN_CANCELLED
    assert served("verify").returncode == 0


def test_going_back_does_not_hide_that_a_try_was_lost(podium: Podium) -> None:
    podium.environment["PODIUM_LEASE_TTL_S"] = "1"
    chat = podium.chat(PATIENT, "a")
    assert chat.say("one")[-1]["type"] == "turn_end"
    chat.send("hang")
    chat.until("message_update")
    kill_everything(podium)
    chat.close()
    wait_until(lambda: podium("rewind", "patient/a", "0", check=False).returncode == 0)
    chat = podium.chat(PATIENT, "a")
    chat.send("two")
    wait_until(lambda: [e for e in podium.lines("log", "patient/a") if e["type"] == "turn.failed"])
    (failed,) = [event["payload"] for event in podium.lines("log", "patient/a") if event["type"] == "turn.failed"]
    assert (failed["error"]["type"], failed["attempt"]) == ("HostLost", 1)
    hung, _ = podium.json("inbox", "patient/a")["messages"]
    podium("drop", "patient/a", hung["message_id"])
    assert chat.until("turn_end", "error")[-1]["turn"] == 3
    assert podium.json("state", "patient/a")["state"]["said"] == ["two"]
    chat.close()
