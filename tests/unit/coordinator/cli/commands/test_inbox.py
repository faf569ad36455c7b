"""``podium inbox``, ``retry`` and ``drop`` on a home whose service does not run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.ids import BlobId, MessageId
from chronicle.journal.records import NewMessage, StoredStep
from chronicle.workspace.port import TreeRef
from coordinator.cli.exits import ExitCode
from coordinator.cli.views.messages import show_inbox
from podium.history.step_record import StepRecord, write_record
from tests.unit.coordinator.cli.cli_home import PLACES, HomeMaker, Podium, podium_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    """A home with ``counter/a``: one message handled, one set aside, one that waits."""
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    agent.turn("one")
    agent.fail("bad\nand more")
    agent.admit("waits")
    agent.sleep()
    maker.agent("counter/b").sleep()
    yield maker
    maker.close()


@pytest.fixture(params=PLACES)
def podium(request: pytest.FixtureRequest, made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Iterator[Podium]:
    with podium_at(request.param, made.path, capsys) as podium:
        yield podium


def ids_of(podium: Podium) -> list[str]:
    return [message["message_id"] for message in podium.json("inbox", "counter/a")["messages"]]


def test_the_inbox(made: HomeMaker, podium: Podium) -> None:
    found = podium.json("inbox", "counter/a")
    assert found["agent"] == "counter/a"
    parked, waits = found["messages"]
    assert parked == {
        "message_id": parked["message_id"],
        "position": 2,
        "status": "parked",
        "attempts": 1,
        "admitted_at": parked["admitted_at"],
        "sender": None,
        "message": {"text": "bad\nand more"},
        "error": {"type": "ValueError", "message": "no"},
        "steps": [],
    }
    assert (waits["position"], waits["status"], waits["attempts"], waits["error"]) == (3, "pending", 0, None)
    headings, first, second = podium("inbox", "counter/a").splitlines()
    assert headings.split() == ["POSITION", "MESSAGE", "STATUS", "TRIES", "CAME", "FROM", "TEXT", "LAST", "ERROR"]
    assert first.startswith(f"2         {parked['message_id']}  parked")
    assert first.endswith("bad …  ValueError: no")
    assert second.split()[-2:] == ["waits", "-"]
    assert podium("inbox", "counter/b") == ""
    assert podium.err == "no message waits for counter/b, and none is parked\n"
    podium("inbox", "counter/c", code=ExitCode.UNKNOWN_AGENT)


def test_messages_that_are_no_text_and_have_a_sender(made: HomeMaker, podium: Podium) -> None:
    session = made.store.session("counter/b")
    message = NewMessage(made.ids.message(0), encode({"n": [1]}), 0, sender="counter/a")
    made.store.admit(session.session_id, message)
    line = podium("inbox", "counter/b").splitlines()[-1]
    assert line.split()[-3:] == ["counter/a", '{"n":[1]}', "-"]


def test_putting_back_what_was_set_aside(podium: Podium) -> None:
    parked, _ = ids_of(podium)
    assert podium("retry", "counter/a", parked) == f"{parked}\n"
    assert podium.err == "handled at the next podium run for counter/a\n"
    assert [message["status"] for message in podium.json("inbox", "counter/a")["messages"]] == ["pending"] * 2
    assert podium("retry", "counter/b") == ""
    assert podium.err == "no message waits for counter/b, and none is parked\n"
    podium("retry", "counter/a", "msg_no", code=ExitCode.NOT_FOUND)


def test_trying_again_what_waits(podium: Podium) -> None:
    parked, waits = ids_of(podium)
    assert podium("retry", "counter/a", waits) == f"{waits}\n"
    assert podium.err == "handled at the next podium run for counter/a\n"
    assert [message["status"] for message in podium.json("inbox", "counter/a")["messages"]] == ["parked", "pending"]
    assert podium.json("retry", "counter/a") == {"agent": "counter/a", "retried": [parked], "now": False}
    assert podium.json("retry", "counter/a") == {"agent": "counter/a", "retried": [], "now": False}
    assert podium("retry", "counter/a") == ""
    assert podium.err == "handled at the next podium run for counter/a\n"
    assert [message["status"] for message in podium.json("inbox", "counter/a")["messages"]] == ["pending"] * 2
    podium("drop", "counter/a", waits)
    podium("retry", "counter/a", waits, code=ExitCode.NOT_FOUND)
    assert "no parked message" in podium.err


def test_retrying_all(made: HomeMaker, podium: Podium) -> None:
    parked, _ = ids_of(podium)
    for name in ("counter/b", "other/a"):
        agent = made.agent(name)
        agent.fail("bad")
        agent.sleep()
    others = [message["message_id"] for message in podium.json("inbox", "other/a")["messages"]]
    found = [json.loads(line) for line in podium("retry", "--all", "--type", "counter", "--json").splitlines()]
    assert [each["agent"] for each in found] == ["counter/a", "counter/b"]
    assert found[0]["retried"] == parked
    assert podium("retry", "--all", "--type", "counter") == ""
    assert podium("retry", "--all") == f"{others[0]} of other/a\n"
    assert {message["status"] for message in podium.json("inbox", "counter/a")["messages"]} == {"pending"}


@pytest.mark.parametrize(
    "wrong", [(), ("counter/a", "--all"), ("counter/a", "--type", "counter"), ("--type", "counter")], ids=str
)
def test_what_cannot_be_retried(podium: Podium, wrong: tuple[str, ...]) -> None:
    podium("retry", *wrong, code=ExitCode.USAGE)
    assert "give an agent, or --all" in podium.err


def test_giving_messages_up(podium: Podium) -> None:
    parked, waits = ids_of(podium)
    assert podium.json("drop", "counter/a", parked) == {"agent": "counter/a", "message_id": parked}
    assert podium("drop", "counter/a", waits) == f"{waits} is dropped\n"
    assert ids_of(podium) == []
    lines = podium("log", "counter/a", "--type", "turn.cancelled").splitlines()
    assert [line.endswith(f"{number}: cancelled") for line, number in zip(lines, (parked, waits), strict=True)]
    # What it said is not kept, and the log of its failed try says so by its absence.
    assert podium("log", "counter/a", "--type", "turn.failed").endswith("attempt 1, parked: ValueError: no\n")
    podium("drop", "counter/a", "msg_no", code=ExitCode.NOT_FOUND)
    (handled,) = podium("log", "counter/a", "--type", "user_message", "--json").splitlines()
    podium("drop", "counter/a", json.loads(handled)["correlation_id"], code=ExitCode.NOT_FOUND)
    assert "was handled already" in podium.err
    assert podium("verify").startswith("counter/a")


def test_an_agent_whose_host_is_gone_without_a_word(made: HomeMaker, podium: Podium) -> None:
    parked, _ = ids_of(podium)
    session = made.store.session("counter/a")
    made.store.acquire_lease(session.session_id, "host_2", SystemClock().now_ms(), ttl_ms=600_000)
    podium("drop", "counter/a", parked, code=ExitCode.CONFLICT)
    assert "counter/a is awake" in podium.err
    podium("rewind", "counter/a", "0", code=ExitCode.CONFLICT)
    code = ExitCode.UNAVAILABLE if podium.url else ExitCode.OK
    assert podium("passivate", "counter/b", code=code) == ""
    assert podium.err == ("podium: no service runs\n" if podium.url else "counter/b sleeps: no service is running\n")


@pytest.mark.parametrize("moment", ["counter/a@-1", "counter/a@-0001"])
def test_turns_are_not_counted_from_the_end(podium: Podium, moment: str) -> None:
    podium("state", moment, code=ExitCode.UNKNOWN_MOMENT)
    assert podium.err == "podium: turns count from 0, the agent's creation; there is no turn -1 of counter/a\n"
    assert podium.json("state", "counter/a@+1")["state"] == {"count": 1}


def stepped(made: HomeMaker, name: str, message_id: MessageId) -> None:
    """Store a step of a pending message, as a turn does, and fail its attempt."""
    session = made.store.session(name)
    lease = made.store.acquire_lease(session.session_id, "host_2", made.clock.now_ms(), ttl_ms=15_000)
    tree = TreeRef(BlobId("0" * 64), BlobId("1" * 64))
    record = StepRecord("fetch#1", "fetch", "00", {"n": 1}, [], [], 0, 1, tree, False, 1_000, 1_250, [], [], [], 0)
    made.store.put_step(session.session_id, StoredStep(message_id, 1, "fetch#1", write_record(record, {})), lease.epoch)
    made.store.release_lease(session.session_id, lease.epoch)


def test_steps_are_shown_and_dropped(made: HomeMaker, podium: Podium) -> None:
    waits = MessageId(ids_of(podium)[1])
    stepped(made, "counter/a", waits)
    (step,) = podium.json("inbox", "counter/a")["messages"][1]["steps"]
    assert step == {
        "message_id": waits,
        "number": 1,
        "name": "fetch",
        "key": "fetch#1",
        "started": 1_000,
        "ended": 1_250,
        "attempts": 1,
        "result": '{"n":1}',
        "result_bytes": 7,
        "changes": 0,
        "changes_files": False,
        "tree_id": "0" * 64,
    }
    assert podium.json("steps", "counter/a") == {
        "agent": "counter/a",
        "turn": None,
        "steps": [{**step, "status": "done"}],
    }
    assert "fetch#1  done" in podium("steps", "counter/a")
    assert podium.json("steps", "counter/a@1") == {"agent": "counter/a", "turn": 1, "steps": []}
    podium("steps", "counter/a@77", code=ExitCode.UNKNOWN_MOMENT)
    assert podium("log", "counter/a").splitlines()[-1].split(maxsplit=2)[2] == (
        f"step               1. fetch#1 of {waits} (250 ms, result of 7 bytes)"
    )
    shown = [json.loads(line) for line in podium("log", "counter/a", "--json").splitlines()]
    assert shown[-1] == {"type": "step", **step}
    assert "fetch#1" not in podium("log", "counter/a", "--type", "turn.failed")
    podium("retry", "counter/a", waits)
    assert podium.json("inbox", "counter/a")["messages"][1]["steps"]
    podium("retry", "counter/a", waits, "--drop-steps")
    assert not podium.json("inbox", "counter/a")["messages"][1]["steps"]


def test_steps_of_a_message_that_may_run_are_not_dropped(made: HomeMaker, podium: Podium) -> None:
    waits = ids_of(podium)[1]
    session = made.store.session("counter/a")
    made.store.acquire_lease(session.session_id, "host_3", SystemClock().now_ms(), ttl_ms=600_000)
    podium("retry", "counter/a", waits, "--drop-steps", code=ExitCode.CONFLICT)


def test_the_error_of_a_parked_message_has_its_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"type": "AskFailed", "message": "it did not answer"}
    message = {
        "position": 1,
        "message_id": "msg_1",
        "status": "parked",
        "attempts": 1,
        "admitted_at": 0,
        "sender": None,
    }
    show_inbox([{**message, "message": {"text": "hi"}, "error": error}], now_ms=1_000)
    shown = " ".join(capsys.readouterr().out.split())
    assert "AskFailed: it did not answer; `podium retry AGENT MESSAGE_ID` retries a parked message" in shown
