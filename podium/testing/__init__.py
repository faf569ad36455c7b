"""Tools for testing agents without Ray, FUSE or a service, through the same turn code that runs them for real."""

from __future__ import annotations

from podium.testing.harness import AgentHarness, Exchange

__all__ = ["AgentHarness", "Exchange"]
