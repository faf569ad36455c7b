"""The files of a new project: an agent, its test, and what they need to run."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ProjectName", "project_files"]

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
_MAX_CHARACTERS: Final = 64
"""Characters of an agent's type."""
_USED: Final = frozenset({"BaseAgent", "AgentContext", "DeltaState", "State", "Any", "Path"})
"""Names that the agent's file uses for other things."""

_PODIUM_TOML: Final = """\
# The agent classes of this project; podium up serves them.
agents = ["agent.py:$class_name"]

# Variables for the agents' code, such as API keys; git ignores this file.
# env_file = ".env"

# The configuration of the agents of type $agent_type: ctx.config
[config.$agent_type]
greeting = "Hello"
"""

_AGENT: Final = '''\
"""The agent $agent_type: it answers each message, counts them, and keeps the last ones in a file."""

from __future__ import annotations

from typing import Any

from podium import AgentContext, BaseAgent, DeltaState


class $class_name(BaseAgent):
    """Greets the sender of each message, and remembers what was said."""

    agent_type = "$agent_type"

    class State(DeltaState):
        _version = 1

        count: int = 0
        said: list[str] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        text = str(message.get("text", ""))
        # State and files are committed when this returns, with the reply, or not at all.
        ctx.state.count += 1
        ctx.state.said.append(text)
        (ctx.workspace / "said.txt").write_text("\\n".join(ctx.state.said) + "\\n", encoding="utf-8")

        reply = await ctx.send_message(f"{ctx.get_config('greeting', 'Hi')}! ")
        await reply.stream_token(f"That was message {ctx.state.count}: {text}", final=True)
        ctx.reply({"count": ctx.state.count})
'''

_TEST: Final = '''\
"""The agent in this process, by the turn code of production: no service, no network."""

from __future__ import annotations

import asyncio

from agent import $class_name
from podium.testing import AgentHarness


def test_it_greets_and_counts() -> None:
    async def talk() -> None:
        async with AgentHarness($class_name, config={"greeting": "Good day"}) as agent:
            answer = await agent.send("first")
            assert answer.text == "Good day! That was message 1: first"
            assert answer.data == {"count": 1}

    asyncio.run(talk())


def test_it_remembers_after_a_crash() -> None:
    async def talk() -> None:
        async with AgentHarness($class_name) as agent:
            await agent.send("first")
            await agent.kill()
            assert (await agent.send("second")).data == {"count": 2}
            assert agent.state["said"] == ["first", "second"]
            assert (agent.workspace / "said.txt").read_text(encoding="utf-8") == "first\\nsecond\\n"

    asyncio.run(talk())
'''

_PYPROJECT: Final = """\
[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["podium"] # not on PyPI: install it from its repository first

[dependency-groups]
dev = ["pytest"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

_README: Final = """\
# $name

An agent of podium: `agent.py` is its code, `podium.toml` names it and has its configuration.

| command | does |
|---|---|
| `podium run agent.py:$class_name` | chats with it from this terminal |
| `podium up` | serves it over HTTP on http://127.0.0.1:8700 |
| `pytest` | runs its tests |
| `podium log $agent_type/default` | shows all that happened to it |

`podium reload` has a running service use edited code and an edited `podium.toml`. Agents and their files are kept in
`.podium`.
"""

_GITIGNORE: Final = """\
.podium/
.env
.venv/
__pycache__/
.pytest_cache/
"""

_FILES: Final[Mapping[str, str]] = {
    "podium.toml": _PODIUM_TOML,
    "agent.py": _AGENT,
    "tests/test_agent.py": _TEST,
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    ".gitignore": _GITIGNORE,
}


@dataclass(frozen=True, slots=True)
class ProjectName:
    """A project's name, and those of its agent.

    Raises:
        InvalidInput: it cannot be used; the message tells why.
    """

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > _MAX_CHARACTERS:
            raise InvalidInput(
                f"{self.name!r} cannot be the name of a project: take 1 to {_MAX_CHARACTERS} letters, digits, '-' or "
                "'_', starting with a letter, such as my-agent"
            )
        if keyword.iskeyword(self.class_name) or self.class_name in _USED:
            raise InvalidInput(
                f"{self.name!r} cannot be the name of a project: its agent's class would be {self.class_name}, which "
                f"has another meaning; take another name, such as {self.name}-agent"
            )

    @property
    def class_name(self) -> str:
        """The class of its agent: ``my-agent`` gives ``MyAgent``."""
        return "".join(part[0].upper() + part[1:] for part in re.split("[-_]", self.name))

    @property
    def agent_type(self) -> str:
        """The type of its agent: ``my-agent`` gives ``my_agent``."""
        return self.name.replace("-", "_").lower()


def project_files(name: ProjectName) -> dict[str, str]:
    """Return the content of each file of a new project, by its path."""
    names = {"name": name.name, "class_name": name.class_name, "agent_type": name.agent_type}
    return {path: Template(text).substitute(names) for path, text in _FILES.items()}
