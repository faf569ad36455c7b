"""Reloading: a running service gets the project file and the code as they are now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.models.config_file import read_config, store_config
from coordinator.registry.project import load_project
from coordinator.registry.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coordinator.process_environment import ProcessEnvironment
    from coordinator.registry.project import Project
    from coordinator.registry.registry import Registry

__all__ = ["Registrar", "Reloaded", "reload_project"]


class Registrar(Protocol):
    """A connection to a service, as far as reloading uses it: `coordinator.service.client.ServiceClient`."""

    surroundings: ProcessEnvironment | None

    async def register(
        self, registry: Registry, *, reload: bool = False, follow_edits: bool | None = None
    ) -> list[str]:
        """Set the agent types that are known."""
        ...


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload."""

    registry: Registry
    agents: Sequence[str]
    """The addresses of the awake agents that move to other code or another configuration after their running turns."""
    restart_for: Sequence[str]
    """Names of variables that need a restart of the service: it does not have them, or they are keys of models now, and
    its agents' processes may have them."""

    def to_wire(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "types": list(self.registry.types),
            "reloaded": list(self.agents),
            "restart_for": list(self.restart_for),
        }


async def reload_project(service: Registrar, file: Path, home: Path | None = None) -> Reloaded:
    """Read a project file again, and have its agents move to the current code and configuration.

    Awake agents whose code or configuration is another one end after their running turns, and their next messages are
    handled by new processes. Settings and environment of a running service do not change.

    Args:
        home: whose profiles of models become those of the project, too; ``None`` to leave them.

    Raises:
        NotFound, InvalidInput, AgentLoadError: as `load_project` and `resolve`; nothing was changed.
    """
    project, registry = await asyncio.to_thread(_read, file)
    moving = await service.register(registry, reload=True)
    restart_for = _not_in(service.surroundings, project)
    if home is not None:
        documents = open_records(Home(home)).documents()
        known = read_config(documents).key_variables
        store_config(documents, project.models)
        restart_for += sorted(project.models.key_variables - known - set(restart_for))
    return Reloaded(registry, moving, restart_for)


def _read(file: Path) -> tuple[Project, Registry]:
    project = load_project(file)
    return project, resolve(project)


def _not_in(service: ProcessEnvironment | None, project: Project) -> list[str]:
    """Return the names of a project's variables that a service does not have with these values."""
    return service.without(project.variables) if service is not None else []
