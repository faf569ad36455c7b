"""Tools for testing agents without Ray, FUSE or a service, through the same turn code that runs them for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.testing.harness import AgentHarness, Exchange

if TYPE_CHECKING:
    from podium.testing.simulator import Broken, Simulator

__all__ = ["AgentHarness", "Broken", "Exchange", "Simulator"]


def __getattr__(name: str) -> Any:
    """Import the simulator when it is asked for: tests of agents do without it, and it is a program of its own."""
    if name not in {"Broken", "Simulator"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from podium.testing import simulator  # noqa: PLC0415

    return getattr(simulator, name)
