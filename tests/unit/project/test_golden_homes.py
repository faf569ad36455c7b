"""Homes and stores of earlier versions say the same as when they were written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.cli import main as chronicle
from chronicle.journal.sqlite import SqliteJournalStore
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main as podium
from tests.golden.homes import NAMES, expected, extract

if TYPE_CHECKING:
    from pathlib import Path

STABLE = ("iteration", "timestamp", "size", "hash", "turn")
"""What is shown of a version by all versions of Podium; ``op`` became more exact."""


@pytest.fixture(scope="module", params=NAMES)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A golden home and store, whose journals are of this version's format: what only reads upgrades nothing."""
    files = extract(request.param, tmp_path_factory.mktemp("golden"))
    for journal in files.rglob("journal.db"):
        SqliteJournalStore(journal, watched=True).close()
    return files


def lines(capture: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the JSON objects that a command printed, one a line or in one list."""
    found = [json.loads(line) for line in capture.readouterr().out.splitlines()]
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found


def test_there_are_golden_homes() -> None:
    assert NAMES


@pytest.mark.parametrize("agent", ["ann", "ben"])
def test_events_are_the_same(files: Path, agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert podium(["log", f"filer/{agent}", "--all", "--json", "--home", str(files / "home")]) == ExitCode.OK
    found, then = lines(capsys), expected(files, f"log.{agent}.jsonl")
    assert [{key: line[key] for key in old} for line, old in zip(found, then, strict=True)] == then


@pytest.mark.parametrize(("agent", "turns"), [("ann", 11), ("ben", 6)])
def test_states_are_the_same_at_each_turn(
    files: Path, agent: str, turns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for turn in range(turns):
        assert podium(["state", f"filer/{agent}@{turn}", "--json", "--home", str(files / "home")]) == ExitCode.OK
        (then,) = expected(files, f"state.{agent}.{turn}.json")
        then.pop("branch", None)  # of earlier releases only
        assert lines(capsys) == [then], turn


@pytest.mark.parametrize(
    ("agent", "path"),
    [
        *(
            ("ann", path)
            for path in ("notes/a.txt", "deep/er/b.txt", "moved/er/b.txt", "b.txt", "big.bin", "after.txt")
        ),
        *(("ben", path) for path in ("notes/a.txt", "deep/er/b.txt", "moved/er/b.txt", "moved/er/c.txt")),
    ],
)
def test_histories_of_agents_are_the_same(
    files: Path, agent: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(files / "home")
    assert podium(["history", f"filer/{agent}", path, "--json", "--home", home]) == ExitCode.OK
    then = expected(files, f"history.{agent}.{path.replace('/', '_')}.jsonl")
    assert [[version.get(key) for key in STABLE] for version in lines(capsys)] == [
        [version.get(key) for key in STABLE] for version in then
    ]


def test_versions_of_a_file_are_read(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version, text in ((1, "ONE\n"), (2, "TWO\n")):
        arguments = ["cat", "filer/ann", f"notes/a.txt@{version}", "--home", str(files / "home")]
        assert podium(arguments) == ExitCode.OK
        assert capsys.readouterr().out == text


def test_all_is_verified(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert podium(["verify", "--home", str(files / "home")]) == ExitCode.OK
    assert "46 events" in capsys.readouterr().out
    assert chronicle(["verify", "--store", str(files / "store")]) == 0


def test_commits_of_a_store_are_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chronicle(["log", "--store", str(files / "store"), "--json"]) == 0
    assert lines(capsys) == expected(files, "clog.jsonl")


@pytest.mark.parametrize("path", ["f", "a/b/c", "x/b/c", "y", "link", "z", "hole"])
def test_histories_of_a_store_are_the_same(files: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert chronicle(["history", "--store", str(files / "store"), path, "--json"]) == 0
    then = expected(files, f"chistory.{path.replace('/', '_')}.jsonl")
    assert [[version.get(key) for key in STABLE] for version in lines(capsys)] == [
        [version.get(key) for key in STABLE] for version in then
    ]
