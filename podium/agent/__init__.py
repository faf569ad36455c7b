"""API for authors of agents: base class, context of hooks, state, retention of history, steps and their errors.

Each name is imported at its first use: the command line uses modules of this package and none of these classes, whose
libraries take a third of a second to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.agent.answer import Answer as Answer
    from podium.agent.answer import Answered as Answered
    from podium.agent.answer import AnswerEvent as AnswerEvent
    from podium.agent.answer import AnswerPart as AnswerPart
    from podium.agent.answer import AnswerText as AnswerText
    from podium.agent.answer import AnswerVoided as AnswerVoided
    from podium.agent.base import BaseAgent as BaseAgent
    from podium.agent.context import AgentContext as AgentContext
    from podium.agent.handlers import handler as handler
    from podium.agent.model_agent import ModelAgent as ModelAgent
    from podium.agent.models.delta_state import DeltaState as DeltaState
    from podium.agent.models.delta_state import migration as migration
    from podium.agent.retry import Retry as Retry
    from podium.errors import AskFailed as AskFailed
    from podium.errors import AskRefused as AskRefused
    from podium.errors import AskTimeout as AskTimeout
    from podium.errors import DecisionExpired as DecisionExpired
    from podium.errors import Permanent as Permanent
    from podium.events import ErrorInfo as ErrorInfo
    from podium.history.retention import Retention as Retention
    from podium.reminders.reminder import Reminder as Reminder
    from podium.reminders.reminder import ScheduledReminder as ScheduledReminder

_MODULES: Final = {
    "AgentContext": "podium.agent.context",
    "Answer": "podium.agent.answer",
    "AnswerEvent": "podium.agent.answer",
    "AnswerPart": "podium.agent.answer",
    "AnswerText": "podium.agent.answer",
    "AnswerVoided": "podium.agent.answer",
    "Answered": "podium.agent.answer",
    "AskFailed": "podium.errors",
    "AskRefused": "podium.errors",
    "AskTimeout": "podium.errors",
    "BaseAgent": "podium.agent.base",
    "DecisionExpired": "podium.errors",
    "DeltaState": "podium.agent.models.delta_state",
    "ErrorInfo": "podium.events",
    "ModelAgent": "podium.agent.model_agent",
    "Permanent": "podium.errors",
    "Reminder": "podium.reminders.reminder",
    "Retention": "podium.history.retention",
    "Retry": "podium.agent.retry",
    "ScheduledReminder": "podium.reminders.reminder",
    "handler": "podium.agent.handlers",
    "migration": "podium.agent.models.delta_state",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
