"""Commands with ``--url``: a home behind a gateway shows what it shows on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.access.caller import Scope
from coordinator.access.key_access import KeyAccess
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.testing import ScriptedResponse, ScriptedServer
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from tests.unit.coordinator.cli.cli_gateway import gateway_over
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium, set_reminders


class Publisher(BaseAgent):
    """Publishes a note."""

    class State(DeltaState):
        pass

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.add_artifact("note.txt", "a note\n")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    agent.turn("one", {"out.txt": b"first\n", "dir/deep.bin": bytes(range(256))})
    agent.turn("two", {"out.txt": b"second\n", "gone": b"x"})
    agent.fail("bad")
    agent.turn("three", {"out.txt": b"third\n", "gone": None})
    agent.admit("waits")
    agent.sleep()
    set_reminders(maker.store, "counter/a")
    maker.agent("counter/a@1").sleep()
    yield maker
    maker.close()


@pytest.fixture
def url(made: HomeMaker) -> Iterator[str]:
    """The URL of a gateway over the home, in a thread of its own."""
    with gateway_over(made.path) as url:
        yield url


@pytest.fixture
def podium(made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(made.path, capsys)


def remotely(capsys: pytest.CaptureFixture[str], url: str, *arguments: str, code: int = ExitCode.OK) -> tuple[str, str]:
    capsys.readouterr()
    ended = main([*arguments, "--url", url])
    captured = capsys.readouterr()
    assert ended == code, captured.err
    return captured.out, captured.err


READING = [
    ("ps",),
    ("state", "counter/a"),
    ("state", "counter/a@1"),
    ("state", "counter/a@2"),
    ("log", "counter/a"),
    ("log", "counter/a", "--all"),
    ("log", "counter/a", "--type", "turn.committed"),
    ("log", "counter/a", "--after", "3", "--limit", "4"),
    ("turns", "counter/a"),
    ("inbox", "counter/a"),
    ("why", "counter/a"),
    ("reminders", "counter/a"),
    ("history", "counter/a", "out.txt"),
    ("history", "counter/a@2", "out.txt"),
    ("cat", "counter/a", "out.txt"),
    ("cat", "counter/a", "out.txt@1"),
    ("cat", "counter/a@2", "gone"),
    ("cat", "counter/a", "gone@1"),
    ("diff", "counter/a@2", "counter/a@3"),
    ("diff", "counter/a@2"),
    ("diff", "counter/a@2", "counter/a@1"),
    ("diff", "counter/a@1", "counter/a"),
    ("fold", "counter/a", "--dry-run"),
    ("fold", "counter/a", "--keep-turns", "1", "--dry-run"),
    ("rewind", "counter/a", "1", "--dry-run"),
    ("verify", "counter/a"),
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_remote_home_shows_what_the_home_itself_does(
    arguments: tuple[str, ...], podium: Podium, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local = podium(*arguments)
    remote, err = remotely(capsys, url, *arguments)
    assert _without_ages(remote) == _without_ages(local)
    if arguments[0] != "ps":  # which says whether the service runs
        assert err == podium.err


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_json_of_a_remote_home_has_the_same_keys_and_values(
    arguments: tuple[str, ...], podium: Podium, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local = [json.loads(line) for line in podium(*arguments, "--json").splitlines()]
    remote = [json.loads(line) for line in remotely(capsys, url, *arguments, "--json")[0].splitlines()]
    if arguments[0] == "ps":
        local[0] |= {"home": url, "service": True}
    assert remote == local != []


def _without_ages(text: str) -> str:
    return re.sub(r"\(\d+ \w+( ago)?\)|\d+ \w+ ago", "", text)


def test_an_unknown_agent_and_turn_have_the_codes_of_a_local_home(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = remotely(capsys, url, "state", "counter/none", code=ExitCode.UNKNOWN_AGENT)
    assert "counter/none" in err
    remotely(capsys, url, "state", "counter/a@99", code=ExitCode.UNKNOWN_MOMENT)
    remotely(capsys, url, "state", "counter/a@-1", code=ExitCode.UNKNOWN_MOMENT)
    remotely(capsys, url, "state", "nowhere", code=ExitCode.UNKNOWN_AGENT)
    remotely(capsys, url, "send", "nowhere", "hi", code=ExitCode.INVALID_ADDRESS)


def test_a_gateway_that_is_not_there_and_a_url_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    _, err = remotely(capsys, f"http://127.0.0.1:{port}", "ps", code=ExitCode.UNAVAILABLE)
    assert "is the server up?" in err
    remotely(capsys, "127.0.0.1:8700", "ps", code=ExitCode.USAGE)


@pytest.mark.parametrize(
    ("status", "type_", "code", "ended"),
    [
        (401, "authentication_error", "not_authenticated", ExitCode.ACCESS_REFUSED),
        (403, "permission_error", "not_permitted", ExitCode.ACCESS_REFUSED),
        (404, "not_found_error", "unknown_agent", ExitCode.UNKNOWN_AGENT),
        (409, "conflict_error", "agent_exists", ExitCode.AGENT_EXISTS),
        (429, "rate_limit_error", "rate_limited", ExitCode.CONFLICT),
        (500, "api_error", "internal_error", ExitCode.UNAVAILABLE),
    ],
)
async def test_errors_of_a_gateway_have_exit_codes(
    status: int, type_: str, code: str, ended: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"error": {"message": "it was refused", "type": type_, "code": code, "param": None}}
    async with ScriptedServer(lambda _: ScriptedResponse.json(error, status)) as server:
        _, err = await asyncio.to_thread(remotely, capsys, server.url, "fork", "counter/a", "b", code=ended)
    assert "it was refused" in err


def test_the_variable_names_the_server_and_home_overrides_it(
    podium: Podium, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_URL", url)
    capsys.readouterr()
    assert main(["ps", "--json"]) == ExitCode.OK
    assert url in capsys.readouterr().out
    assert url not in podium("ps", "--json")
    assert main(["ps", "--url", url, "--home", str(podium.home)]) == ExitCode.USAGE
    assert "not both" in capsys.readouterr().err


def test_addresses_of_agents_are_completed_from_the_home_and_from_a_server(
    made: HomeMaker, url: str, tmp_path: Path
) -> None:
    def complete(*words: str) -> list[str]:
        asked = {"_PODIUM_COMPLETE": "complete_bash"}
        found = subprocess.run(
            [str(Path(sys.executable).with_name("podium"))],
            env={**os.environ, **asked, "COMP_WORDS": " ".join(("podium", *words)), "COMP_CWORD": str(len(words))},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            cwd=tmp_path,
        )
        return found.stdout.split()

    assert complete("sta") == ["state"]
    assert complete("state", "--home", str(made.path), "counter/") == ["counter/a", "counter/a@1"]
    assert complete("state", "--url", url, "counter/a@") == ["counter/a@1"]
    assert complete("state", "--home", str(tmp_path / "none"), "c") == []


def test_an_agent_is_exported_imported_folded_and_erased(
    podium: Podium, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, local = tmp_path / "remote.podium", tmp_path / "local.podium"
    exported = json.loads(remotely(capsys, url, "export", "counter/a", str(file), "--json")[0])
    assert exported == {**json.loads(podium("export", "counter/a", str(local), "--json")), "file": str(file)}
    remotely(capsys, url, "export", "counter/a", str(file), code=ExitCode.USAGE)
    imported = json.loads(remotely(capsys, url, "import", str(file), "--as", "counter/copy", "--json")[0])
    of_fork = {name: imported[name] for name in ("branch", "version", "hash")}
    same = {name: exported[name] for name in ("turn", "events")}
    assert imported == {"agent": "counter/copy", "exported_as": "counter/a", "new_blobs": 0, **same, **of_fork}
    assert podium("state", "counter/copy") == podium("state", "counter/a")
    remotely(capsys, url, "import", str(file), "--as", "counter/copy", code=ExitCode.AGENT_EXISTS)
    file.write_bytes(b"no archive")
    remotely(capsys, url, "import", str(file), code=ExitCode.DAMAGED)

    events = [json.loads(line) for line in podium("log", "counter/copy", "--json").splitlines()]
    (said,) = [event["event_id"] for event in events if event["type"] == "user_message" and event["turn"] == 3]
    remotely(capsys, url, "erase", "counter/copy", said, code=ExitCode.USAGE)
    refused = remotely(capsys, url, "erase", "counter/copy", said, "--yes", code=ExitCode.USAGE)
    assert "belongs to another agent" in refused[1]
    out, _ = remotely(capsys, url, "erase", "counter/a", said, "--yes", "--json")
    (erased,) = json.loads(out)["erased"]
    assert erased == {"event_id": said, "type": "user_message", "turn": 3, "had_blob": False}


def test_an_artifact_is_read_by_its_id(
    made: HomeMaker, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def publish() -> str:
        async with AgentHarness(Publisher, "a", store=made.store, blobs=made.blobs) as agent:
            assert (await agent.send("go")).ok
            (artifact,) = agent.artifacts()
            return artifact.artifact_id

    artifact_id = asyncio.run(publish())
    assert remotely(capsys, url, "artifact", artifact_id)[0] == "a note\n"
    described = json.loads(remotely(capsys, url, "artifact", artifact_id, "--json")[0])
    local = Podium(made.path, capsys)
    assert described == json.loads(local("artifact", artifact_id, "--json"))
    remotely(capsys, url, "artifact", artifact_id, "-o", str(tmp_path))
    assert (tmp_path / "note.txt").read_bytes() == b"a note\n"
    remotely(capsys, url, "artifact", artifact_id[:-4] + "0000", code=ExitCode.UNKNOWN_ARTIFACT)


@pytest.fixture
def keyed(made: HomeMaker, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a gateway over the home that uses keys, and a key that may deploy and nothing else."""
    (tmp_path / "keys").mkdir()
    keys = SqliteKeyRecords(tmp_path / "keys", "home1")
    key = keys.create("ci", "default", [Scope.DEPLOY], 1)[1]
    with gateway_over(made.path, KeyAccess(keys, made.clock)) as url:
        yield url, key
    keys.close()


