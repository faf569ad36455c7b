"""The registry of a project: types are found by processes of their own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput
from coordinator.registry.project import load_project
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.registry.resolve import resolve
from podium.errors import AgentClassNotFound, AgentFileBroken, AgentFileNotFound, NotAnAgent

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.registry.project import Project

AGENT = """
import os
from podium import BaseAgent

class {name}(BaseAgent):
    agent_type = os.environ.get("BOT_TYPE")
    async def on_message(self, ctx, message): ...
"""


def project(directory: Path, agents: list[str], rest: str = "") -> Project:
    (directory / "podium.toml").write_text(f"agents = {agents!r}\n{rest}", encoding="utf-8")
    return load_project(directory / "podium.toml")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bot.py").write_text(AGENT.format(name="Bot"), encoding="utf-8")
    package = tmp_path / "registered_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "helpers.py").write_text(AGENT.format(name="Helper"), encoding="utf-8")
    return tmp_path


def test_files_and_modules_are_relative_to_the_project(place: Path) -> None:
    registry = resolve(project(place, ["bot.py:Bot", "registered_pkg.helpers:Helper"], "[config.bot]\nmodel = 's'"))
    assert registry.types == ("bot", "helper")
    assert registry.get("bot") == RegisteredAgent("bot", str(place / "bot.py"), "Bot", {"model": "s"}, "bot.py:Bot")
    helper = registry.get("helper")
    assert helper is not None
    assert (helper.file, helper.config) == (str(place / "registered_pkg" / "helpers.py"), {})
    assert helper.source == "registered_pkg.helpers:Helper"
    assert registry.get("other") is None
    assert not {"bot", "registered_pkg"} & sys.modules.keys()


def test_a_class_is_inspected_with_the_environment_of_the_project(place: Path) -> None:
    (place / ".env").write_text("BOT_TYPE=named\n", encoding="utf-8")
    assert resolve(project(place, ["bot.py:Bot"], 'env_file = ".env"')).types == ("named",)


def test_two_classes_of_one_type_are_an_error(place: Path) -> None:
    (place / "second.py").write_text(AGENT.format(name="Bot"), encoding="utf-8")
    with pytest.raises(
        InvalidInput, match=r"agents\[1\] = 'second.py:Bot' has the type 'bot', and so has .*bot.py:Bot"
    ):
        resolve(project(place, ["bot.py:Bot", "second.py:Bot"]))


def test_a_configuration_of_no_class_is_an_error(place: Path) -> None:
    with pytest.raises(InvalidInput, match=r"config.bott: no agent class has this type; the types are bot"):
        resolve(project(place, ["bot.py:Bot"], "[config.bott]\nmodel = 's'"))


@pytest.mark.parametrize(
    ("spec", "kind", "problem"),
    [
        ("gone.py:Bot", AgentFileNotFound, "no file .*gone.py; give the path"),
        ("registered_pkg.gone:Bot", AgentFileNotFound, "no module registered_pkg.gone in "),
        ("bot.py:Gone", AgentClassNotFound, "no class Gone in .*bot.py; its agents are Bot"),
        ("broken.py:Bot", AgentFileBroken, "syntax error in .*broken.py, line 1"),
        ("bot.py:os", AgentClassNotFound, "no class os in"),
        ("no_agent.py:Plain", NotAnAgent, "class Plain in .* is not an agent"),
        ("bot.py", InvalidInput, "'bot.py' does not name an agent"),
    ],
)
def test_a_class_that_cannot_be_used_is_named_by_its_entry(
    place: Path, spec: str, kind: type[Exception], problem: str
) -> None:
    (place / "broken.py").write_text("def\n", encoding="utf-8")
    (place / "no_agent.py").write_text("class Plain: ...\n", encoding="utf-8")
    with pytest.raises(kind, match=rf"podium.toml: agents\[1\].*{problem}"):
        resolve(project(place, ["bot.py:Bot", spec]))


def test_clients_are_told_no_path_of_this_machine() -> None:
    for spec in ("", "/srv/agents/a.py:A"):
        assert RegisteredAgent("a", "/srv/agents/a.py", "A", {}, spec).source == "a.py:A"


def test_a_registry_travels_as_json() -> None:
    registry = Registry([RegisteredAgent("b", "/b.py", "B"), RegisteredAgent("a", "/a.py", "A", {"k": [1]}, "a.py:A")])
    assert [agent.agent_type for agent in registry.agents] == ["a", "b"]
    assert Registry.from_wire(registry.to_wire()) == registry
    assert Registry.from_wire([{"file": "/a.py", "class": "A", "agent_type": "a"}]).types == ("a",)


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        (None, "'agents' must be a list"),
        ([1], "must be an object with the strings file, class and agent_type"),
        ([{"file": "/a.py", "class": "A"}], "must be an object with the strings file, class and agent_type"),
        ([{"file": "/a.py", "class": "A", "agent_type": "a", "config": 1}], "'config' of an agent class must be"),
        (
            [{"file": f"/{name}.py", "class": "A", "agent_type": "a"} for name in "ab"],
            "two agent classes have the type 'a': /a.py:A and /b.py:A",
        ),
    ],
)
def test_what_is_no_registry_is_refused(wire: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Registry.from_wire(wire)
