"""``podium artifacts``, ``podium artifact`` and what other commands say of artifacts, on a real home."""

from __future__ import annotations

import asyncio
import base64
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from chronicle.blobs.ident import blob_id
from coordinator.cli.exits import ExitCode
from coordinator.home import Home
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from tests.terminal import TerminalProcess
from tests.unit.coordinator.cli.cli_home import Podium

if TYPE_CHECKING:
    from podium.artifacts.artifacts import Artifact

PODIUM = Path(sys.executable).with_name("podium")
PICTURE = random.Random(2).randbytes(300_000)
NOTE = "first\n\x1b[2Jsecond ünd third"


class Painter(BaseAgent):
    """Hands out a note and a picture in its first turn, nothing afterwards."""

    class State(DeltaState):
        _entity_type = "painter"
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        if ctx.turn == 1:
            await ctx.add_artifact("note.txt", NOTE)
            await ctx.add_artifact("picture.png", PICTURE)


class Made(NamedTuple):
    """The artifacts of the home."""

    note: Artifact
    picture: Artifact


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Make a home with ``painter/a``, which has two turns and handed out two artifacts in the first."""
    home = Home(tmp_path / "home").create()

    async def made() -> Made:
        with closing(home.journal()) as store, closing(home.blobs()) as blobs:
            async with AgentHarness(Painter, "a", store=store, blobs=blobs) as agent:
                await agent.send("one")
                await agent.send("two")
                return Made(*agent.artifacts())

    return asyncio.run(made())


@pytest.fixture
def podium(tmp_path: Path, made: Made, capfd: pytest.CaptureFixture[str]) -> Podium:
    """The command on that home."""
    return Podium(tmp_path / "home", capfd)


def test_they_are_listed(podium: Podium, made: Made) -> None:
    note = made.note
    listed = podium.json("artifacts", "painter/a")
    assert [each["name"] for each in listed] == ["note.txt", "picture.png"]
    assert listed[0] == {
        "artifact_id": note.artifact_id,
        "name": "note.txt",
        "media_type": "text/plain; charset=utf-8",
        "size": len(NOTE.encode()),
        "hash": blob_id(NOTE.encode()),
        "branch": note.branch_id,
        "seq": note.seq,
        "turn": 1,
        "timestamp": note.added_ms,
        "message_id": note.message_id,
    }
    assert podium.json("artifacts", "painter/a@1") == listed
    assert podium.json("artifacts", "painter/a@0") == []
    heading, *lines = podium("artifacts", "painter/a").splitlines()
    assert heading.split() == ["ARTIFACT", "TURN", "TIME", "SIZE", "TYPE", "NAME"]
    assert lines[1].split()[0] == made.picture.artifact_id
    assert lines[1].split()[-3:] == ["300000", "image/png", "picture.png"]
    assert podium("artifacts", "painter/a@0") == ""
    assert "no artifacts" in podium.err
    podium("artifacts", "painter/a@9", code=ExitCode.UNKNOWN_MOMENT)
    podium("artifacts", "painter/nobody", code=ExitCode.UNKNOWN_AGENT)


def test_the_bytes_are_printed_as_they_are(podium: Podium, made: Made) -> None:
    for artifact, data in ((made.note, NOTE.encode()), (made.picture, PICTURE)):
        command = [str(PODIUM), "artifact", artifact.artifact_id, "--home", str(podium.home)]
        assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == data


def test_a_file_is_there_whole_or_not_at_all(podium: Podium, made: Made, tmp_path: Path) -> None:
    picture = made.picture.artifact_id
    target = tmp_path / "out.png"
    assert podium("artifact", picture, "-o", str(target)) == ""
    assert target.read_bytes() == PICTURE
    assert "image/png, 300000 bytes" in podium.err
    podium("artifact", picture, "-o", str(target), code=ExitCode.USAGE)
    assert "exists already" in podium.err
    folder = tmp_path / "folder"
    folder.mkdir()
    written = podium.json("artifact", made.note.artifact_id, "--output", str(folder))
    assert written["file"] == str(folder / "note.txt")
    assert (folder / "note.txt").read_text() == NOTE
    podium("artifact", picture, "-o", str(tmp_path / "no" / "folder"), code=ExitCode.OS_ERROR)
    home = Home(podium.home)
    for pack in sorted((home.path / "blobs").rglob("*")):
        if pack.is_file() and pack.stat().st_size > 100_000:
            data = bytearray(pack.read_bytes())
            for at in range(1000, len(data), 20_000):
                data[at] ^= 255
            pack.write_bytes(data)
    podium("artifact", picture, "-o", str(tmp_path / "damaged"), code=ExitCode.DAMAGED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "home", "out.png"]
    (verified,) = podium.json("verify", code=ExitCode.DAMAGED)["agents"]
    assert "artifact.added of turn 1" in verified["problem"]


def test_json_has_the_content(podium: Podium, made: Made) -> None:
    note = podium.json("artifact", made.note.artifact_id)
    assert (note["encoding"], note["content"], note["name"]) == ("utf-8", NOTE, "note.txt")
    picture = podium.json("artifact", made.picture.artifact_id)
    assert picture["encoding"] == "base64"
    assert base64.b64decode(picture["content"]) == PICTURE


def test_a_terminal_is_given_text_only(podium: Podium, made: Made, tmp_path: Path) -> None:
    command = [str(PODIUM), "artifact", made.note.artifact_id, "--home", str(podium.home)]
    with TerminalProcess(command, tmp_path) as terminal:
        assert terminal.wait() == ExitCode.OK
        assert terminal.raw.startswith("first\r\n[2Jsecond ünd third\r\n(control characters were left out")
    command[2] = made.picture.artifact_id
    with TerminalProcess(command, tmp_path) as terminal:
        assert terminal.wait() == ExitCode.USAGE
        assert terminal.raw.startswith(
            "podium: picture.png (image/png, 300000 bytes) is not text, so it is not shown on a terminal"
        )
        assert len(terminal.raw) < 1000


def test_what_is_not_there_has_a_code_of_its_own(podium: Podium) -> None:
    for artifact_id in ("art_" + "0" * 26, "nonsense", ""):
        assert podium("artifact", artifact_id, code=ExitCode.UNKNOWN_ARTIFACT) == ""
        assert podium.err.endswith("; `podium artifacts AGENT` lists an agent's artifacts\n")


def test_other_commands_tell_of_them(podium: Podium, made: Made, tmp_path: Path) -> None:
    picture = made.picture.artifact_id
    log = podium("log", "painter/a", "--type", "artifact.added").splitlines()
    assert log[1].endswith(f"picture.png (image/png, 300000 bytes) {picture}")
    assert (
        f"+ turn 1 agent: picture.png (image/png, 300000 bytes) {picture}" in podium("diff", "painter/a@0").splitlines()
    )
    podium("verify")
    podium("export", "painter/a", str(tmp_path / "a.podium"))
    (erased,) = podium.json("erase", "painter/a", picture, "--yes")["erased"]
    assert (erased["event_id"], erased["had_blob"]) == (picture.replace("art_", "evt_"), True)
    podium("artifact", picture, code=ExitCode.UNKNOWN_ARTIFACT)
    assert "was erased" in podium.err
    assert [each["name"] for each in podium.json("artifacts", "painter/a")] == ["note.txt"]
    podium("gc", "--now")
    podium("verify")
    podium.home = tmp_path / "other"
    podium("import", str(tmp_path / "a.podium"), "--as", "painter/b")
    assert podium.json("artifact", picture)["size"] == len(PICTURE)
