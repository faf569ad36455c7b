"""Podium, the agent: its base class, context, state, turns and activation.

It knows Chronicle, not Ray, HTTP, FUSE or SQL. What users import is here: classes for an agent's author, and errors
that callers catch. Each name is imported at its first use. Tests of agents have `podium.testing`, patches and documents
of states `podium.state`.
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
    from podium.agent.reply import Reply as Reply
    from podium.agent.retry import Retry as Retry
    from podium.caller import Caller as Caller
    from podium.errors import AgentBusy as AgentBusy
    from podium.errors import AgentLoadError as AgentLoadError
    from podium.errors import AskCycle as AskCycle
    from podium.errors import AskFailed as AskFailed
    from podium.errors import AskRefused as AskRefused
    from podium.errors import AskTimeout as AskTimeout
    from podium.errors import DecisionExpired as DecisionExpired
    from podium.errors import InvalidAddress as InvalidAddress
    from podium.errors import InvalidMessage as InvalidMessage
    from podium.errors import Permanent as Permanent
    from podium.errors import PodiumError as PodiumError
    from podium.errors import ProgramChanged as ProgramChanged
    from podium.errors import PromiseRejected as PromiseRejected
    from podium.errors import ReadFailed as ReadFailed
    from podium.errors import ReadOnly as ReadOnly
    from podium.errors import UnknownAgent as UnknownAgent
    from podium.errors import UnknownArtifact as UnknownArtifact
    from podium.errors import UnknownHandler as UnknownHandler
    from podium.errors import UnknownMoment as UnknownMoment
    from podium.events import ErrorInfo as ErrorInfo
    from podium.history.retention import Retention as Retention
    from podium.reminders.reminder import Reminder as Reminder
    from podium.reminders.reminder import ScheduledReminder as ScheduledReminder
    from podium.state.errors import InvalidState as InvalidState
    from podium.state.errors import InvalidValue as InvalidValue
    from podium.state.errors import OutsideTurn as OutsideTurn
    from podium.state.errors import PatchError as PatchError
    from podium.state.errors import StateError as StateError
    from podium.state.errors import StateLoadError as StateLoadError
    from podium.state.errors import UnseenChange as UnseenChange
    from podium.state.errors import UnstorableState as UnstorableState
    from podium.state.errors import UnsupportedType as UnsupportedType
    from podium.turn.busy import BusyPolicy as BusyPolicy

_MODULES: Final = {
    "AgentBusy": "podium.errors",
    "AgentContext": "podium.agent.context",
    "AgentLoadError": "podium.errors",
    "Answer": "podium.agent.answer",
    "AnswerEvent": "podium.agent.answer",
    "AnswerPart": "podium.agent.answer",
    "AnswerText": "podium.agent.answer",
    "AnswerVoided": "podium.agent.answer",
    "Answered": "podium.agent.answer",
    "AskCycle": "podium.errors",
    "AskFailed": "podium.errors",
    "AskRefused": "podium.errors",
    "AskTimeout": "podium.errors",
    "BaseAgent": "podium.agent.base",
    "BusyPolicy": "podium.turn.busy",
    "Caller": "podium.caller",
    "DecisionExpired": "podium.errors",
    "DeltaState": "podium.agent.models.delta_state",
    "ErrorInfo": "podium.events",
    "InvalidAddress": "podium.errors",
    "InvalidMessage": "podium.errors",
    "InvalidState": "podium.state.errors",
    "InvalidValue": "podium.state.errors",
    "ModelAgent": "podium.agent.model_agent",
    "OutsideTurn": "podium.state.errors",
    "PatchError": "podium.state.errors",
    "PodiumError": "podium.errors",
    "ReadFailed": "podium.errors",
    "ReadOnly": "podium.errors",
    "Reminder": "podium.reminders.reminder",
    "Reply": "podium.agent.reply",
    "Permanent": "podium.errors",
    "ProgramChanged": "podium.errors",
    "PromiseRejected": "podium.errors",
    "Retention": "podium.history.retention",
    "Retry": "podium.agent.retry",
    "ScheduledReminder": "podium.reminders.reminder",
    "StateError": "podium.state.errors",
    "StateLoadError": "podium.state.errors",
    "UnknownAgent": "podium.errors",
    "UnknownArtifact": "podium.errors",
    "UnknownHandler": "podium.errors",
    "UnknownMoment": "podium.errors",
    "UnseenChange": "podium.state.errors",
    "UnstorableState": "podium.state.errors",
    "UnsupportedType": "podium.state.errors",
    "handler": "podium.agent.handlers",
    "migration": "podium.agent.models.delta_state",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
