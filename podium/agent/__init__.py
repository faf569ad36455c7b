"""What an agent's author imports: the base class, the context of its hooks, its state, and its history's retention.

Each name is imported at its first use: the command line uses modules of this package and none of these classes, whose
libraries take a third of a second to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext
    from podium.agent.models.delta_state import DeltaState, migration
    from podium.history.retention import Retention

__all__ = [
    "AgentContext",
    "BaseAgent",
    "DeltaState",
    "Retention",
    "migration",
]

_MODULES: Final = {
    "AgentContext": "podium.agent.context",
    "BaseAgent": "podium.agent.base",
    "DeltaState": "podium.agent.models.delta_state",
    "Retention": "podium.history.retention",
    "migration": "podium.agent.models.delta_state",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
