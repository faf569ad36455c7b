"""Results about the deploys of a home's code."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.operations.objects.result import Result

__all__ = ["Deploy", "DeployList", "Deployed"]


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
