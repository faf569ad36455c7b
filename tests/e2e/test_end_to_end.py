"""The whole chain: client, service, coordinator, warm host, turn, SQLite, blobs, FUSE; sleep and wake; crashes."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import jsonpatch
import pytest

from coordinator.home import Home
from tests.e2e.conftest import AGENTS, HELLO, SharedService, mounts_of, places_of, text_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Podium

FILE = AGENTS / "plain.py"
WORKER = f"{FILE}:Worker"
PATIENT = f"{FILE}:Patient"
GATHERING = f"{AGENTS / 'gathering.py'}:Gathering"


@pytest.fixture(scope="module")
def hasty_service() -> Iterator[SharedService]:
    """A service that soon counts a host as dead, and has short logs."""
    service = SharedService(PODIUM_SILENCE_S="6", PODIUM_LEASE_TTL_S="3", PODIUM_LOG_BYTES="20000")
    yield service
    service.end()


@pytest.fixture
def hasty(hasty_service: SharedService) -> Iterator[Podium]:
    """The command on its home."""
    with hasty_service.lent() as podium:
        yield podium


def test_the_same_key_goes_on_where_it_was(served: Podium) -> None:
    first = served("run", HELLO, "--key", "same", "--message", "hi")
    second = served("run", HELLO, "--key", "same", "--message", "hi")
    assert "1" in first.stdout
    assert "2" in second.stdout
    state = served.json("state", "hello/same")
    assert set(state) == {"agent", "version", "turn", "state"}
    assert state["agent"] == "hello/same"
    assert state["state"]["count"] == 2
    assert served("verify", "hello/same").returncode == 0

    # What a third party finds in the database itself: one turn.committed for each message, each with an RFC 6902 patch.
    served("passivate", "hello/same")
    events = served.lines("log", "hello/same")
    fields = {"branch_id", "seq", "event_id", "type", "turn", "ts", "payload", "payload_ref"}
    fields |= {"correlation_id", "causation_id", "prev_hash", "hash", "visible"}
    assert all(set(event) == fields for event in events)
    document = next(event for event in events if event["type"] == "agent.created")["payload"]["state"]
    turns = [event["payload"] for event in events if event["type"] == "turn.committed"]
    assert [len(turn["consumed"]) for turn in turns if turn["cause"] == "message"] == [1, 1]
    for turn in turns:
        document = jsonpatch.apply_patch(document, turn["state"]["patch"])
    assert document == state["state"]
    with contextlib.closing(sqlite3.connect(f"file:{served.home / 'journal.db'}?mode=ro", uri=True)) as database:
        branch = (events[0]["branch_id"],)
        (stored,) = database.execute("SELECT count(*) FROM events WHERE branch_id = ?", branch).fetchone()
    assert stored == len(events)


# S3.22, S3.23, S3.25, S3.26
def test_to_zero_and_back(served: Podium, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    chat = served.chat(WORKER, "z")
    chat.send(f"wait for {gate}")
    pid = int(chat.until("message_update")[-1]["delta"])
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/self/mounts").read_text().splitlines()}
    files = {place: Path(place) / "out.txt" for place in set(mounts_of(served.home))}  # afterwards it soon sleeps
    found = [(place, kinds[place], file.read_text()) for place, file in files.items() if file.exists()]
    gate.touch()
    assert chat.until("turn_end", "error")[-1]["type"] == "turn_end"
    wait_until(lambda: awake(served, "worker/z") is False)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    wait_until(lambda: not mounts_of(served.home))
    second = chat.say("two")
    assert [frame["type"] for frame in second[:2]] == ["accepted", "agent_start"]
    assert text_of(second).split()[1] == "2"
    assert served("cat", "worker/z", "out.txt").stdout == "2 two\n"
    assert served("cat", "worker/z", "out.txt@1").stdout == f"1 wait for {gate}\n"
    history = served.json("history", "worker/z", "out.txt")
    assert [entry["iteration"] for entry in history] == [1, 2]
    assert [entry["turn"] for entry in history] == [1, 2]
    place = text_of(chat.say("where")).split()[1]
    assert found == [(place, "fuse.chronicle", f"1 wait for {gate}\n")], (
        "$AGENT_WORKSPACE leads to a mount of Chronicle's"
    )
    assert {"iteration", "timestamp", "size", "hash", "op", "turn"} <= set(history[0])
    assert chat.close() == 0
    wait_until(lambda: not mounts_of(served.home))


def test_kill_of_the_host_in_the_middle_of_a_turn(served: Podium) -> None:
    chat = served.chat(PATIENT, "k")
    chat.say("before")
    chat.send("hang")
    pids = []
    for attempt in (1, 2, 3):
        frames = chat.until("message_update")
        starts = [frame for frame in frames if frame["type"] == "turn_start"]
        assert starts[-1]["attempt"] == attempt
        assert starts[-1]["turn"] == 2
        retries = [frame for frame in frames if frame["type"] == "turn_retry"]
        assert [(frame["attempt"], frame["error"]["type"]) for frame in retries] == (
            [(attempt - 1, "HostLost")] if attempt > 1 else []
        )
        pids.append(int(frames[-1]["delta"]))
        os.kill(pids[-1], signal.SIGKILL)
    last = chat.until("turn_end", "error")[-1]
    assert last["type"] == "error"
    assert last["parked"] is True
    assert len(set(pids)) == 3
    # From its last commit: nothing of the killed turn is there.
    state = served.json("state", "patient/k")
    assert state["turn"] == 1
    assert state["state"] == {"count": 1, "said": ["before"], "ratio": 0.5}
    assert text_of(chat.say("after")).split()[1] == "2"
    assert served("cat", "patient/k", "out.txt").stdout == "2 after\n"
    events = served.lines("log", "patient/k")
    failed = [event["payload"] for event in events if event["type"] == "turn.failed"]
    assert [failure["attempt"] for failure in failed] == [1, 2, 3]
    assert {failure["error"]["type"] for failure in failed} == {"HostLost"}
    assert all(failure["tree_id"] for failure in failed)
    types = [event["type"] for event in events if event["turn"] == 1]
    assert types.count("user_message") == types.count("turn.committed") == 1
    # Iteration numbers of the killed tries are not given out again.
    iterations = [entry["iteration"] for entry in served.json("history", "patient/k", "out.txt")]
    assert iterations == sorted(set(iterations))
    chat.close()
    assert served("verify", "patient/k").returncode == 0


def test_hosts_that_hang_count_as_dead_and_are_harmless_when_they_come_back(hasty: Podium, tmp_path: Path) -> None:
    """One of an agent, which comes back after the turn; one that agents share, which comes back in the middle of it."""
    gate = tmp_path / "gate"
    chat, gathering = hasty.chat(PATIENT, "h"), hasty.chat(GATHERING, "h")
    chat.send(f"wait for {gate}")
    pid = int(chat.until("message_update")[-1]["delta"])
    shared = gathering.say("hi")[-1]["data"]["pid"]
    gathering.send(f"wait for {gate}")
    gathering.until("event")
    for stopped in (pid, shared):
        os.kill(stopped, signal.SIGSTOP)
    try:
        frames = chat.until("message_update")
        assert [frame["error"]["type"] for frame in frames if frame["type"] == "turn_retry"] == ["HostLost"]
        assert int(frames[-1]["delta"]) != pid
        gathering.until("event")  # of the host that took over
        resume(shared)
        gate.touch()  # all of them could go on
        assert chat.until("turn_end", "error")[-1]["turn"] == 1
        end = gathering.until("turn_end", "error")[-1]
        assert (end["type"], end["data"]["answer"]) == ("turn_end", 2), end
        assert end["data"]["pid"] != shared
    finally:
        for stopped in (pid, shared):
            resume(stopped)
    wait_until(lambda: not any(Path(f"/proc/{stopped}").exists() for stopped in (pid, shared)))
    assert chat.say("after")[-1]["turn"] == 2
    assert hasty.json("state", "patient/h")["state"]["said"] == [f"wait for {gate}", "after"]
    assert hasty("cat", "patient/h", "out.txt").stdout == "2 after\n"
    committed = [event for event in hasty.lines("log", "gathering/h") if event["type"] == "turn.committed"]
    assert len(committed) == 2
    assert chat.close() == gathering.close() == 0
    assert hasty("verify").returncode == 0


def resume(pid: int) -> None:
    """Continue a stopped process, unless it was killed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_clients_share_a_service_and_the_last_one_ends_it_in_the_middle_of_a_turn(podium: Podium) -> None:
    podium.environment["PODIUM_STOP_TIMEOUT_S"] = "0.5"  # for the turn
    first, second = podium.chat(PATIENT, "one"), podium.chat(PATIENT, "two")
    first.say("hi")
    second.say("hi")
    assert podium.json("ps")["service"] is True
    first.close()
    second.send("hang")
    second.until("message_update")
    assert podium.json("ps")["service"] is True
    second.kill()
    wait_until(lambda: podium.json("ps")["service"] is False)
    assert not mounts_of(podium.home)
    assert not Home(podium.home).run_dir.exists()
    assert not places_of(podium.home).exists()
    assert list((podium.home / "nodes" / "local" / "mounts").iterdir()) == []
    # Its turn was interrupted, which is no failed attempt.
    assert podium.row("patient/two")["pending"] == 1
    (event,) = [event for event in podium.lines("log", "patient/two") if event["type"] == "turn.failed"]
    assert event["payload"]["message_id"] is None
    assert event["payload"]["error"]["type"] == "Interrupted"


