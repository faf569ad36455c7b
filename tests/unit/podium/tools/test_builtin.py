"""Built-in tools: what they do, and what they neither read nor write (S2.49)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from podium.agent import BaseAgent
from podium.errors import InvalidTool
from podium.testing import AgentHarness
from podium.tools import ToolCall, ToolResult, ToolRouter
from podium.tools.builtin import BUILTINS, add_builtins, functions
from podium.tools.builtin.secrets import PathRefused, allowed_path
from podium.tools.files import load_tools

SECRETS = [
    *(".env", ".ENV", "a/.env.local", ".ssh/config", "x/.aws/credentials", "server.pem", "tls/Server.KEY", "id_rsa"),
    *("id_ed25519.pub", ".netrc", ".npmrc", ".git-credentials", "credentials.json", ".kube/config", "a.env/x"),
    *(".git/config", "sub/.git/config", ".config/gh/hosts.yml", ".vault-token", "terraform.tfstate", ".s3cfg", ".boto"),
    *(".bash_history", ".env~", "prod.env.bak", "client_secret_1.json", "prod.env.local", "id_rsa~", "key.pem.bak"),
]
OUTSIDE = ["../x", "/etc/passwd", "a/../../x", "", "a\0b", "~/../../x"]


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize("writes", [False, True])
def test_secrets_are_neither_read_nor_written(tmp_path: Path, path: str, writes: bool) -> None:
    with pytest.raises(PathRefused, match="may hold secrets"):
        allowed_path(tmp_path, path, writes=writes)


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("writes", [False, True])
def test_nothing_outside_of_the_workspace_is_read_or_written(tmp_path: Path, path: str, writes: bool) -> None:
    with pytest.raises(PathRefused):
        allowed_path(tmp_path, path, writes=writes)


RUN = [
    *(".git/HEAD", ".git/hooks/pre-commit", "sub/.git/index", ".bashrc", ".profile", ".husky/pre-commit", ".gitconfig"),
    *(".gitmodules", ".vscode/tasks.json", ".zlogin", ".bash_aliases", ".vimrc", ".mise.toml"),
    *(".pre-commit-config.yaml", "a/.BASHRC"),
]


@pytest.mark.parametrize("path", RUN)
def test_what_others_run_is_not_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(PathRefused, match="run by others"):
        allowed_path(tmp_path, path, writes=True)
    assert allowed_path(tmp_path, path, writes=False) == tmp_path / path


def test_symbolic_links_are_followed_before_a_path_is_judged(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    (other / "x").write_text("secret")
    (root / ".env").write_text("KEY=1")
    (root / "plain").symlink_to(".env")
    (root / "out").symlink_to(other)
    (root / "loop").symlink_to("loop")
    (root / "fine").symlink_to("notes.txt")
    for path in ("plain", "out/x", "out/new"):
        for writes in (False, True):
            with pytest.raises(PathRefused):
                allowed_path(root, path, writes=writes)
    assert allowed_path(root, "fine", writes=True) == root / "notes.txt"
    assert allowed_path(root, str(root / "notes.txt"), writes=True) == root / "notes.txt"
    assert allowed_path(root, ".env.example", writes=False) == root / ".env.example"
    (tmp_path / "linked").symlink_to(root)
    assert allowed_path(tmp_path / "linked", str(tmp_path / "linked" / "notes.txt"), writes=False) == root / "notes.txt"


async def test_a_link_that_takes_a_directorys_place_leads_nowhere(tmp_path: Path, monkeypatch: Any) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")

    def allowed_then_swapped(root: Path, path: str, *, writes: bool) -> Path:
        found = allowed_path(root, path, writes=writes)
        (root / "d").rename(root / "was")
        (root / "d").symlink_to(outside)
        return found

    def before(root: Path) -> None:
        (root / "d").mkdir()
        (root / "d" / "file").write_text("plain")

    monkeypatch.setattr(functions, "allowed_path", allowed_then_swapped)
    for call in [
        ("read_file", {"path": "d/file"}),
        ("write_file", {"path": "d/file", "content": "evil"}),
        ("write_file", {"path": "d/made/file", "content": "evil"}),
    ]:
        (result,), _ = await _results([call], before)
        assert "NotADirectoryError" in (result.error or ""), result
    assert [each.name for each in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "secret"


async def test_a_file_with_another_name_is_neither_read_nor_written() -> None:
    def before(root: Path) -> None:
        for name, linked in ((".env", "plain.txt"), (".bashrc", "notes.txt")):
            (root / name).write_text("secret")
            (root / linked).hardlink_to(root / name)

    calls: list[tuple[str, dict[str, Any]]] = [("read_file", {"path": "plain.txt"})]
    calls.append(("write_file", {"path": "notes.txt", "content": "evil"}))
    (*refused, shown), _ = await _results([*calls, ("execute_shell_command", {"command": "cat .bashrc"})], before)
    assert all("more than one name" in (result.error or "") for result in refused), refused
    assert shown.message == "secret"


async def _results(
    calls: list[tuple[str, dict[str, Any]]], before: Any = lambda root: None
) -> tuple[list[ToolResult], AgentHarness]:
    router = ToolRouter()
    add_builtins(router)
    results: list[ToolResult] = []

    class Acting(BaseAgent):
        async def on_message(self, ctx: Any, message: Any) -> None:
            before(ctx.workspace)
            asked = [ToolCall(str(number), name, arguments) for number, (name, arguments) in enumerate(calls)]
            results.extend(await ctx.tools(router).dispatch_all(asked, consent_granted=True))

    agent = AgentHarness(Acting)
    async with agent:
        assert (await agent.send("go")).ok
    return results, agent


async def test_files_memory_and_commands() -> None:
    def before(root: Path) -> None:
        os.mkfifo(root / "pipe")

    results, _ = await _results(
        [
            ("write_file", {"path": "a/note.txt", "content": "long text"}),
            ("write_file", {"path": "a/note.txt", "content": "tea"}),
            ("read_file", {"path": "a/note.txt"}),
            ("write_memory", {"key": "likes", "content": "tea"}),
            ("execute_shell_command", {"command": "cat memory/likes.md a/note.txt"}),
            ("execute_shell_command", {"command": "exit 4"}),
            ("read_file", {"path": "pipe"}),
            ("read_file", {"path": "nothing"}),
            ("read_file", {"path": ".env"}),
            ("write_memory", {"key": "../x", "content": ""}),
        ],
        before,
    )
    assert [result.success for result in results] == [True] * 5 + [False] * 5
    assert results[2].message == "tea"
    assert results[4].message == "teatea"
    assert results[5].error == "CommandFailed: exit status 4"
    assert "is no file" in (results[6].error or "")
    assert "FileNotFoundError" in (results[7].error or "")
    assert "may hold secrets" in (results[8].error or "")


async def test_a_task_is_given_to_another_agent_once() -> None:
    handled: list[str] = []

    class Helper(BaseAgent):
        async def on_message(self, ctx: Any, message: Any) -> None:
            handled.append(message["text"])
            await ctx.send_message(f"did {message['text']}")

    router, results = ToolRouter(), list[ToolResult]()
    add_builtins(router, "spawn_sub_agent", agents=("helper/*",))

    class Asking(BaseAgent):
        async def on_message(self, ctx: Any, message: Any) -> None:
            call = ToolCall("c", "spawn_sub_agent", {"agent": "helper/h", "task": "tea"})
            results.append(await ctx.tools(router).dispatch(call))
            if len(results) == 1:
                raise OSError("the attempt ends here")

    async with (
        AgentHarness(Helper, "h") as helper,
        AgentHarness(Asking, store=helper.store, blobs=helper.blobs, clock=helper.clock) as agent,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(agent.send("go"))
        while not await helper.receive():
            await asyncio.sleep(0)
    assert handled == ["tea"]
    assert [result.message for result in results] == ["did tea", "did tea"]


async def test_an_agent_that_is_not_listed_gets_no_task() -> None:
    router, results = ToolRouter(), list[ToolResult]()
    add_builtins(router, agents=("helper/*", "other/one"))

    class Asking(BaseAgent):
        async def on_message(self, ctx: Any, message: Any) -> None:
            for agent in ("admin/helper/h", "other/two", "asking/test"):
                call = ToolCall(agent, "spawn_sub_agent", {"agent": agent, "task": "tea"})
                results.append(await ctx.tools(router).dispatch(call))

    async with AgentHarness(Asking) as agent:
        assert (await agent.send("go")).ok
    assert ["may ask: helper/*, other/one" in (result.error or "") for result in results] == [True] * 3


def test_other_agents_are_asked_only_if_they_are_listed() -> None:
    router = ToolRouter()
    add_builtins(router)
    assert "spawn_sub_agent" not in router.tools
    with pytest.raises(ValueError, match="spawn_sub_agent needs agents"):
        add_builtins(ToolRouter(), "spawn_sub_agent")
    with pytest.raises(ValueError, match="is a list of patterns"):
        add_builtins(ToolRouter(), agents="helper/*")


def test_s2_49_a_tool_of_a_file_cannot_take_the_name_of_a_built_in_one(tmp_path: Path) -> None:
    router = ToolRouter()
    add_builtins(router)
    assert list(router.tools) == [function.__name__ for function in BUILTINS]
    (tmp_path / "mine.py").write_text(
        "from podium.tools import tool\n\n\n@tool\ndef read_file(path: str) -> None: ...\n"
    )
    with pytest.raises(InvalidTool) as raised:
        load_tools(tmp_path, router)
    assert f"{tmp_path}/mine.py:4" in str(raised.value)
    assert router.tools["read_file"].place in str(raised.value)
    with pytest.raises(ValueError, match="there is no built-in tool 'web'"):
        add_builtins(ToolRouter(), "web")
