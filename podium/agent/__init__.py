"""What an agent's author imports: the base class, the context its hooks are given, and what it may set."""

from __future__ import annotations

from podium.agent.base import BaseAgent
from podium.agent.context import AgentContext
from podium.retention import Retention

__all__ = ["AgentContext", "BaseAgent", "Retention"]
