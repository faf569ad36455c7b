"""The types of a project's agent classes, found by inspector processes: no code of agents is imported here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput
from coordinator.registry.registry import RegisteredAgent, Registry
from podium.agent.inspect import inspect_agent
from podium.errors import AgentLoadError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coordinator.registry.project import Project
    from podium.agent.inspect import AgentInfo

__all__ = ["resolve"]

if TYPE_CHECKING:
    Inspector = Callable[[str, Path], AgentInfo]
    """Inspects the class that a spec names, relative to a directory; raises as `inspect_agent`."""

_MAX_INSPECTORS: Final = 4
"""Inspector processes at a time: each imports an agent's code, which is work of a core and some tens of megabytes."""


def resolve(project: Project, inspect: Inspector | None = None) -> Registry:
    """Return the registry of a project; takes as long as the slowest imports of its agents' code.

    Args:
        inspect: by default a throw-away process for each class, with the project's variables in its environment.

    Raises:
        AgentLoadError: a class cannot be used; the subclass tells why, and the message names the entry of the file.
        InvalidInput: two classes have one type, or the file has a configuration for a type that no class has.
    """
    keys = project.models.key_variables  # no code of agents gets them
    inspect = inspect or (lambda spec, directory: inspect_agent(spec, directory, project.variables, keys))
    with ThreadPoolExecutor(_MAX_INSPECTORS, "inspect") as threads:
        waiting = [threads.submit(inspect, spec, project.directory) for spec in project.agents]
    agents: dict[str, RegisteredAgent] = {}
    for at, (spec, inspected) in enumerate(zip(project.agents, waiting, strict=True)):
        where = f"{project.file}: agents[{at}]"
        try:
            info = inspected.result()
        except AgentLoadError as error:
            raise type(error)(f"{where} = {spec!r}: {error}", error.detail) from error
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}") from None
        config = project.config.get(info.agent_type, {})
        other = agents.get(info.agent_type)
        agent = RegisteredAgent(
            info.agent_type,
            info.file,
            info.class_name,
            config,
            spec,
            info.accepts_client_state,
            interface=info.interface,
        )
        if other is not None:
            raise InvalidInput(
                f"{where} = {spec!r} has the type {info.agent_type!r}, and so has {other.place}; give one of them "
                "another agent_type"
            )
        agents[info.agent_type] = agent
    for agent_type in project.config:
        if agent_type not in agents:
            raise InvalidInput(
                f"{project.file}: config.{agent_type}: no agent class has this type; the types are "
                f"{', '.join(sorted(agents))}"
            )
    return Registry(agents.values())