def test_code_is_deployed_through_a_gateway_as_at_the_home_itself(
    podium: Podium, keyed: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, key = keyed
    project = tmp_path / "project"
    project.mkdir()
    (project / "podium.toml").write_text('agents = ["agent.py:Greeter"]\n')
    agent = "from podium import BaseAgent\n\nclass Greeter(BaseAgent):\n    async def on_message(self, ctx, message):\n"
    file = ("--project", str(project / "podium.toml"))

    def at_url(*arguments: str, code: int = ExitCode.OK) -> Any:
        out, err = remotely(capsys, url, *arguments, "--key", key, "--json", code=code)
        return json.loads(out) if out else err

    (project / "agent.py").write_text(f"{agent}        ...\n")
    first = at_url("deploy", *file)
    local = podium.json("deploy", *file)
    assert local == first, "the same code is the same bundle, and the current deploy stays"
    assert (first["number"], first["service"], first["reloaded"]) == (1, False, [])
    (project / "agent.py").write_text(f"{agent}        pass\n")
    second = podium.json("deploy", *file)
    back = at_url("deploy", "--previous")
    assert (back["number"], back["bundle"]) == (3, first["bundle"])
    assert at_url("deploy", "--withdraw")["bundle"] is None
    assert at_url("deploys") == podium.json("deploys")
    listed = at_url("deploys")["deploys"]
    assert [each["bundle"] for each in listed] == [first["bundle"], second["bundle"], first["bundle"], None]
    assert len({each["by"] for each in listed}) == 2, "the key, and the user of this machine"

    _, err = remotely(capsys, url, "ps", "--key", key, code=ExitCode.ACCESS_REFUSED)
    assert "the scope read" in err
    (project / "agent.py").write_text("import gone\n")
    assert "No module named 'gone'" in at_url("deploy", *file, code=ExitCode.FILE_BROKEN)


def test_a_gateway_without_keys_takes_no_code(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("deploys",), ("deploy", "--previous"), ("deploy", "--withdraw")):
        _, err = remotely(capsys, url, *arguments, code=ExitCode.ACCESS_REFUSED)
        assert "uses no keys, and so takes no code" in err
