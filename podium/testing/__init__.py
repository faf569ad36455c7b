"""Test tools for agents: no Ray, FUSE or service, and the turn code of production."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.testing.harness import AgentHarness, Exchange, HarnessOptions

if TYPE_CHECKING:
    from podium.testing.simulator import Broken, Simulator

__all__ = ["AgentHarness", "Broken", "Exchange", "HarnessOptions", "Simulator"]


def __getattr__(name: str) -> Any:
    """Import the simulator at its first use: tests of agents do not need it, and it is a program of its own."""
    if name not in {"Broken", "Simulator"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from podium.testing import simulator  # noqa: PLC0415

    return getattr(simulator, name)