def test_logs_are_bounded(hasty: Podium) -> None:
    chat = hasty.chat(PATIENT, "verbose")
    for _ in range(3):
        chat.say("print")
        wait_until(lambda: longest_log(hasty) <= 20_000)
    (old,) = (hasty.home / "logs").glob("patient-verbose*.log.1")
    (log,) = (hasty.home / "logs").glob("patient-verbose*.log")  # it may have been begun anew in the middle of a turn
    assert "said before line 999\n" in old.read_text() + log.read_text()
    assert chat.close() == 0


def test_agents_talk_to_each_other(served: Podium) -> None:
    chat = served.chat(PATIENT, "talks")
    chat.say("tell patient/listens")
    wait_until(lambda: turn_of(served, "patient/listens") == 1)
    chat.say("tell patient/listens")  # which is awake now
    wait_until(lambda: turn_of(served, "patient/listens") == 2)
    assert served.json("state", "patient/listens")["state"]["said"] == ["from patient/talks"] * 2
    chat.close()


def test_edited_code_runs_at_the_next_wake(served: Podium, tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    source = FILE.read_text()
    file.write_text(source)
    chat = served.chat(f"{file}:Worker", "x")
    assert text_of(chat.say("one")).split()[1] == "1"
    file.write_text(source.replace('f" {ctx.state.count}"', 'f" edited {ctx.state.count}"'))
    wait_until(lambda: awake(served, "worker/x") is False)
    assert text_of(chat.say("two")).split()[1:] == ["edited", "2"]
    chat.close()


def test_a_raising_message_says_so_and_the_chat_goes_on(served: Podium) -> None:
    chat = served.chat(PATIENT, "f")
    frames = chat.say("fail")
    assert frames[-1]["type"] == "error"
    assert frames[-1]["error"] == {"type": "ValueError", "message": "as told"}
    assert [frame["type"] for frame in frames].count("turn_retry") == 2
    refused = chat.say("nan")
    assert "/ratio" in refused[-1]["error"]["message"]
    assert text_of(chat.say("well")).split()[1] == "1"
    chat.close()


def test_without_fuse_it_runs_on_plain_directories(served_in_directories: Podium) -> None:
    plain = served_in_directories
    chat = plain.chat(WORKER, "d")
    chat.say("one")
    assert not mounts_of(plain.home)
    wait_until(lambda: awake(plain, "worker/d") is False)
    assert text_of(chat.say("two")).split()[1] == "2"
    chat.close()
    assert plain("cat", "worker/d", "out.txt@1").stdout == "1 one\n"
    assert plain("verify").returncode == 0


def longest_log(podium: Podium) -> int:
    """Bytes of a home's longest log file."""
    sizes = []
    for log in (podium.home / "logs").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a copy that has just got its name
            sizes.append(log.stat().st_size)
    return max(sizes)


def turn_of(podium: Podium, agent: str) -> int | None:
    """The last turn of an agent; None while the home does not know it."""
    seen = podium.seen(agent)
    return seen.turn if seen is not None else None


def awake(podium: Podium, agent: str) -> bool:
    """Whether an agent is awake."""
    seen = podium.seen(agent)
    assert seen is not None
    return seen.status == "awake"
