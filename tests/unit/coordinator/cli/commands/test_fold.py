"""Folding and erasing from the command line, on real SQLite journals and blob stores."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from tests.unit.coordinator.cli.cli_home import PLACES, HomeMaker, Podium, podium_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    """A home with ``counter/a``: three turns, the last one before a failure."""
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    for text in ("first words", "second words", "third words"):
        agent.turn(text, {"out.txt": text.encode()})
    agent.fail("bad")
    agent.sleep()
    yield maker
    maker.close()


@pytest.fixture(params=PLACES)
def podium(request: pytest.FixtureRequest, made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Iterator[Podium]:
    with podium_at(request.param, made.path, capsys) as podium:
        yield podium


# -- fold --------------------------------------------------------------------------------------------------------------


def test_fold_drops_what_is_older(made: HomeMaker, podium: Podium) -> None:
    would = podium.json("fold", "counter/a", "--dry-run")
    assert podium.json("log", "counter/a", "--limit", "1")["type"] == "agent.created"
    folded = podium.json("fold", "counter/a")
    assert folded == {**would, "version": would["version"] + 1}
    assert {key: folded[key] for key in ("agent", "turn", "marked", "first_turn", "later")} == {
        "agent": "counter/a",
        "turn": 3,
        "marked": True,
        "first_turn": 3,
        "later": None,
    }
    assert (folded["dropped"]["events"], folded["dropped"]["turns"]) == (11, 3)
    assert folded["dropped"]["bytes"] > 0
    (event,) = [json.loads(line) for line in podium("log", "counter/a", "--json").splitlines()]
    assert (event["type"], event["payload"]["state"]) == ("agent.snapshot", {"count": 3})
    assert podium.json("state", "counter/a@3")["state"] == {"count": 3}
    podium("state", "counter/a@2", code=ExitCode.UNKNOWN_MOMENT)
    assert "turn 2 of counter/a is not kept any more" in podium.err
    assert podium("cat", "counter/a", "out.txt@1") == "first words"
    assert len(podium.json("history", "counter/a", "out.txt")) == 3
    assert podium.json("verify")["ok"]
    podium("gc", "--now")
    assert podium.json("verify")["ok"]
    assert podium("cat", "counter/a", "out.txt@2") == "second words"


def test_fold_says_what_it_did(podium: Podium) -> None:
    out = podium("fold", "counter/a", "--keep-turns", "2")
    assert out.splitlines() == [
        "0 events dropped: 0 turns, 0 bytes",
        "the history of counter/a begins at turn 0",
        "11 events can be dropped later: 3 turns, from turn 5 on",
    ]
    again = podium.json("fold", "counter/a", "--keep-turns", "2", "--keep-days", "1.5")
    assert (again["marked"], again["later"]["from_turn"], again["later"]["events"]) == (False, 5, 11)
    assert again["later"]["from_ms"] > 0
    out = podium("fold", "counter/a")
    assert out.splitlines()[1:] == ["the history of counter/a begins at turn 3"]


def test_fold_is_refused(made: HomeMaker, podium: Podium) -> None:
    podium("fold", "counter/a", "--keep-turns", "0", code=ExitCode.USAGE)
    podium("fold", "counter/a", "--keep-days", "-1", code=ExitCode.USAGE)
    podium("fold", "counter/b", code=ExitCode.UNKNOWN_AGENT)
    podium("fork", "counter/a@1", "b")
    podium("fold", "counter/a", code=ExitCode.CONFLICT)
    assert "read by its forks counter/b" in podium.err
    assert podium.json("log", "counter/a", "--limit", "1")["type"] == "agent.created"
    podium("fold", "counter/b")
    podium("fold", "counter/a")
    assert podium.json("state", "counter/b")["state"] == {"count": 1}
    assert podium.json("verify")["ok"]


def test_a_folded_agent_goes_to_another_home(podium: Podium, tmp_path: Path) -> None:
    podium("fold", "counter/a")
    exported = podium.json("export", "counter/a", str(tmp_path / "a.podium"))
    imported = podium.json("import", str(tmp_path / "a.podium"), home=tmp_path / "other")
    assert imported["hash"] == exported["hash"]
    assert (exported["events"], exported["turn"]) == (1, 3)
    assert json.loads(podium("verify", "--json", home=tmp_path / "other"))["ok"]
    assert json.loads(podium("state", "counter/a", "--json", home=tmp_path / "other"))["state"] == {"count": 3}
    assert podium("cat", "counter/a", "out.txt@1", home=tmp_path / "other") == "first words"


# -- erase -------------------------------------------------------------------------------------------------------------


def events(podium: Podium) -> list[dict[str, Any]]:
    return [json.loads(line) for line in podium("log", "counter/a", "--json").splitlines()]


def test_erase_takes_the_content_and_leaves_the_record(made: HomeMaker, podium: Podium, tmp_path: Path) -> None:
    before = events(podium)
    said = [event["event_id"] for event in before if event["turn"] == 2 and "message" in event["type"]]
    assert len(said) == 2
    assert podium.json("erase", "counter/a", *said, *said, "--yes") == {
        "agent": "counter/a",
        "erased": [
            {"event_id": event_id, "type": event_type, "turn": 2, "had_blob": False}
            for event_id, event_type in zip(said, ("user_message", "assistant_message"), strict=True)
        ],
    }
    assert podium.json("erase", "counter/a", *said, "--yes")["erased"] == []
    after = events(podium)
    assert [event["hash"] for event in after] == [event["hash"] for event in before]
    assert [event["event_id"] for event in after if event["payload"] is None] == said
    assert podium.json("verify")["ok"]
    assert podium.json("state", "counter/a@2")["state"] == {"count": 2}
    for command in (["log", "counter/a"], ["diff", "counter/a@1", "counter/a@3"]):
        out = podium(*command)
        assert "third words" in out
        assert "second words" not in out
    with sqlite3.connect(made.path / "journal.db") as db:
        assert not any("second words" in line for line in db.iterdump())
    db.close()
    podium.json("export", "counter/a", str(tmp_path / "a.podium"))
    podium("import", str(tmp_path / "a.podium"), home=tmp_path / "other")
    assert json.loads(podium("verify", "--json", home=tmp_path / "other"))["ok"]


def test_erase_leaves_alone_what_an_agent_is_read_from(podium: Podium) -> None:
    found = events(podium)
    (created, message) = (event["event_id"] for event in found[:2])
    podium("erase", "counter/a", message, code=ExitCode.USAGE)
    assert "cannot be undone; add --yes" in podium.err
    podium("erase", "counter/a", message, created, "--yes", code=ExitCode.USAGE)
    assert "agent.created, which replay reads" in podium.err
    podium("erase", "counter/a", message, "evt_no", "--yes", code=ExitCode.NOT_FOUND)
    assert podium.err.endswith("has no event evt_no; `podium log counter/a --json` lists its events\n")
    podium("fork", "counter/a@1", "b")
    podium("erase", "counter/b", message, "--yes", code=ExitCode.USAGE)
    assert "belongs to another agent than counter/b" in podium.err
    assert events(podium) == found
