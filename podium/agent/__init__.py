"""What an agent's author imports: the base class and the context its hooks are given."""

from __future__ import annotations

from podium.agent.base import BaseAgent
from podium.agent.context import AgentContext

__all__ = ["AgentContext", "BaseAgent"]
