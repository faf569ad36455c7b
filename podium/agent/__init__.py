"""API for authors of agents: base class, context of hooks, state, retention of history, steps and their errors.

Each name is imported at its first use: the command line uses modules of this package and none of these classes, whose
libraries take a third of a second to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.agent.answer import Answer
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext
    from podium.agent.models.delta_state import DeltaState, migration
    from podium.agent.retry import Retry
    from podium.errors import AskFailed, AskRefused, AskTimeout, Permanent
    from podium.history.retention import Retention
    from podium.reminders.reminder import Reminder, ScheduledReminder

__all__ = [
    "AgentContext",
    "Answer",
    "AskFailed",
    "AskRefused",
    "AskTimeout",
    "BaseAgent",
    "DeltaState",
    "Permanent",
    "Reminder",
    "Retention",
    "Retry",
    "ScheduledReminder",
    "migration",
]

_MODULES: Final = {
    "AgentContext": "podium.agent.context",
    "Answer": "podium.agent.answer",
    "AskFailed": "podium.errors",
    "AskRefused": "podium.errors",
    "AskTimeout": "podium.errors",
    "BaseAgent": "podium.agent.base",
    "DeltaState": "podium.agent.models.delta_state",
    "Permanent": "podium.errors",
    "Reminder": "podium.reminders.reminder",
    "Retention": "podium.history.retention",
    "Retry": "podium.agent.retry",
    "ScheduledReminder": "podium.reminders.reminder",
    "migration": "podium.agent.models.delta_state",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
