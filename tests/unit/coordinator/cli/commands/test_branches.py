"""The commands about branches of agents, on real SQLite journals and blob stores."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.views.files import show_patch
from coordinator.gateway_record import gateway_lock
from coordinator.home import Home
from podium.address import Address
from tests.unit.coordinator.cli.cli_home import PLACES, HomeMaker, Podium, podium_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.canonical import JsonObject


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    """A home with ``counter/a``: three turns, the last one before a failure."""
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    agent.turn("one", {"out.txt": b"first\n", "dir/deep": b"x"})
    agent.turn("two", {"out.txt": b"second\n", "gone": b"y"})
    agent.turn("three", {"out.txt": b"third\n", "gone": None})
    agent.fail("bad")
    agent.sleep()
    yield maker
    maker.close()


@pytest.fixture(params=PLACES)
def podium(request: pytest.FixtureRequest, made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Iterator[Podium]:
    with podium_at(request.param, made.path, capsys) as podium:
        yield podium


# -- fork --------------------------------------------------------------------------------------------------------------


def test_fork(podium: Podium) -> None:
    forked = podium.json("fork", "counter/a@2", "b")
    assert forked == {
        "agent": "counter/b",
        "version": 8,
        "turn": 2,
        "from": {"agent": "counter/a", "turn": 2, "seq": 7},
    }
    assert podium.json("state", "counter/b")["state"] == {"count": 2}
    assert podium("cat", "counter/b", "out.txt") == "second\n"
    assert podium("cat", "counter/b", "gone") == "y"
    assert podium("cat", "counter/b", "out.txt@1") == "first\n"
    assert [row["agent"] for row in podium.json("ps")["agents"]] == ["counter/a", "counter/b"]
    assert "agent.forked" in podium("log", "counter/b")
    podium("verify")


def test_fork_says_what_it_did(podium: Podium) -> None:
    assert podium("fork", "counter/a", "b") == "counter/b continues counter/a from turn 3\n"


def test_fork_refuses(podium: Podium) -> None:
    podium("fork", "counter/a", "a", code=ExitCode.AGENT_EXISTS)
    assert podium.err == "podium: there is an agent counter/a already; take another key for the fork\n"
    podium("fork", "counter/a@9", "b", code=ExitCode.UNKNOWN_MOMENT)
    podium("fork", "counter/x", "b", code=ExitCode.UNKNOWN_AGENT)
    podium("fork", "counter/a", "b/c", code=ExitCode.INVALID_ADDRESS)


# -- rewind ------------------------------------------------------------------------------------------------------------


def test_rewind(podium: Podium) -> None:
    wanted = {
        "agent": "counter/a",
        "from": 3,
        "to": 2,
        "only": ["state", "files", "transcript"],
        "turn": None,
        "state": [{"op": "replace", "path": "/count", "value": 2}],
    }
    shown = podium.json("rewind", "counter/a", "2", "--dry-run")
    files = shown.pop("files")
    assert shown == wanted
    assert [(file["change"], file["path"]) for file in files] == [("added", "gone"), ("changed", "out.txt")]
    assert podium.json("state", "counter/a")["turn"] == 3
    done = podium.json("rewind", "counter/a", "2")
    assert done == {**wanted, "turn": 4, "files": files}
    assert podium.json("state", "counter/a")["state"] == {"count": 2}
    assert podium("cat", "counter/a", "out.txt") == "second\n"
    assert podium("cat", "counter/a@3", "out.txt") == "third\n"
    assert podium("cat", "counter/a", "out.txt@4") == "second\n"
    assert "state, files and transcript as after turn 2" in podium("log", "counter/a")
    podium("verify")
    podium("rewind", "counter/a", "3")
    assert podium.err == (
        "counter/a is at turn 5, state, files and transcript as after turn 3; podium rewind counter/a 4 undoes it\n"
    )
    assert podium.json("state", "counter/a")["state"] == {"count": 3}


def test_rewind_shows_what_changes(podium: Podium) -> None:
    text = podium("rewind", "counter/a", "2", "--dry-run")
    assert text == 'state\n  {"op":"replace","path":"/count","value":2}\nfiles\n  A gone\n  M out.txt\n'
    assert podium.err == "nothing was changed (--dry-run)\n"
    assert podium("rewind", "counter/a", "3") == ""
    assert "already" in podium.err


def test_rewind_refuses(made: HomeMaker, podium: Podium) -> None:
    podium("rewind", "counter/a", "9", code=ExitCode.UNKNOWN_MOMENT)
    podium("rewind", "counter/x", "1", code=ExitCode.UNKNOWN_AGENT)
    podium("rewind", "counter/a", "1", "--only", "nothing", code=ExitCode.USAGE)
    session = made.store.session("counter/a")
    made.store.acquire_lease(session.session_id, "host", 2**45, 60_000)
    podium("rewind", "counter/a", "1", code=ExitCode.CONFLICT)
    assert podium.err.startswith("podium: counter/a is awake; try again when it sleeps")
    assert podium.err.endswith("; `podium passivate counter/a` puts it to sleep\n")


# -- diff --------------------------------------------------------------------------------------------------------------


def test_diff_of_two_turns(podium: Podium) -> None:
    text = podium("diff", "counter/a@1", "counter/a@3")
    assert podium.err == "counter/a@1 -> counter/a@3\n"
    assert text.splitlines() == [
        "state",
        '  {"op":"replace","path":"/count","value":3}',
        "files",
        "diff a/out.txt b/out.txt",
        "--- a/out.txt",
        "+++ b/out.txt",
        "@@ -1 +1 @@",
        "-first",
        "+third",
        "transcript",
        "+ turn 2 user: two",
        "+ turn 2 agent: two",
        "+ turn 3 user: three",
        "+ turn 3 agent: three",
    ]
    assert podium("diff", "counter/a@1") == text
    back = podium("diff", "counter/a@3", "counter/a@1")
    assert "- turn 2 user: two" in back
    assert "+first" in back


def test_diff_of_an_agent_and_its_fork(podium: Podium, made: HomeMaker) -> None:
    podium("fork", "counter/a@1", "b")
    podium("fork", "counter/b", "c")
    podium("rewind", "counter/c", "0", "--only", "files")
    found = podium.json("diff", "counter/c", "counter/a@2")
    assert found["before"] == {"agent": "counter/c", "turn": 2, "version": 6}
    assert found["after"] == {"agent": "counter/a", "turn": 2, "version": 7}
    assert found["common_version"] == 4
    assert found["state"] == [{"op": "replace", "path": "/count", "value": 2}]
    assert [(file["change"], file["path"]) for file in found["files"]] == [
        ("added", "dir"),
        ("added", "dir/deep"),
        ("added", "gone"),
        ("added", "out.txt"),
    ]
    assert found["transcript"]["removed"] == []
    assert [event["payload"]["message"]["text"] for event in found["transcript"]["added"][:1]] == ["two"]
    assert "+second" in found["diff"]
    made.agent("counter/z").sleep()
    assert podium.json("diff", "counter/z", "counter/a")["common_version"] == 0


def test_diff_of_what_is_the_same(podium: Podium) -> None:
    podium("fork", "counter/a", "b")
    assert podium("diff", "counter/a", "counter/b") == ""
    assert podium.err.endswith("nothing differs\n")
    podium("diff", "counter/a@9", code=ExitCode.UNKNOWN_MOMENT)
    podium("diff", "counter/a", "counter/x", code=ExitCode.UNKNOWN_AGENT)


# -- export and import -------------------------------------------------------------------------------------------------


def test_export_and_import(podium: Podium, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "a.podium", tmp_path / "elsewhere"
    exported = podium.json("export", "counter/a", str(file))
    assert exported["agent"] == "counter/a"
    assert exported["events"] == exported["version"] == 11
    assert exported["bytes"] == file.stat().st_size
    imported = podium.json("import", str(file), home=elsewhere)
    assert imported == {
        "agent": "counter/a",
        "exported_as": "counter/a",
        **{key: exported[key] for key in ("branch", "version", "turn", "hash", "events")},
        "new_blobs": exported["blobs"],
    }
    assert podium("cat", "counter/a@2", "gone", home=elsewhere) == "y"
    podium("verify", home=elsewhere)
    podium("import", str(file), home=elsewhere, code=ExitCode.AGENT_EXISTS)
    assert podium.err.endswith(f"; `podium import {file} --as AGENT` names one\n")
    podium("import", str(file), "--as", "other/b", home=elsewhere)
    assert podium.json("state", "other/b", home=elsewhere)["state"] == {"count": 3}
    podium("export", "counter/a", str(file), code=ExitCode.USAGE)
    podium("import", str(tmp_path / "nothing"), code=ExitCode.NOT_FOUND)
    assert f"there is no file {tmp_path / 'nothing'}" in podium.err
    assert podium.err.endswith("; `podium export` writes one\n")
    file.write_bytes(file.read_bytes()[:-9])
    podium("import", str(file), "--as", "counter/c", code=ExitCode.DAMAGED)
    assert "is not an archive" in podium.err


def test_an_import_that_is_refused_makes_no_home(podium: Podium, tmp_path: Path) -> None:
    file, changed, home = tmp_path / "a.podium", tmp_path / "changed.podium", tmp_path / "new home"
    podium("export", "counter/a", str(file))
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b'"turn":1', b'"turn":2'))
    podium("import", str(changed), home=home, code=ExitCode.DAMAGED)
    assert podium.err.count("nothing was imported") == 1
    podium("import", str(tmp_path / "nothing"), home=home, code=ExitCode.NOT_FOUND)
    podium("import", str(file), "--as", "no address", home=home, code=ExitCode.INVALID_ADDRESS)
    assert not home.exists()


def test_going_back_in_a_long_list_shows_some_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    patch: list[JsonObject] = [{"op": "remove", "path": f"/items/{number}"} for number in range(300)]
    show_patch(patch, most=20)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21
    assert lines[0] == '  {"op":"remove","path":"/items/0"}'
    assert lines[-1] == "  … and 280 more; --json has them all"
    show_patch(patch[:20], most=20)
    assert len(capsys.readouterr().out.splitlines()) == 20


# -- delete and gc -----------------------------------------------------------------------------------------------------


def test_delete_and_gc(made: HomeMaker, podium: Podium) -> None:
    other = made.agent("counter/o")
    other.turn("x", {"kept": b"kept", "out.txt": b"second\n"})
    other.sleep()
    podium("fork", "counter/a@1", "b")
    podium("delete", "counter/a", code=ExitCode.USAGE)
    assert "--yes" in podium.err
    podium("delete", "counter/a", "--yes", code=ExitCode.CONFLICT)
    assert podium.err.startswith("podium: counter/a is read by its forks counter/b; detach them")
    assert podium.err.endswith("; `podium delete counter/a --detach` detaches and deletes\n")
    before = set(made.blobs.blob_ids())
    assert podium.json("gc", "--now")["dropped"] == 0
    layer = made.path / "nodes" / "n" / "layers" / Address.parse("counter/a").workspace_id
    layer.mkdir(parents=True)
    assert podium.json("delete", "counter/a", "--yes", "--detach") == {
        "agent": "counter/a",
        "events": 11,
        "detached": ["counter/b"],
    }
    assert not layer.exists()
    assert podium.json("gc", "--now", "--dry-run")["condemned"] > 0
    assert "condemned" in podium("gc")
    assert podium.json("gc", "--now")["dropped"] > 0
    left = set(Home(made.path).blobs().blob_ids())
    assert left < before
    podium("verify")
    assert podium("cat", "counter/b", "out.txt") == "first\n"
    assert podium("cat", "counter/o", "out.txt") == "second\n"
    podium("state", "counter/a", code=ExitCode.UNKNOWN_AGENT)
    with Home(made.path).service_lock():
        podium("gc", "--now", code=ExitCode.CONFLICT)
        podium("gc")
    with gateway_lock(Home(made.path)):  # whose service was killed
        podium("gc", "--now", code=ExitCode.CONFLICT)
        podium("gc")


def test_a_second_gc_now_reads_no_blobs_until_the_journal_changes(made: HomeMaker, podium: Podium) -> None:
    found = podium.json("gc", "--now")
    for pack in (made.path / "blobs" / "packs").rglob("*"):
        if pack.is_file():
            pack.write_bytes(bytes(pack.stat().st_size))
    assert podium.json("gc", "--now")["packs"] == found["packs"]
    made.agent("counter/new").sleep()
    podium("gc", "--now", code=ExitCode.DAMAGED)
