"""What a service knows of agent classes, and the file that a coordinator finds it in again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.registry.known_agents import KnownAgents, keep_known_agents, kept_known_agents
from coordinator.registry.registry import RegisteredAgent, Registry
from podium.errors import UnknownAgentType

if TYPE_CHECKING:
    from pathlib import Path

ANT = RegisteredAgent("ant", "/ant.py", "Ant", {"model": "small"})
OTHER_ANT = RegisteredAgent("ant", "/other.py", "Ant", {"model": "large"})
BEE = RegisteredAgent("bee", "/bee.py", "Bee", {"legs": 6})


def test_without_a_registry_any_type_can_be_told() -> None:
    known = KnownAgents().noted(BEE)
    assert (known.types, known.types_to_tell) == (("bee",), None)
    assert known.get("bee") is BEE
    assert known.config_of("ant") == {}
    with pytest.raises(UnknownAgentType, match="the known types are bee"):
        known.get("ant")


def test_a_registered_class_precedes_one_of_a_message() -> None:
    known = KnownAgents().noted(OTHER_ANT).noted(BEE).registered(Registry([ANT]))
    assert known.get("ant") is ANT
    assert known.config_of("ant") == {"model": "small"}
    assert known.types_to_tell == ("ant", "bee")
    assert known.noted(BEE) is known


@pytest.mark.parametrize("known", [KnownAgents(), KnownAgents(Registry()), KnownAgents(Registry([ANT]), {"bee": BEE})])
def test_what_is_kept_is_found_again(tmp_path: Path, known: KnownAgents) -> None:
    path = tmp_path / "known.json"
    assert kept_known_agents(path) == KnownAgents()
    for _ in range(2):
        keep_known_agents(path, known)
    assert kept_known_agents(path) == known
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["known.json"]
