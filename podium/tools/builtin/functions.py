"""The functions of the built-in tools."""

from __future__ import annotations

import os
import re
import stat
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from podium.sandbox.trees import opened
from podium.tools.builtin.secrets import PathRefused, allowed_path
from podium.tools.declaring import declared, tool
from podium.tools.files.shell_tool import result_of_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from chronicle.canonical import Json
    from podium.tools.router import ToolRouter

__all__ = ["BUILTINS", "add_builtins"]

_MAX_BYTES: Final = 4 * 1024 * 1024
"""Of a file that is read or written."""
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class AgentRefused(Exception):
    """A tool may not ask an agent."""


@tool(mode="read")
def read_file(ctx: Any, path: str) -> str:
    """Reads a text file of the workspace.

    Args:
        path: relative to the workspace.
    """
    with os.fdopen(_opened(ctx.workspace, path, os.O_RDONLY), "rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise PathRefused(f"{path} has more than {_MAX_BYTES} bytes")
    return data.decode("utf-8", "replace")


@tool(mode="write")
def write_file(ctx: Any, path: str, content: str) -> str:
    """Writes a text file of the workspace, and replaces one that is there.

    Args:
        path: relative to the workspace; directories are made as needed.
        content: all of its text.
    """
    return _written(ctx.workspace, path, content)


@tool(mode="safe_write")
def write_memory(ctx: Any, key: str, content: str) -> str:
    """Remembers a text under a key, in place of what was there: the file memory/KEY.md of the workspace.

    Args:
        key: up to 100 letters, digits, - and _.
        content: what to remember.
    """
    if _KEY.fullmatch(key) is None:
        raise PathRefused(f"{key!r} is no key: take up to 100 letters, digits, - and _")
    return _written(ctx.workspace, f"memory/{key}.md", content)


@tool(mode="local", timeout_s=600.0)
async def execute_shell_command(ctx: Any, command: str) -> Json:
    """Runs a command of the shell in the workspace, in a sandbox.

    Args:
        command: a script of /bin/sh.
    """
    return result_of_command(await ctx.run(["/bin/sh", "-c", command]))


BUILTINS: Final[tuple[Callable[..., Any], ...]] = (read_file, write_file, write_memory, execute_shell_command)
"""The functions, by whose names a router has them; `sub_agents` makes another one."""


def sub_agents(agents: Sequence[str]) -> Callable[..., Any]:
    """Return the tool that asks other agents.

    Args:
        agents: patterns of the addresses that it may ask, such as ``researcher/*``.
    """

    @tool(mode="external", steps=True)
    async def spawn_sub_agent(ctx: Any, agent: str, task: str) -> Json:
        """Gives a task to another agent, and waits for its answer.

        Args:
            agent: its address, TYPE/KEY; a new key makes a new agent.
            task: what it is to do.
        """
        if not any(fnmatchcase(agent, pattern) for pattern in agents):
            raise AgentRefused(f"{agent} is none of the agents that this tool may ask: {', '.join(agents)}")
        answer = await ctx.ask(agent, {"text": task})
        return answer.text if answer.data is None else {"text": answer.text, "data": answer.data}

    return spawn_sub_agent


def add_builtins(router: ToolRouter, *names: str, agents: Sequence[str] = ()) -> None:
    """Add built-in tools to a router.

    Args:
        names: of those that are added; by default all.
        agents: patterns of the addresses that ``spawn_sub_agent`` may ask, such as ``researcher/*``. Without one there
            is no such tool.

    Raises:
        ValueError: there is no built-in tool of that name, or ``agents`` is one text.
        InvalidTool: the router has a tool of that name already; the message has both places.
    """
    if isinstance(agents, str):  # whose characters would be patterns
        raise ValueError(f"agents is a list of patterns: give ({agents!r},)")  # noqa: TRY004
    functions = (*BUILTINS, sub_agents(agents)) if agents else BUILTINS
    known = {function.__name__: function for function in functions}
    if unknown := set(names) - known.keys():
        needs = "; spawn_sub_agent needs agents=(…)" if "spawn_sub_agent" in unknown else ""
        raise ValueError(f"there is no built-in tool {min(unknown)!r}; they are {', '.join(known)}{needs}")
    for name in names or known:
        made = declared(known[name])
        assert made is not None, "it is decorated"
        router.add(made)


def _written(root: Path, path: str, content: str) -> str:
    data = content.encode()
    if len(data) > _MAX_BYTES:
        raise PathRefused(f"the content has more than {_MAX_BYTES} bytes")
    with os.fdopen(_opened(root, path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.truncate()
        file.write(data)
    return f"wrote {len(data)} bytes to {path}"


def _opened(root: Path, path: str, flags: int) -> int:
    """Open a regular file that tools may use, and nothing that would block.

    A command may put a link in the place of a directory meanwhile, so each is opened within the one before it. A file
    with several names may have one that tools do not use.
    """
    writes = bool(flags & os.O_CREAT)
    real_root = root.resolve()
    *directories, name = allowed_path(root, path, writes=writes).relative_to(real_root).parts or (".",)
    with ExitStack() as entered:
        at = entered.enter_context(opened(str(real_root)))
        for each in directories:
            if writes:
                with suppress(FileExistsError):
                    os.mkdir(each, dir_fd=at)
            at = entered.enter_context(opened(each, at))
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=at)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    has_names = stat.S_ISREG(found.st_mode)
    raise PathRefused(f"{path} has more than one name (hard links)" if has_names else f"{path} is no file")
