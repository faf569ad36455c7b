"""Edits of an agent's source while the agent is awake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import text_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Chat, Podium

AGENT = """
import os, time
from pathlib import Path
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from words.greeting import WORD

class Edited(BaseAgent):
    class State(DeltaState):
        _entity_type = "edited"
        count: int = 0
    idle_timeout_s = 600.0

    async def on_message(self, ctx: AgentContext, message: dict) -> None:
        ctx.state.count += 1
        gate = Path(message["text"])
        if gate.is_absolute():
            gate.with_name("begun").touch()
        while gate.is_absolute() and not gate.exists():
            time.sleep(0.05)
        await ctx.send_message(f"{os.getpid()} {WORD} first {ctx.state.count}")
"""


class Project:
    """An agent's files."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "agent.py"
        self.module = directory / "words" / "greeting.py"
        self.module.parent.mkdir()
        self.module.write_text("WORD = 'hello'\n")
        self.file.write_text(AGENT)
        self.spec = f"{self.file}:Edited"

    def edit(self, old: str, new: str) -> None:
        """Change the agent's file."""
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh one."""
    return Project(tmp_path)


def start_of(frames: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The frame that says that the agent was woken, if it was."""
    found = [frame for frame in frames if frame["type"] == "agent_start"]
    return found[0] if found else None


def said(chat: Chat, text: str = "hi") -> tuple[list[str], dict[str, Any] | None]:
    """What the agent answers, and the frame that says that it was woken for it."""
    frames = chat.say(text)
    assert frames[-1]["type"] == "turn_end", frames[-1]
    return text_of(frames).split(), start_of(frames)


def wait_for(file: Path) -> None:
    """Wait until there is a file."""
    wait_until(file.exists)


def test_the_next_message_runs_the_edited_code(served: Podium, project: Project) -> None:
    chat = served.chat(project.spec, "next")
    (pid, *words), start = said(chat)
    assert words == ["hello", "first", "1"]
    assert start is not None
    assert start["code"]["file"] == str(project.file)
    assert start["reloaded"] is False

    os.utime(project.file)
    assert said(chat) == ([pid, "hello", "first", "2"], None), "nothing changed"

    project.edit("first", "second")
    (other, *words), again = said(chat)
    assert words == ["hello", "second", "3"]
    assert other != pid
    assert again is not None
    assert again["reloaded"] is True
    assert again["code"]["stamp"] != start["code"]["stamp"]

    project.module.write_text("WORD = 'goodbye'\n")
    finished = served("run", project.spec, "--key", "next", "--message", "hi")
    assert finished.stdout.split()[1:] == ["goodbye", "second", "4"]
    assert f"edited/next runs edited code: {project.file} as it is now" in finished.stderr

    project.edit("second", "third")
    project.edit("class Edited", "class Edited(")
    chat.send("hi")
    assert chat.until("error")[-1]["error"]["type"] == "AgentFileBroken"
    assert chat.close() == ExitCode.FILE_BROKEN
    project.edit("class Edited(", "class Edited")
    finished = served("run", project.spec, "--key", "next", "--message", "hi")
    assert finished.stdout.split()[1:] == ["goodbye", "third", "6"], "the message before was kept, and handled first"
    assert "turn.failed" not in [event["type"] for event in served.lines("log", "edited/next")]
    assert served("verify").returncode == 0


def test_a_turn_ends_on_the_code_that_it_began_with(served: Podium, project: Project, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    chat, other = served.chat(project.spec, "begun"), served.chat(project.spec, "begun")
    chat.send(str(gate))  # its code blocks its process meanwhile
    wait_for(gate.with_name("begun"))
    project.edit("first", "second")
    other.send("hi")
    assert other.frame()["type"] == "accepted"
    gate.touch()
    frames = chat.until("turn_end", "error")
    assert frames[-1]["type"] == "turn_end"
    assert text_of(frames).split()[1:] == ["hello", "first", "1"]
    frames = other.until("turn_end", "error")
    assert text_of(frames).split()[1:] == ["hello", "second", "2"]
    assert [frame["reloaded"] for frame in frames if frame["type"] == "agent_start"] == [True]
    assert chat.close() == other.close() == 0
    assert "turn.failed" not in [event["type"] for event in served.lines("log", "edited/begun")]


def test_another_file_of_the_same_agent_runs_when_it_is_asked_for(served: Podium, project: Project) -> None:
    chat = served.chat(project.spec, "other")
    said(chat)
    copy = project.file.with_name("copy.py")
    copy.write_text(project.file.read_text().replace("first", "copied"))
    finished = served("run", f"{copy}:Edited", "--key", "other", "--message", "hi")
    assert finished.stdout.split()[1:] == ["hello", "copied", "2"]
    assert f"runs edited code: {copy}" in finished.stderr
    assert chat.close() == 0
