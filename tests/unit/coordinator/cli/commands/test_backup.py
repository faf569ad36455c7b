"""``podium backup``: a copy that is a home, also of one that is written to, or collected, meanwhile."""

from __future__ import annotations

import os
import stat
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.gc.local_disk import only_one
from chronicle.blobs.media.objects import LocalObjects
from chronicle.errors import Conflict
from chronicle.journal.sqlite import SqliteJournalStore
from coordinator.access.caller import Scope
from coordinator.backup import back_up
from coordinator.cli.exits import ExitCode
from coordinator.home import Home
from coordinator.homes.opening import open_records
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium
from tests.unit.coordinator.models.recorded import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = 100_000
"""Bytes of a file that is a blob of its own, in many chunks."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    maker = HomeMaker(tmp_path / "home")
    for name in ("counter/a", "counter/b"):
        agent = maker.agent(name)
        for number in range(3):
            agent.turn(f"{name} {number}", {"out.txt": f"{name} {number}".encode(), "large": os.urandom(LARGE)})
    agent.admit("still to come")
    yield maker
    maker.close()


@pytest.fixture
def podium(made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(made.path, capsys)


def assert_good(podium: Podium, copy: Path) -> None:
    assert podium.json("verify", home=copy)["ok"]


def test_a_copy_is_a_home_with_agents_files_messages_and_the_id(
    made: HomeMaker, podium: Podium, tmp_path: Path
) -> None:
    copy = tmp_path / "backups" / "monday"
    said = podium.json("backup", str(copy))
    assert (said["directory"], said["agents"]) == (str(copy), 2)
    checked = podium.json("verify", home=copy)
    assert checked["ok"]
    assert (said["events"], said["blobs"]) == (checked["events"], checked["blobs"])
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert Home(copy).open().id == Home(made.path).id
    for home in (made.path, copy):
        assert podium("cat", "counter/b@2", "out.txt", home=home) == "counter/b 1"
        assert podium.json("log", "counter/a", "--limit", "1", home=home)["type"] == "agent.created"
    (waiting,) = podium.json("inbox", "counter/b", home=copy)["messages"]
    assert waiting["attempts"] == 0
    with closing(Home(copy).journal()) as journal:
        for session in journal.sessions():
            assert journal.lease(session.session_id) is None, "the next activation would count an attempt"
    assert (copy / "journal.db-sums").exists()
    assert (copy / "journal.db-heads").exists()
    assert_good(podium, made.path)


def test_text_says_what_was_copied(podium: Podium, tmp_path: Path) -> None:
    text = podium("backup", str(tmp_path / "copy"))
    assert text.startswith(f"{tmp_path / 'copy'}: 2 agents, ")
    assert text.endswith(" blobs, verified\n")
    assert "only one of the two homes can have a service at a time" in podium.err


def test_keys_and_records_of_calls_are_in_the_copy(made: HomeMaker, podium: Podium, tmp_path: Path) -> None:
    records = open_records(Home(made.path))
    with closing(records.keys()) as keys, closing(records.calls()) as calls:
        _, text = keys.create("ci", "acme", [Scope.READ], 1)
        calls.begin(record("call_1"))
        podium("backup", str(tmp_path / "copy"))
    copied = open_records(Home(tmp_path / "copy"))
    with closing(copied.keys()) as keys:
        assert keys.find(text) is not None
    assert copied.call_log().latest(None, 9) == [record("call_1")]


@pytest.mark.parametrize("there", ["a file", "another home", "this home", "inside this home"])
def test_a_directory_that_cannot_take_it_is_refused_and_unchanged(
    there: str, made: HomeMaker, podium: Podium, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    match there:
        case "a file":
            target.mkdir()
            (target / "notes.txt").write_text("mine")
        case "another home":
            podium("backup", str(target))
        case "this home":
            target = made.path
        case _:
            target = made.path / "backups"
    before = sorted(target.rglob("*")) if target.exists() else None
    podium("backup", str(target), code=ExitCode.USAGE)
    assert ("is not empty" in podium.err) or ("is in the home itself" in podium.err)
    assert (sorted(target.rglob("*")) if target.exists() else None) == before


def test_a_directory_that_cannot_be_made_is_an_error_of_the_system(podium: Podium, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    podium("backup", str(tmp_path / "file" / "copy"), code=ExitCode.OS_ERROR)
    assert "copy cannot be used: " in podium.err


def test_a_home_without_a_journal_has_nothing_to_copy(podium: Podium, tmp_path: Path) -> None:
    empty = Home(tmp_path / "empty").create()
    podium("backup", str(tmp_path / "copy"), code=ExitCode.HOME_ERROR, home=empty.path)


def test_a_damaged_home_gives_no_home(made: HomeMaker, podium: Podium, tmp_path: Path) -> None:
    pack = max(
        (made.path / "blobs" / "packs").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0
    )
    content = bytearray(pack.read_bytes())
    content[LARGE // 2] ^= 1
    pack.write_bytes(content)
    podium("backup", str(tmp_path / "copy"), code=ExitCode.DAMAGED)
    assert "is damaged, as the home may be: counter/" in podium.err
    podium("ps", home=tmp_path / "copy", code=ExitCode.HOME_ERROR)


def test_no_garbage_is_collected_meanwhile(made: HomeMaker, podium: Podium, tmp_path: Path) -> None:
    with only_one(LocalObjects(made.path / "blobs"), dry_run=False):
        podium("backup", str(tmp_path / "copy"), code=ExitCode.CONFLICT)
    refused = []

    def try_to_collect(stage: str) -> None:
        if stage.startswith("copying"):
            try:
                collect(Home(made.path).blobs_url, set, GcRules(alone=True, keep_from=1.0))
            except Conflict:
                refused.append(stage)

    back_up(Home(made.path).open(), tmp_path / "other", try_to_collect)
    assert len(refused) > 1
    assert_good(podium, tmp_path / "other")


def test_turns_that_are_committed_meanwhile_are_there_whole_or_not_at_all(
    made: HomeMaker, podium: Podium, tmp_path: Path
) -> None:
    """Writers commit turns with large files all the time, at each stage of several backups."""
    writers = [made.agent(f"counter/w{number}") for number in range(3)]
    over = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            number = 0
            while not over.is_set():
                number += 1
                for agent in writers:
                    agent.turn(f"turn {number}", {"out.txt": b"%d" % number, f"f{number % 7}": os.urandom(LARGE)})
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=write)
    thread.start()
    try:
        counts = []
        for copy in (tmp_path / "one", tmp_path / "two", tmp_path / "three"):
            before = podium.json("state", "counter/w0")["turn"]
            podium("backup", str(copy))
            assert_good(podium, copy)
            states = [podium.json("state", f"counter/w{number}", home=copy) for number in range(3)]
            assert states[0]["turn"] >= before
            for number, state in enumerate(states):
                assert state["state"]["count"] == state["turn"]
                if state["turn"]:
                    assert podium("cat", f"counter/w{number}", "out.txt", home=copy) == str(state["turn"])
            counts.append(states[0]["turn"])
    finally:
        over.set()
        thread.join()
    assert not failures
    assert counts[0] < counts[1] < counts[2], "nothing was committed meanwhile"


def test_a_home_whose_blobs_are_elsewhere_is_copied_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker = HomeMaker.__new__(HomeMaker)
    Home(tmp_path / "home").create("memory://a-store")
    maker.__init__(tmp_path / "home")  # type: ignore[misc]
    maker.agent("counter/a").turn("hi", {"out.txt": b"far", "large": os.urandom(LARGE)})
    maker.close()
    podium = Podium(tmp_path / "home", capsys)
    podium("backup", str(tmp_path / "copy"))
    assert Home(tmp_path / "copy").open().blobs_url == f"file://{tmp_path / 'copy' / 'blobs'}"
    assert_good(podium, tmp_path / "copy")
    assert podium("cat", "counter/a", "out.txt", home=tmp_path / "copy") == "far"


def test_a_journal_at_rest_is_copied_without_touching_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(SqliteJournalStore(path, watched=True)):
        pass
    before = {found.name: found.stat().st_mtime_ns for found in tmp_path.iterdir()}
    (tmp_path / "copies").mkdir()
    with closing(SqliteJournalStore(path, read_only=True, watched=True)) as store:
        store.copy_to(tmp_path / "copies" / "journal.db")
    assert {found.name: found.stat().st_mtime_ns for found in tmp_path.iterdir() if found.is_file()} == before
    with closing(SqliteJournalStore(tmp_path / "copies" / "journal.db", create=False)) as copy:
        assert copy.sessions() == []
