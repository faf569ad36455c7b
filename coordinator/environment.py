"""Environment variables outside of `coordinator.settings`: Ray's, and those set for agents' processes.

No other module of the package accesses the environment, except two:

* `coordinator.ray.embedded.worker_launcher` copies it for the worker that it has forked. It imports no module of ours,
  as it is part of each start of a host.
* `coordinator.cli.options` names variables that typer reads (``envvar=``): the help of a command shows them, and
  `coordinator.settings` is slow to import.

Clients and the command line's options import this module, so its imports are light.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

__all__ = [
    "DEFAULT_HOME",
    "HOST_VARIABLE",
    "add_variables",
    "disable_ray_usage_statistics",
    "environment_without_host_variable",
    "home_directory",
    "ray_address",
    "replace_variables",
    "set_host_variable",
    "set_ray_address",
    "traces_to",
    "variables",
    "withheld",
    "withhold",
]

DEFAULT_HOME: Final = Path(".podium")
"""The home directory if none is given, relative to the current directory or to that of the project."""
HOST_VARIABLE: Final = "PODIUM_HOST"
"""Marks the processes that a host starts; see `coordinator.host.node.process_marks`."""


def home_directory() -> Path:
    """Return the home directory that ``PODIUM_HOME`` names, by default ``.podium``."""
    return Path(os.environ.get("PODIUM_HOME") or DEFAULT_HOME)


def add_variables(variables: Mapping[str, str]) -> None:
    """Set variables in this process and its future children, unless they are set."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def replace_variables(variables: Mapping[str, str]) -> None:
    """Make these the variables of this process and its future children."""
    os.environ.clear()
    os.environ.update(variables)


def ray_address() -> str:
    """Return the address of the cluster to join, which ``RAY_ADDRESS`` names; empty for none."""
    return os.environ.get("RAY_ADDRESS", "")


def set_ray_address(address: str) -> None:
    """Name the cluster to join for this process and its future children."""
    os.environ["RAY_ADDRESS"] = address


def disable_ray_usage_statistics() -> None:
    """Disable Ray's usage statistics, unless its variable is set."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def set_host_variable(value: str | None) -> None:
    """Set `HOST_VARIABLE` in this process and its future children; ``None`` removes it."""
    if value is None:
        os.environ.pop(HOST_VARIABLE, None)
    else:
        os.environ[HOST_VARIABLE] = value


def environment_without_host_variable() -> dict[str, str]:
    """Return a copy of this process's environment without `HOST_VARIABLE`, for a process that belongs to no host."""
    return {name: value for name, value in os.environ.items() if name != HOST_VARIABLE}


def traces_to() -> str | None:
    """Return where OpenTelemetry's variables have traces sent; ``None`` if they name nothing, or switch traces off."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() not in {"", "otlp"}:
        return None
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def withhold(names: Collection[str]) -> None:
    """Remove variables from this process, for its future children."""
    for name in names:
        os.environ.pop(name, None)


@contextmanager
def withheld(wanted: Callable[[str], bool]) -> Iterator[None]:
    """Have this process without the variables whose names are wanted while the context lasts, for its children."""
    held = {name: value for name, value in os.environ.items() if wanted(name)}
    withhold(held)
    try:
        yield
    finally:
        os.environ.update(held)


def variables() -> dict[str, str]:
    """Return a copy of the environment."""
    return dict(os.environ)
