"""What an agent's author imports: the base class, the context its hooks are given, its state, and what it may set.

Each name is imported when it is asked for: the command line uses modules of this package and none of these classes,
whose libraries take a third of a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext
    from podium.agent.models.delta_state import DeltaState, migration
    from podium.history.retention import Retention

__all__ = ["AgentContext", "BaseAgent", "DeltaState", "Retention", "migration"]

_MODULES: Final = {
    "AgentContext": "podium.agent.context",
    "BaseAgent": "podium.agent.base",
    "DeltaState": "podium.agent.models.delta_state",
    "Retention": "podium.history.retention",
    "migration": "podium.agent.models.delta_state",
}


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` the first time that it is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names that there are, imported or not."""
    return sorted({*globals(), *__all__})
