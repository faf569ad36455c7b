"""Directories of tools: YAML and Python, and the places of mistakes (S2.45–S2.49)."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from podium.agent import BaseAgent
from podium.errors import InvalidTool
from podium.testing import AgentHarness
from podium.tools import ToolCall, ToolResult, ToolRouter
from podium.tools.files import load_tools

NOTIFY = """\
name: notify
description: Tells the team.
parameters:
  type: object
  properties:
    message: {type: string}
  required: [message]
implementation:
  kind: shell
  command_template: "echo 'To ${env.TEAM}: ${args.message}'"
"""
"""A tool as the scaffolds of zymi have it, with the argument in quotes."""


def _loaded(directory: Path, **files: str) -> ToolRouter:
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)
    router = ToolRouter()
    load_tools(directory, router, {"TEAM": "all"})
    return router


def test_s2_45_tools_are_files_of_yaml_and_of_python(tmp_path: Path) -> None:
    source = """\
from podium.tools import tool


@tool(mode="read", no_resume=True)
def double(number: int) -> int:
    "Doubles."
    return 2 * number


def helper() -> None: ...
"""
    router = _loaded(
        tmp_path, notify__yml=NOTIFY + "no_resume: true\n", sums__py=source, _hidden__py="1 / 0", note__txt=""
    )
    assert list(router.tools) == ["notify", "double"]
    assert router.tools["notify"].place == f"{tmp_path}/notify.yml:1:7"
    assert router.tools["double"].place == f"{tmp_path}/sums.py:4"
    assert [each.no_resume for each in router.tools.values()] == [True, True]
    assert [each.mode for each in router.tools.values()] == ["local", "read"]
    assert router.definitions[0]["parameters"] == {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["message"],
    }
    assert asyncio.run(router.dispatch(ToolCall("c", "double", {"number": 4}))).data["value"] == 8


async def test_s2_47_a_command_runs_in_the_sandbox_and_its_argument_is_a_value(tmp_path: Path) -> None:
    fails = NOTIFY.replace("notify", "fails").replace("echo 'To", "echo told; echo why >&2; exit 3; echo 'To")
    router = _loaded(tmp_path, notify__yml=NOTIFY, fails__yml=fails)

    class Notifier(BaseAgent):
        results: list[ToolResult] = []

        async def on_message(self, ctx: Any, message: Any) -> None:
            for name in ("notify", "fails"):
                call = ToolCall(name, name, {"message": message["text"]})
                self.results.append(await ctx.tools(router).dispatch(call, consent_granted=True))

    async with AgentHarness(Notifier) as agent:
        said = "hi'; touch PWNED; echo '$(touch PWNED)"
        assert (await agent.send(said)).ok
        told, failed = Notifier.results
        assert told.message == f"To all: {said}\n"
        assert not (agent.workspace / "PWNED").exists()
        assert failed.error == "CommandFailed: exit status 3\nwhy\n\ntold\n"


def test_arguments_are_checked_against_the_schema_of_the_file(tmp_path: Path) -> None:
    http = NOTIFY.partition("implementation")[0] + (
        "implementation: {kind: http, method: POST, url: 'http://127.0.0.1:9/${args.message}'}\n"
    )
    router = _loaded(tmp_path, notify__yaml=http)
    result = asyncio.run(router.dispatch(ToolCall("c", "notify", {"message": 7})))
    assert "/message" in (result.error or "")
    result = asyncio.run(router.dispatch(ToolCall("c", "notify", {"message": ".."})))
    assert "cannot be a part of the path" in (result.error or "")


def test_s2_48_a_file_may_ask_for_approval(tmp_path: Path) -> None:
    router = _loaded(tmp_path, notify__yml=NOTIFY + "requires_approval: true\n")
    assert router.definitions[0]["requires_approval"] is True
    call = ToolCall("c", "notify", {"message": "x"})
    assert asyncio.run(router.dispatch(call, consent_granted=True)).data == {"refused": "approval"}


def test_s2_49_two_tools_of_a_name_are_an_error_with_both_places(tmp_path: Path) -> None:
    with pytest.raises(InvalidTool) as raised:
        _loaded(tmp_path, a__yml=NOTIFY, b__yml=NOTIFY)
    assert f"{tmp_path}/a.yml:1:7" in str(raised.value)
    assert f"{tmp_path}/b.yml:1:7" in str(raised.value)


@pytest.mark.parametrize(
    ("was", "becomes", "line", "told"),
    [
        ("name: notify", "nam: notify", 1, "nam: extra inputs are not permitted"),
        ("name: notify", "name: [notify]", 1, "name: input should be a valid string"),
        ("name: notify", "name: a b", 1, "cannot name a tool"),
        ("name: notify", "name: notify\nname: other", 2, "name is there twice"),
        ("description: Tells the team.", "description: 2026-01-02", 2, "a date, which JSON cannot hold"),
        ("description: Tells the team.", "description: {", 4, "expected"),
        ("kind: shell", "kind: php", 9, "php"),
        ("  type: object", "  type: text", 4, "cannot be used"),
        ("  type: object", "  type: array", 4, "type: object"),
        ("echo '", "eval '", 10, "eval would read ${args.message} as code (line 1, column 23 of the text)"),
        ("${args.message}", "${args.massage}", 10, "none of the parameters, which are message"),
        ("${env.TEAM}", "${env.NOBODY}", 10, "there is no variable NOBODY"),
        ("required: [message]", "required: &a [message]\n  x: *a", 7, "an alias"),
        ("  kind: shell", "  kind: shell\n  timeout_secs: 0", 10, "timeout_secs"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_column(
    tmp_path: Path, was: str, becomes: str, line: int, told: str
) -> None:
    text = NOTIFY.replace(was, becomes)
    assert text != NOTIFY
    with pytest.raises(InvalidTool) as raised:
        _loaded(tmp_path, notify__yml=text)
    assert told in str(raised.value)
    place = re.match(rf"{re.escape(str(tmp_path))}/notify\.yml:(\d+):(\d+)", str(raised.value))
    assert place is not None, str(raised.value)
    assert int(place[1]) == line


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def f(:\n", ":1:"),
        ("\n1 / 0\n", ":2: importing it raised ZeroDivisionError"),
        ("raise SystemExit(3)\n", ":1: importing it raised SystemExit"),
        ("from podium.tools import tool\n\n@tool\ndef f(x): ...\n", ":3: tool f: x has no annotation"),
    ],
)
def test_a_file_of_python_that_does_not_import_is_told(tmp_path: Path, source: str, told: str) -> None:
    with pytest.raises(InvalidTool, match=re.escape(f"{tmp_path}/bad.py{told}")):
        _loaded(tmp_path, bad__py=source)


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidTool, match="no such directory"):
        load_tools(tmp_path / "none", ToolRouter())
