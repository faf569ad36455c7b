"""Results about the code of a home's agents: its classes, and its deploys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator.operations.objects.result import Result, key

__all__ = ["AgentClass", "AgentClassList", "Deploy", "DeployList", "Deployed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentClass(Result):
    """An agent type, and what messages to its agents are."""

    agent_type: str = field(metadata=key("type"))
    class_name: str = field(metadata=key("class"))
    """The class as the project names it, such as `agent.py:Greeter`."""
    on_message: bool
    """Whether any JSON object that names no handler is a message."""
    handlers: dict[str, Any]
    """By name: the JSON Schema of the handler's argument as `input`, and of its result as `result`, null without
    one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentClassList(Result):
    """The agent types of a home, by name."""

    items: tuple[AgentClass, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy(Result):
    """A deploy of the code of a home's agents."""

    number: int
    """From 1."""
    bundle: str | None
    """The id of the code bundle; null if agents run the files of the service's machine from here on."""
    by: str
    """Who made it: the id of a key, or the user of a command."""
    made_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed(Deploy):
    """The deploy that is current now."""

    service: bool
    """Whether a service runs, which uses it at once."""
    reloaded: tuple[str, ...]
    """The awake agents that move to it after their running turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployList(Result):
    """The deploys of a home, the current one last."""

    items: tuple[Deploy, ...]
