"""A project's code as a bundle, and the registry of the bundle that is current."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import InvalidInput
from chronicle.journal.memory import MemoryJournalStore
from coordinator.registry.deploying import deployed_registry, pack_project
from coordinator.registry.project import load_project
from coordinator.registry.registry import RegisteredAgent, Registry
from podium.code.deploys import make_deploy
from podium.errors import AgentClassNotFound

if TYPE_CHECKING:
    from pathlib import Path

    from podium.code.manifest import Manifest

AGENT = """
from podium import BaseAgent
{imports}

class {name}(BaseAgent):
    async def on_message(self, ctx, message):
        {lazy}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project's directory."""
    directory = tmp_path / "project"
    for name, text in (
        (
            "podium.toml",
            'agents = ["ant.py:Ant", "nest.bee:Bee"]\nrequirements = ["pydantic>=2"]\n[config.ant]\nx = 1\n',
        ),
        ("ant.py", AGENT.format(name="Ant", imports="import at_once", lazy="from later import inner")),
        ("at_once.py", ""),
        ("later/inner.py", "def ask():\n    import json, deepest\n"),
        ("deepest.py", ""),
        ("unused.py", ""),
        ("nest/__init__.py", ""),
        ("nest/bee.py", AGENT.format(name="Bee", imports="from .honey import SWEET", lazy="from ..nest import wax")),
        ("nest/honey.py", "SWEET = 1\n"),
        ("nest/wax.py", "syntax error\n"),
    ):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def packed(place: Path, blobs: MemoryBlobStore) -> Manifest:
    """The bundle of a project."""
    return pack_project(load_project(place / "podium.toml"), blobs)


def test_a_bundle_has_what_its_agents_import(place: Path) -> None:
    store, blobs = MemoryJournalStore(), MemoryBlobStore()
    assert deployed_registry(store, blobs) is None
    manifest = packed(place, blobs)
    assert sorted(manifest.files) == [
        "ant.py",
        "at_once.py",
        "deepest.py",
        "later/inner.py",
        "nest/__init__.py",
        "nest/bee.py",
        "nest/honey.py",
        "nest/wax.py",
        "podium.toml",
    ]
    assert manifest.requirements == ("pydantic>=2",)
    assert str(place) not in manifest.encode().decode(), "no path of this machine is in it"
    make_deploy(store, blobs, manifest.bundle, "x", 5)
    ant = RegisteredAgent("ant", "ant.py", "Ant", {"x": 1}, "ant.py:Ant", bundle=manifest.bundle)
    bee = RegisteredAgent("bee", "nest/bee.py", "Bee", {}, "nest.bee:Bee", bundle=manifest.bundle)
    assert deployed_registry(store, blobs) == Registry([ant, bee])
    assert RegisteredAgent.from_wire(ant.to_wire()) == ant
    assert ant.place == f"ant.py:Ant of the code bundle {manifest.bundle[:12]}"
    make_deploy(store, blobs, None, "x", 6)
    assert deployed_registry(store, blobs) is None


def test_what_cannot_be_deployed_is_refused_by_name(place: Path) -> None:
    blobs, file = MemoryBlobStore(), place / "podium.toml"
    (place.parent / "outside.py").write_text(AGENT.format(name="Outside", imports="", lazy="..."))
    for agents, error, refusal in (
        ("../outside.py:Outside", InvalidInput, "outside.py is outside of .*/project, the directory of the project"),
        (f"{place.parent}/outside.py:Outside", InvalidInput, "outside.py is outside of .*/project"),
        ("ant.py:Gone", AgentClassNotFound, r"podium.toml: agents\[0\] = 'ant.py:Gone': no class Gone in "),
    ):
        file.write_text(f'agents = ["{agents}"]\n')
        with pytest.raises(error, match=refusal):
            packed(place, blobs)
    file.write_text("agents = []\n")
    with pytest.raises(InvalidInput, match="podium.toml: agents: it is empty; name what is to be deployed"):
        packed(place, blobs)
    file.write_text('agents = ["ant.py:Ant"]\n')
    (place / "at_once.py").rename(place / "real.py")
    (place / "at_once.py").symlink_to(place / "real.py")
    with pytest.raises(InvalidInput, match="/project/at_once.py is a symbolic link"):
        packed(place, blobs)
    assert list(blobs.blob_ids()) == []


@pytest.mark.parametrize(
    ("requirements", "refusal"),
    [
        ("'httpx'", r'requirements: it is text; write a list: requirements = \["httpx>=0.28"\]'),
        ("[5]", r"requirements\[0\]: it is a number"),
        ("['httpx', '>=1']", r"requirements\[1\]: '>=1' is no requirement; write a name and its versions"),
    ],
)
def test_requirements_are_checked(place: Path, requirements: str, refusal: str) -> None:
    (place / "podium.toml").write_text(f"agents = ['ant.py:Ant']\nrequirements = {requirements}\n")
    with pytest.raises(InvalidInput, match=f"/podium.toml: {refusal}"):
        load_project(place / "podium.toml")
