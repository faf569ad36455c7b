"""The agent classes that a service knows, as its coordinator and its hosts get them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chronicle.system.atomic_files import replacing
from coordinator.registry.registry import RegisteredAgent, Registry
from podium.errors import UnknownAgentType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from chronicle.canonical import JsonObject

__all__ = ["KnownAgents", "keep_known_agents", "kept_known_agents"]


@dataclass(frozen=True, slots=True)
class KnownAgents:
    """The classes of a registry, and those that messages brought along. Immutable."""

    registry: Registry | None = None
    """``None`` while none was registered: then an agent may tell an address of any type."""
    named: Mapping[str, RegisteredAgent] = field(default_factory=dict)
    """By type; one of a registered type has no effect."""

    def registered(self, registry: Registry | None) -> KnownAgents:
        """Return the same with another registry."""
        return KnownAgents(registry, self.named)

    def noted(self, agent: RegisteredAgent) -> KnownAgents:
        """Return the same with a class that a message brought along; the same object if nothing changes."""
        if self.named.get(agent.agent_type) == agent:
            return self
        return KnownAgents(self.registry, {**self.named, agent.agent_type: agent})

    @property
    def types(self) -> tuple[str, ...]:
        """The known types, sorted."""
        return tuple(sorted({*(self.registry.types if self.registry else ()), *self.named}))

    @property
    def types_to_tell(self) -> tuple[str, ...] | None:
        """The types that an agent may send messages to; ``None`` for any."""
        return None if self.registry is None else self.types

    def find(self, agent_type: str) -> RegisteredAgent | None:
        """Return the class of a type, the registered one first; ``None`` if none is known."""
        registered = self.registry.get(agent_type) if self.registry is not None else None
        return registered or self.named.get(agent_type)

    def get(self, agent_type: str) -> RegisteredAgent:
        """Return the class of a type, the registered one first.

        Raises:
            UnknownAgentType: none is known.
        """
        found = self.find(agent_type)
        if found is None:
            raise UnknownAgentType(agent_type, self.types)
        return found

    def config_of(self, agent_type: str) -> JsonObject:
        """Return the configuration of a type; empty if the type is not known."""
        found = self.find(agent_type)
        return found.config if found is not None else {}


def keep_known_agents(path: Path, known: KnownAgents) -> None:
    """Write the known agents to a file, for a coordinator that is started again."""
    registry = known.registry.to_wire() if known.registry is not None else None
    named = [agent.to_wire() for agent in known.named.values()]
    with replacing(path) as new:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"registry": registry, "named": named}, file)


def kept_known_agents(path: Path) -> KnownAgents:
    """Return what `keep_known_agents` has written; nothing is known without that file."""
    try:
        kept = json.loads(path.read_bytes())
    except FileNotFoundError:
        return KnownAgents()
    registry = Registry.from_wire(kept["registry"]) if kept["registry"] is not None else None
    named = [RegisteredAgent.from_wire(each) for each in kept["named"]]
    return KnownAgents(registry, {agent.agent_type: agent for agent in named})
