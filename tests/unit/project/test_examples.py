"""The examples as conversations: in process, through the real turn, without Ray or FUSE."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import assistant
import chat
import hello
import pytest
import reviewer

from podium.models.scripted import ScriptedProvider, script_of_file
from podium.testing.harness import AgentHarness

EXAMPLES = Path(assistant.__file__).parent
CODE = b"import re\n\n\ndef f():\n    # TODO: more\n    return re.compile('x')\n"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/__init__.py", CODE)
        archive.writestr("tiny/bad.py", "def (")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Name: tiny")
    return path


def test_hello_counts_and_remembers_over_a_kill() -> None:
    async def conversation() -> None:
        async with AgentHarness(hello.HelloAgent) as agent:
            first = await agent.send("hi")
            assert first.text == "Hello! This is message 1, and you said: hi"
            deltas = [frame["delta"] for frame in first.frames if frame["type"] == "message_update"]
            assert "".join(map(str, deltas)) == first.text
            await agent.kill()
            assert "message 2" in (await agent.send("again")).text
            assert agent.state == {"count": 2, "history": ["hi", "again"]}
            assert (agent.workspace / "notes.txt").read_text() == "1. hi\n2. again\n"
            assert not await agent.advance(hello.HelloAgent.idle_timeout_s)

    asyncio.run(conversation())


def test_chat_tells_its_model_the_conversation() -> None:
    async def conversation() -> None:
        model = ScriptedProvider(["Hello Ann!", "You are Ann."])
        async with AgentHarness(chat.ChatAgent, models={"chat": model}) as agent:
            assert (await agent.send("I am Ann")).text == "Hello Ann!"
            await agent.kill()
            assert (await agent.send("Who am I?")).text == "You are Ann."
            asked = [message.text for message in model.requests[-1]]
            assert asked == [chat.INSTRUCTIONS, "I am Ann", "Hello Ann!", "Who am I?"]

    asyncio.run(conversation())


def test_assistant_calls_tools_and_remembers_the_conversation() -> None:
    async def conversation() -> None:
        model = ScriptedProvider(script_of_file(EXAMPLES / "assistant.json"))
        async with AgentHarness(assistant.Assistant, models={"assistant": model}) as agent:
            assert (await agent.send("Buy milk")).text.startswith("I put it on your list.Done.")
            assert (agent.workspace / "shopping.txt").read_text() == "milk\n"
            await agent.kill()
            assert (await agent.send("What is on the list?")).text.startswith("Done.")
            asked = [message.text for message in model.requests[-1] if message.role in {"user", "tool"}]
            assert asked == ["Buy milk", "null", "What is on the list?", '["milk"]']

    asyncio.run(conversation())


def test_reviewer_learns_and_reports_once_a_turn(wheel: Path) -> None:
    async def conversation() -> None:
        async with AgentHarness(reviewer.ReviewerAgent) as agent:
            assert "I have no project yet" in (await agent.send("TODOs")).text
            assert "I review Python projects" in (await agent.send("")).text
            assert "I do not know how" in (await agent.send("sing")).text

            first = await agent.send(f"review {wheel}")
            assert "2 Python files of 3" in first.text
            assert "I cannot parse tiny/bad.py: line 1" in first.text
            assert {str(change["path"]) for change in first.patch} == {"/project", "/reviewed"}

            second = await agent.send("TODOs")
            assert second.text == "Left to do:\n  tiny/__init__.py:5  TODO: more\n"
            assert [change["path"] for change in second.patch] == ["/findings/TODOs"]
            assert "tiny/__init__.py:4  f, 3 lines" in (await agent.send("longest functions")).text
            assert "tiny/__init__.py:1  import re" in (await agent.send("where is re imported?")).text

            assert not await agent.advance(reviewer.ReviewerAgent.idle_timeout_s)
            report = (await agent.send("report")).text
            assert report.startswith((agent.workspace / "report.md").read_text())
            assert report.endswith("versions are kept: 4 so far)\n")
            assert [line for line in report.splitlines() if line.startswith("## ")] == [
                "## Left to do",
                "## Imports of re",
                "## Longest functions",
            ]

    asyncio.run(conversation())


def test_reviewer_keeps_its_project_when_the_next_one_is_refused(wheel: Path, tmp_path: Path) -> None:
    async def conversation() -> None:
        async with AgentHarness(reviewer.ReviewerAgent) as agent:
            await agent.send(f"review {wheel}")
            before = agent.state
            refused = await agent.send(f"review {tmp_path / 'nowhere.tar.gz'}")
            assert "I cannot review it: there is no file or directory" in refused.text
            assert refused.ok
            assert agent.state == before
            assert (agent.workspace / "project" / "tiny" / "__init__.py").read_bytes() == CODE

    asyncio.run(conversation())
